"""The end of a run on a busy machine: roles that are late are waited for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from conftest import catch
from gelada.core.errors import Stalled
from gelada.roles.actor import Actor
from gelada.training import run

LATE = 0.3
"""Seconds that a rollout takes longer."""


@pytest.fixture
def slow_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Actor.step

    def step(self: Actor) -> None:
        time.sleep(LATE)
        quick(self)

    monkeypatch.setattr(Actor, "step", step)
    monkeypatch.setattr(run, "STOP_SECONDS", LATE / 10)


def test_an_actor_in_the_middle_of_a_rollout_is_waited_for(
    tmp_path: Path, slow_actors: None
) -> None:
    result = run.train(catch(3_000), tmp_path / "run", log=lambda _: None)
    assert result.saved
    assert result.steps >= 3_000


def test_one_that_does_not_come_back_is_named(
    tmp_path: Path, slow_actors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LATE_SECONDS", LATE / 10)
    said = r"^actor-\d(, actor-\d)? did not stop; everything learned is saved$"
    with pytest.raises(Stalled, match=said):
        run.train(catch(3_000), tmp_path / "run", log=lambda _: None)
    time.sleep(2 * LATE)  # its threads end
