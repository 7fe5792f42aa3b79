"""Torsos and heads of the user: what they are called with, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import colobus
from colobus.algorithms.iqn import IQN
from colobus.core.errors import ColobusError
from colobus.core.functions import name_of
from colobus.nets.config import NetworkSettings
from colobus.nets.heads import ActionValues, Head, Linear, user_heads
from colobus.nets.observations import reconstruct
from conftest import make_net
from helpers.launching import QUIET

BASE = NetworkSettings(torso="tiny", width=16, stack=3)


class Scaled(Head):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = Linear(width, 8), Linear(8, outputs)

    def start(self, init: Any) -> None:
        self.first.start(init)
        self.last.start(init)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.first(hidden))
        return found


def torso(settings: NetworkSettings, frame_shape: tuple[int, int], planes: int) -> nn.Module:
    height, width = frame_shape
    assert planes == 1
    return nn.Sequential(nn.Flatten(), nn.Linear(settings.stack * height * width, settings.width))


def followed_by(make: Callable[[int], nn.Module]) -> Any:
    return lambda settings, *shape: nn.Sequential(torso(settings, *shape), make(settings.width))


def with_policy(make: Callable[[int], Head]) -> Any:
    return lambda own, width: own | {"policy": make(width)}


def heads(own: dict[str, Head], width: int) -> dict[str, Head]:
    return own | {"policy": Scaled(width, 3)}


def settings(**functions: Any) -> NetworkSettings:
    names: dict[str, Any] = {name: name_of(made) for name, made in functions.items()}
    return replace(BASE, **names)


DROPOUT = followed_by(lambda _width: nn.Dropout(0.5))


def test_who_plays_drops_nothing_out() -> None:
    net = make_net(settings(own_torso=DROPOUT))
    acting = net.for_acting(("policy",))
    stacks = net.preprocess(torch.full((4, 3, 10, 5), 200, dtype=torch.uint8))
    assert torch.equal(acting(stacks)["policy"], acting(stacks)["policy"])
    assert not torch.equal(net(stacks)["policy"], net(stacks)["policy"])  # who learns does


def test_reconstructions_drop_nothing_out() -> None:
    net = make_net(replace(settings(own_torso=DROPOUT), autoencoder="auxiliary"))
    stacks = torch.full((4, 3, 10, 5), 200, dtype=torch.uint8)
    first, again = (reconstruct(net, stacks)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_torso_and_heads_of_the_user_are_the_networks() -> None:
    net = make_net(settings(own_torso=torso, own_heads=heads))
    names = dict(net.named_parameters())
    assert names["torso.own.1.weight"].shape == (16, 150)
    assert names["heads.policy.last.weight"].shape == (3, 8)
    stacks = net.preprocess(torch.zeros(4, 3, 10, 5, dtype=torch.uint8))
    outputs = net(stacks)
    hidden = stacks.flatten(1) @ names["torso.own.1.weight"].T + names["torso.own.1.bias"]
    first = hidden @ names["heads.policy.first.weight"].T
    wanted = first @ names["heads.policy.last.weight"].T
    torch.testing.assert_close(outputs["policy"], wanted)
    assert outputs["value"].shape == (4, 1)


def wide(settings: NetworkSettings, frame_shape: tuple[int, int], planes: int) -> nn.Module:
    return torso(replace(settings, width=5), frame_shape, planes)


def too_few(own: dict[str, Head], width: int) -> dict[str, Head]:
    return {"policy": own["policy"]}


class Drawn(Head):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 3)
        nn.init.constant_(self.layer.weight, 0.5)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(hidden)
        return found


def test_a_head_without_start_keeps_the_weights_that_it_was_made_with() -> None:
    weights = dict(make_net(settings(own_heads=with_policy(Drawn))).named_parameters())
    assert bool((weights["heads.policy.layer.weight"] == 0.5).all())


class Viewed(nn.Module):
    """Flattens with view, which only fits the memory of the first call of torch's own."""

    def __init__(self, settings: NetworkSettings, *_: Any) -> None:
        super().__init__()
        self.filters = nn.Conv2d(settings.stack, 4, 3)
        self.dense = nn.Linear(4 * 8 * 3, settings.width)

    def forward(self, stacks: torch.Tensor) -> torch.Tensor:
        x = self.filters(stacks)
        found: torch.Tensor = self.dense(x.view(len(x), -1))
        return found


@pytest.mark.parametrize(
    ("part", "function", "said"),
    [
        ("torso", followed_by(nn.BatchNorm1d), "keeps statistics while it learns"),
        ("torso", followed_by(lambda width: nn.Linear(3, width)), "cannot take 2 stacks"),
        ("torso", Viewed, "cannot take 2 stacks .*: view size is not"),
        ("torso", wide, r"its output for 2 stacks of 3 frames \(10, 5\) is \[2, 5\], must be"),
        ("torso", lambda *_: 3, "returned int, no torch module"),
        ("heads", too_few, r"returned \['policy'\], must be .* names \['policy', 'value'\]"),
        ("heads", lambda *_: 3, "returned int, must be a dictionary"),
        ("heads", with_policy(lambda n: Linear(n + 1, 3)), "'policy' cannot take 2 .* of 16: mat1"),
        ("heads", with_policy(lambda n: Linear(n, 4)), r"the output of 'policy' is \[2, 4\] for 2"),
    ],
)
def test_what_is_no_torso_or_heads_is_one_line(part: str, function: Any, said: str) -> None:
    with pytest.raises(ColobusError, match=f"^--own-{part} .*: {said}") as error:
        make_net(settings(**{f"own_{part}": function}))
    assert "\n" not in str(error.value)


def plain_values(own: dict[str, Head], width: int) -> dict[str, Head]:
    return {"q": ActionValues(width, 3, 8, duelling=False)}


def test_a_head_without_a_method_of_the_algorithms_is_one_line() -> None:
    own = IQN(acting_quantiles=8).heads(3, 16)
    with pytest.raises(ColobusError, match=r"^--own-heads .*: 'q' has no method at, unlike "):
        user_heads(name_of(plain_values), own, 16)


def test_a_run_with_a_network_of_the_user_is_loaded_and_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    colobus.train("catch", run, steps=2_000, own_torso=torso, own_heads=heads, **QUIET)
    agent = colobus.load(run)
    assert dict(agent.net.named_parameters())["torso.own.1.weight"].shape == (64, 50)
    assert colobus.train(resume=run, steps=4_000, **QUIET).steps >= 4_000
    with pytest.raises(ColobusError, match=r"^--torso dqn2013: has an effect only without --own"):
        colobus.preset("catch", own_torso=torso, torso="dqn2013")
