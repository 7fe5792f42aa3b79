"""A training that ends at the score of an evaluator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gelada.core.checkpoint import newest_checkpoint
from gelada.core.errors import GeladaError
from gelada.experiment.check import check
from gelada.experiment.presets import PRESETS, preset, with_target
from gelada.experiment.settings import Experiment, Sidecars
from gelada.roles.tracker import StopRule, TrackerSettings
from gelada.training.run import train


def experiment(stop: StopRule, **beside: Any) -> Experiment:
    return replace(
        PRESETS["dba3c-catch"],
        stop=stop,
        tracker=TrackerSettings(checkpoint_seconds=0.5, tensorboard=False),
        sidecars=Sidecars(**beside),
    )


@pytest.mark.processes
def test_the_evaluated_score_ends_the_run(tmp_path: Path) -> None:
    stop = StopRule(until_evaluated=-1.0)  # any score of Catch will do
    result = train(experiment(stop, evaluator=True), tmp_path / "run", log=lambda line: None)
    assert result.status.evaluated is not None
    assert result.status.evaluated >= -1.0
    files = list((tmp_path / "run" / "eval").glob("*-dba3c-50-greedy-seed1.json"))
    about = [json.loads(path.read_text()) for path in files]
    assert result.status.evaluated in [one["mean"] for one in about]
    assert {one["episodes"] for one in about} == {50}
    assert {one["protocol"] for one in about} == {"dba3c"}
    _, checkpoint, passed_over = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert passed_over == []
    assert checkpoint.version.number >= max(one["version"] for one in about)


@pytest.mark.processes
def test_a_score_that_is_not_reached_ends_nothing(tmp_path: Path) -> None:
    stop = StopRule(steps=30_000, until_evaluated=2.0)  # Catch's best is 1
    result = train(experiment(stop, evaluator=True), tmp_path / "run", log=lambda line: None)
    assert result.status.steps >= 30_000


def test_the_published_targets() -> None:
    def goal(name: str) -> object:
        base = preset(name)[0]
        base = replace(base, stop=StopRule(until_evaluated="auto"))
        return with_target(base).stop.until_evaluated

    games = ("breakout", "pong", "riverraid", "seaquest", "space_invaders")
    assert [goal(game) for game in games] == [300, 10, 4000, 1830, 700]
    with pytest.raises(GeladaError, match=r"boxing has no target score .*breakout, pong"):
        goal("boxing")


def test_a_target_without_an_evaluator_is_refused() -> None:
    with pytest.raises(GeladaError, match=r"--until-evaluated 1: .*--evaluator"):
        check(experiment(StopRule(until_evaluated=1.0)))
