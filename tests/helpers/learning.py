"""Catch learned to a score, for the tests of every algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from colobus.experiment.settings import Experiment
from colobus.roles.tracker import Status, TrackerSettings
from colobus.training.run import Result, train
from helpers.outcomes import go_on, place_inline

QUIET = TrackerSettings(tensorboard=False)


def learn(
    experiment: Experiment, folder: Path, score: float = 0.9, steps: int = 150_000, **more: Any
) -> Result:
    """Train; the mean of 50 games, at random -0.6, must reach ``score`` before so many steps."""
    given = {"log": lambda _: None} | more
    result = train(replace(experiment, tracker=QUIET), folder, **given)
    assert not result.interrupted
    assert result.status.best is not None
    assert result.status.best >= score
    assert result.status.steps < steps
    return result


def learn_in_turns(experiment: Experiment, steps: int = 150_000) -> Status:
    """Train with roles that take turns, so that a seed gives the same run each time (`learn`)."""
    place = place_inline(replace(experiment, tracker=QUIET))
    go_on(place, lambda: any(role.finished for role in place.active))
    status: Status = place.roles["tracker"].status()
    assert status.best is not None
    assert status.best >= 0.9
    assert status.steps < steps
    return status
