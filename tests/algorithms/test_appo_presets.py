"""The families of IMPALA, APPO and IMPACT learn Catch, and so does a target without a lag."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import colobus
from colobus.core.checkpoint import newest_checkpoint
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from conftest import catch, tuned
from helpers.learning import learn
from helpers.outcomes import inline


@pytest.mark.slow
@pytest.mark.parametrize("name", ["impala-catch", "appo-catch", "impact-catch"])
def test_the_preset_learns_catch(tmp_path: Path, name: str) -> None:
    experiment = replace(PRESETS[name], deterministic=True)
    result = learn(experiment, tmp_path / "run")
    _, checkpoint, _ = newest_checkpoint(result.folder / "checkpoints")
    target = experiment.algorithm.target_every > 0  # the servers keep it
    saved = any(name.startswith("optimizer/target/") for name in checkpoint.tensors)
    assert saved == target


def at_lag_0(steps: int, target_every: int) -> Experiment:
    base = catch(steps, deterministic=True)
    algorithm = tuned(base, advantage="vtrace", target_every=target_every)
    return replace(base, algorithm=algorithm, shape=replace(base.shape, ahead=0))


def test_a_target_that_is_copied_at_every_version_is_vtrace_ppo_at_lag_0() -> None:
    """Actors have then played with the target policy itself, up to the rounding of a batch."""
    plain, target = (inline(at_lag_0(512 + 5 * 512, every)) for every in (0, 1))
    moved = (plain.parameters - inline(at_lag_0(512, 0)).parameters).abs().max()
    near = 0.02 * moved.item()
    torch.testing.assert_close(target.parameters, plain.parameters, rtol=0, atol=near)
    older = inline(at_lag_0(512 + 5 * 512, 4))  # a target that lags behind is something else
    assert (older.parameters - plain.parameters).abs().max() > 0.1 * moved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "goal", "steps"),
    [
        ("CartPole-v1", 475.0, 400_000),
        ("helpers.gym_toys:doors_by_key", 24.0, 60_000),  # a closed door is an error
        ("dqn-helpers.gym_toys:doors_by_info", 23.5, 60_000),
        ("pqn-helpers.gym_toys:doors_in_pictures", 19.0, 60_000),
        ("a3c-helpers.gym_toys:many_doors", 24.0, 60_000),
        ("minigrid:MiniGrid-Empty-5x5-v0", 0.9, 150_000),
    ],
)
def test_an_environment_is_learned(env: str, goal: float, steps: int, tmp_path: Path) -> None:
    words: Any = {"tensorboard": False, "log": lambda _line: None}
    result = colobus.train(env, tmp_path / "run", steps=steps, until_score=goal, **words)
    assert result.score is not None
    assert result.score >= goal
    evaluation = colobus.evaluate(result.folder, episodes=20, policy="greedy")
    assert evaluation.mean >= 0.95 * goal
