"""Environments of Gymnasium are learned: vectors, and small pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

import gelada


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "goal", "steps"),
    [
        ("CartPole-v1", 475.0, 400_000),
        ("minigrid:MiniGrid-Empty-5x5-v0", 0.9, 150_000),
    ],
)
def test_an_environment_is_learned(env: str, goal: float, steps: int, tmp_path: Path) -> None:
    result = gelada.train(
        env,
        tmp_path / "run",
        steps=steps,
        until_score=goal,
        tensorboard=False,
        log=lambda _line: None,
    )
    assert result.score is not None
    assert result.score >= goal
    evaluation = gelada.evaluate(result.folder, episodes=20, policy="greedy")
    assert evaluation.mean >= 0.95 * goal
