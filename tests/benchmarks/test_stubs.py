"""Stubs in the place of stages: they do nothing, and all else goes on as ever."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.lib.faults import Sleeper
from benchmarks.lib.stubs import (
    GAME_STEPS,
    LEARNER,
    READY,
    DummyGames,
    main,
    measure,
    parse_dummies,
    trained_with,
)
from colobus.core.errors import ColobusError
from colobus.envs.api import GameSettings
from colobus.envs.make import make_games
from colobus.experiment.settings import Experiment
from colobus.ops.flat import FlatParameters
from colobus.runtime.graph import RoleGraph
from colobus.training.start import begin, make_network
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, short_pong

PONG = short_pong(1)


def test_words_after_stub() -> None:
    assert parse_dummies("emulator") == ("emulator",)
    assert parse_dummies("learner,emulator") == ("emulator", "learner")
    for text in ("lerner", "emulator,act", "emulator,", ""):
        with pytest.raises(ColobusError, match=f"^--dummy {text}: no stage .*known: emulator, l"):
            parse_dummies(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        GameSettings(),
        GameSettings(size=84, colour=True),
        GameSettings(game="catch", size=10),
    ],
)
def test_made_up_steps_look_like_real_ones(settings: GameSettings) -> None:
    seeds = np.array([3, 4, 5])
    real, dummy = make_games(settings, seeds), DummyGames(settings, seeds)
    assert dummy.count == real.count
    assert dummy.frame_shape == real.frame_shape
    assert dummy.actions == len(dummy.action_names) == (3 if settings.game == "catch" else 18)
    frames, made_up = real.reset(), dummy.reset()
    assert (made_up.shape, made_up.dtype) == (frames.shape, frames.dtype)
    actions = np.zeros(3, dtype=np.int64)
    for name, value in real.step(actions)._asdict().items():
        other = getattr(dummy.step(actions), name)
        if value is None:  # such as idle steps, which only some environments have
            assert other is None
            continue
        assert (other.shape, other.dtype) == (value.shape, value.dtype), name


def test_made_up_steps_are_noise_that_comes_again() -> None:
    seeds = np.arange(1, 257)
    dummy = DummyGames(GameSettings(size=8), seeds)
    actions = np.zeros(256, dtype=np.int64)
    steps = [dummy.step(actions) for _ in range(READY + 1)]
    assert steps[0] is steps[READY]
    over = np.mean([step.over for step in steps[:READY]])
    assert over == pytest.approx(1 / GAME_STEPS, rel=0.4)
    rewards = np.concatenate([step.rewards for step in steps[:READY]])
    assert set(rewards.tolist()) == {-1.0, 0.0, 1.0}
    assert (rewards != 0).mean() == pytest.approx(0.04, rel=0.2)
    assert not any(step.truncated.any() or step.forced.any() for step in steps)
    assert all((step.terminated == step.over).all() for step in steps)


@pytest.mark.slow
def test_with_a_stub_emulator_no_game_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an emulator was loaded")

    monkeypatch.setattr("colobus.envs.atari.ALEVectorInterface", refuse)
    with pytest.raises(AssertionError, match="an emulator was loaded"):
        trained_with((), PONG, 1.0)
    result = measure(PONG, 1.5, ("emulator",))
    assert result["dummy"] == ["emulator"]
    assert result["dummy_steps_per_s"] > 0


def roles_of(experiment: Experiment, *dummies: str) -> dict[str, Any]:
    """Train with stubs, on a busy machine for longer; return the roles as they ended."""
    found: dict[str, Any] = {}

    class Kept(RoleGraph):
        def build(self, *args: Any) -> dict[str, Any]:
            found.update(super().build(*args))
            return found

    def make(*args: Any, **kwargs: Any) -> RoleGraph:
        return Kept(make_graph(*args, **kwargs).nodes)

    for seconds in (2.0, 8.0, 32.0):
        trained_with(dummies, experiment, seconds, make)
        if found["learner-0"].clock.steps >= 2:
            break
    return found


def first_values(experiment: Experiment, make: Any = make_games) -> torch.Tensor:
    """Return the parameters that a run begins with: they come from the seed."""
    games = [make(experiment.games, np.arange(1, experiment.shape.games + 1))]
    shape = replace(experiment.shape, actors=1, workers=min(experiment.shape.workers, 1))
    start = begin(replace(experiment, shape=shape), games)
    return FlatParameters(make_network(experiment, start)).values


def values_of(roles: dict[str, Any]) -> torch.Tensor:
    servers = [role for name, role in roles.items() if name.startswith("server-")]
    return torch.cat([server.state()[0].values for server in servers])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pong", "catch", "workers"])
def test_with_a_stub_learner_versions_go_on_and_parameters_stay(name: str) -> None:
    workers = replace(distributed_catch(1), deterministic=False)
    experiment = {"pong": PONG, "catch": catch(1), "workers": workers}[name]
    roles = roles_of(experiment, LEARNER)
    learner = roles["learner-0"]
    assert isinstance(learner.compute, Sleeper)
    version = roles["server-0"].state()[0].version.number
    assert version >= 2
    assert torch.equal(values_of(roles), first_values(experiment))
    if name != "workers":  # there the two learners' gradients make a version together
        assert version == learner.clock.steps
        first = experiment.shape.random_steps
        status = roles["tracker"].status()
        assert status.steps == first + version * experiment.shape.datapoints


def test_a_real_learner_changes_parameters() -> None:
    roles = roles_of(catch(1))
    assert not torch.equal(values_of(roles), first_values(catch(1)))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["words", "json"])
def test_a_rate_with_stubs_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    def shorter(dummies: Sequence[str], experiment: Experiment, seconds: float) -> Any:
        assert seconds == 6.0
        return trained_with(dummies, experiment, 1.5)

    monkeypatch.setattr("benchmarks.lib.stubs.trained_with", shorter)
    words = ["catch", "--dummy", "emulator,learner", "--seconds", "6"]
    assert main([*words, "--json"] if form == "json" else words) == 0
    said = capsys.readouterr().out
    if form == "words":
        assert "with a stub for the emulator and the learner" in said
        assert "no rate of training" in said
        assert "%" not in said
        return
    result = json.loads(said)
    assert result["dummy"] == ["emulator", "learner"]
    assert result["dummy_steps_per_s"] > 0
    assert not [key for key in result if "limit" in key or "achieved" in key]
