"""What a look into a network finds, by hand, and that it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from colobus.algorithms.a3c import A3C
from colobus.core.files import read_lines
from colobus.core.functions import name_of
from colobus.nets.config import NetworkSettings
from colobus.ops.flat import FlatParameters
from colobus.ops.losses import FORBIDDEN
from colobus.roles import probe as probing
from colobus.roles.probe import Layers, Probe
from colobus.training.run import train
from conftest import catch, distributed_catch, make_net
from helpers.outcomes import inline


def test_layers_by_hand() -> None:
    """Two layers: four units over two observations, and a convolution's two filters of 1x2."""
    with Layers() as layers:
        torch.tensor([[1.0, -2.0, 0.0, 100.0], [3.0, -1.0, 0.1, 300.0]]).relu_()
        torch.relu(torch.tensor([[[[1.0, -1.0]], [[-1.0, 0.01]]]]))
        torch.sigmoid(torch.zeros(3))
    got = {name: float(value) for name, value in layers.found.items()}
    assert got == pytest.approx(
        {
            "active_1": 5 / 8,
            "output_1": 404.1 / 8,
            # unit means 2, 0, 0.05 and 200, of the layer 50.5: two are below 0.025 of it
            "dormant_1": 2 / 4,
            "active_2": 2 / 4,
            "output_2": 1.01 / 4,
            # 0.5 and 0.005, of the layer 0.2525
            "dormant_2": 1 / 2,
        }
    )


class Scores(A3C):
    given = torch.tensor([[0.0, 2.0, 1.0], [5.0, 1.0, 1.0]])

    def scores(self, *_: Any) -> tuple[torch.Tensor, None]:
        return self.given, None


def test_actions_and_norms_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "some_stacks", lambda *_: torch.zeros(2, 3, 10, 5))
    flat, scores = FlatParameters(make_net()), Scores()
    batch = cast("Any", SimpleNamespace(frames=None, ages=None))
    look = Probe(scores, 3)
    look.look(flat, batch, 1)
    assert look.values == {}
    flat.gradients.fill_(2.0)
    look.look(flat, batch, 3)
    first = look.values
    assert first["greedy_gap"] == 2.5  # of 1 and 4
    assert "churn" not in first
    assert first["gradient_heads.value.bias"] == 2.0
    name, largest = max(flat.layout.views(flat.values), key=lambda one: one[1].numel())
    assert first[f"norm_{name}"] == pytest.approx(float(largest.norm()))
    flat.values.mul_(1.25)
    scores.given[1] = torch.tensor([0.0, 7.0, 1.0])
    look.look(flat, batch, 4)
    assert look.values is first
    look.look(flat, batch, 6)
    assert look.values["churn"] == 0.5
    assert look.values["moved"] == pytest.approx(0.2)  # a quarter of what it was
    scores.given[1] = torch.tensor([7.0, FORBIDDEN, FORBIDDEN])  # nothing else may be played
    for version, looks in ((8, False), (10, True), (14, True), (14, False)):  # 9 and 12 are others'
        before = look.values
        look.look(flat, batch, version)
        assert (look.values is not before) == looks
    assert look.values["greedy_gap"] == 0.5  # of 1 and 0


def with_dropout(settings: NetworkSettings, shape: tuple[int, int], planes: int) -> nn.Module:
    first = nn.Linear(settings.stack * shape[0] * shape[1], settings.width)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Dropout(0.5))


def test_a_look_is_at_what_plays_and_draws_no_random_numbers() -> None:
    torso = name_of(with_dropout)
    net = make_net(NetworkSettings(torso="tiny", width=64, stack=1, own_torso=torso))
    flat, look, random = FlatParameters(net), Probe(A3C(), 1), np.random.default_rng(1)
    frames = torch.from_numpy(random.integers(0, 256, (16, 16, 10, 5), np.uint8))
    batch = cast("Any", SimpleNamespace(frames=frames, ages=torch.full((16, 16), 9)))
    before = torch.get_rng_state()
    for version in (1, 2):
        look.look(flat, batch, version)
    assert look.values["churn"] == look.values["moved"] == 0.0
    assert torch.equal(torch.get_rng_state(), before)
    assert all(part.training for part in net.modules())  # who learns still drops units


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [catch(4_000), distributed_catch(30)])
def test_a_run_that_is_looked_into_learns_the_same(experiment: Any, tmp_path: Path) -> None:
    experiment = replace(experiment, deterministic=True)
    looked = replace(experiment, tracker=replace(experiment.tracker, probe_every=2))
    assert torch.equal(inline(experiment).parameters, inline(looked).parameters)
    written = replace(looked, tracker=replace(looked.tracker, pulse_seconds=0.01))
    train(written, tmp_path / "run", log=lambda _: None)
    last = read_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    assert 0 < last["active_1"] <= 1
    assert 0 <= last["churn"] <= 1
    assert last["moved"] > 0
    assert last["norm_torso.hidden.weight"] > 0
    beat = read_lines(tmp_path / "run" / "pulse.jsonl")[-1]
    assert beat["roles"]["learner-0"]["stage"]
    assert beat["roles"]["actor-1"]["steps"] > 0
