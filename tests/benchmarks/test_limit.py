"""benchmarks/limit.py: what it uses, and that its stages are those of ``gelada bench`` in kind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ale_py import ALEVectorInterface

import limit
from conftest import make_net, short_pong
from gelada.algorithms.dqn import DQN
from gelada.cli.perf import throughput as bench
from gelada.envs import atari
from gelada.envs.api import GameSettings
from gelada.nets.network import Network, NetworkSettings
from gelada.nets.observations import Observations
from gelada.training.presets import PRESETS
from gelada.training.start import begin

BENCHMARKS = Path(limit.__file__).parent

EXPERIMENT = replace(short_pong(1), network=NetworkSettings(precision="float32"))
SHAPE = EXPERIMENT.shape
WHAT = limit.What(
    epochs=EXPERIMENT.algorithm.epochs,
    minibatch=EXPERIMENT.algorithm.minibatch,
    games=SHAPE.games,
    windows=SHAPE.windows,
    length=SHAPE.length,
)


def fresh(*words: str) -> str:
    """Run Python in a new process; return what it printed."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_of_gelada_it_uses_the_network_only() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import limit\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] == 'gelada'))"
    )
    loaded = set(json.loads(fresh("-c", script).replace("'", '"')))
    others = {m for m in loaded if not m.startswith("gelada.nets")}
    assert "gelada.nets.network" in loaded
    assert others == {
        "gelada",
        "gelada.core",
        "gelada.core.errors",  # of settings
        "gelada.core.settings",
        "gelada.core.types",
    }  # what networks themselves are made of


class Looks:
    """What a network was shown: samples, and whether gradients were wanted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, bool]] = []
        features = Network.features

        def noted(net: Network, stacks: torch.Tensor) -> torch.Tensor:
            self.seen.append((len(stacks), torch.is_grad_enabled()))
            return features(net, stacks)

        monkeypatch.setattr(Network, "features", noted)

    def during(self, work: Callable[[], int]) -> tuple[int, list[tuple[int, bool]]]:
        """Return what a work counts, and the looks that it took."""
        self.seen.clear()
        return work(), list(self.seen)


def test_acting_and_learning_look_as_often_as_those_of_bench(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = begin(EXPERIMENT)
    looks = Looks(monkeypatch)
    acting = looks.during(limit.act(WHAT, 0))
    assert acting == looks.during(bench._act(EXPERIMENT, start))
    assert acting == (16 * SHAPE.games, [(SHAPE.games, False)] * 16)
    learning = looks.during(limit.learn(WHAT, 0))
    assert learning == looks.during(bench._learn(EXPERIMENT, start))
    samples, seen = learning
    assert samples == SHAPE.datapoints == 64
    epochs, minibatches = EXPERIMENT.algorithm.epochs, 64 // EXPERIMENT.algorithm.minibatch
    values = [32, 32, 4]  # 4 windows have 68 observations
    assert seen == [*((n, False) for n in values), *([(32, True)] * epochs * minibatches)]


def test_a_replay_is_sampled_as_often_as_the_preset_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dqn, precision = PRESETS["dqn-pong"], EXPERIMENT.network
    games = replace(dqn.games, game="pong")
    dqn = replace(dqn, games=games, network=precision, shape=replace(dqn.shape, random_steps=64))
    start, looks = begin(dqn), Looks(monkeypatch)
    # eight windows of 32 steps for 64 steps played, after a look at 33 observations of each
    assert looks.during(bench._learn(dqn, start)) == (64, [(8 * 33, False), (8 * 32, True)])
    one_step = replace(dqn, algorithm=DQN(n=3), replay=replace(dqn.replay, samples_per_insert=1.0))
    assert looks.during(bench._learn(one_step, start)) == (8, [(8 * 2, False), (8, True)])


def test_every_minibatch_is_a_step_and_a_pass_has_every_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: steps.append(len(picked)))
    picked: list[torch.Tensor] = []
    permutation = torch.randperm

    def noted(count: int) -> torch.Tensor:
        picked.append(permutation(count))
        return picked[-1]

    monkeypatch.setattr(torch, "randperm", noted)
    assert limit.learn(WHAT, 0)() == 64
    assert steps == [1, 1, 2, 2, 3, 3]
    assert [sorted(p.tolist()) for p in picked] == [list(range(64))] * 3


def test_games_are_made_as_gelada_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Asked:
        def __init__(self, **settings: Any) -> None:
            asked.append(settings)

        def get_action_set(self) -> list[Any]:
            return []

    monkeypatch.setattr(limit, "ALEVectorInterface", Asked)
    monkeypatch.setattr(atari, "ALEVectorInterface", Asked)
    limit.emulator(limit.What(game="breakout", size=84, games=3))
    atari.AtariGames(GameSettings(game="breakout", size=84), np.arange(3))
    ours, theirs = asked
    assert ours == theirs


def test_emulating_counts_every_step_of_every_game(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    real: Any = ALEVectorInterface

    class Counted:
        def __init__(self, **settings: Any) -> None:
            self.ale = real(**settings)
            self.reset, self.recv = self.ale.reset, self.ale.recv

        def send(self, actions: Any, strength: Any) -> None:
            sent.append(len(actions))
            self.ale.send(actions, strength)

    monkeypatch.setattr(limit, "ALEVectorInterface", Counted)
    assert limit.emulate(WHAT, 0)() == sum(sent) == 16 * WHAT.games
    assert bench._emulate(EXPERIMENT, 0)() == 16 * WHAT.games


def test_stacks_are_those_that_the_learner_sees() -> None:
    net = make_net(NetworkSettings(torso="tiny", width=16, stack=4))
    frames = limit.noise((3, 9 + 4, 10, 5), seed=1)
    ages = torch.full((3, 10), 4)
    every = torch.arange(30)
    rows = limit.assemble(net, frames)
    assert rows.is_contiguous()
    assert torch.equal(rows.permute(0, 3, 1, 2), Observations(net, frames, ages).pick(every))


def test_the_defaults_are_those_of_the_recipe() -> None:
    usual, recipe = limit.What(), PRESETS["pong"]
    assert (usual.torso, usual.size) == (recipe.network.torso, recipe.games.size)
    assert (usual.epochs, usual.minibatch) == (
        recipe.algorithm.epochs,
        recipe.algorithm.minibatch,
    )
    assert (usual.games, usual.windows, usual.length) == (
        recipe.shape.games,
        recipe.shape.windows,
        recipe.shape.length,
    )


def test_the_limit_is_that_of_stages_one_after_the_other() -> None:
    words = [str(BENCHMARKS / "limit.py"), "breakout", "--games", "2", "--seconds", "0.6", "--json"]
    (result,) = json.loads(fresh(*words))
    rates = [result[stage] for stage in ("emulate", "act", "learn")]
    assert min(rates) > 0
    assert result["limit"] == pytest.approx(1.0 / sum(1.0 / rate for rate in rates), rel=1e-3)
    assert (result["game"], result["games"], result["actions"]) == ("breakout", 2, 4)


def test_an_unknown_game_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        limit.parse(["pomg"])
    assert "unknown game 'pomg'" in capsys.readouterr().err
