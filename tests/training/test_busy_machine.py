"""The end of a run on a busy machine: roles that are late are waited for."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from conftest import catch
from gelada.core.errors import Stalled
from gelada.roles.actor import Actor
from gelada.roles.learner import Learner
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


def test_those_that_do_not_come_back_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both actors are in a rollout that does not end when the learner has learned enough."""
    play, learn = Actor.step, Learner.step
    rounds, everyone, goes_on = 3, threading.Barrier(3), threading.Event()

    def step(self: Actor) -> None:
        if self.clock.steps == rounds:
            everyone.wait(60)
            goes_on.wait(60)
        play(self)

    def last_step(self: Learner) -> None:
        learn(self)
        if self.finished:
            everyone.wait(60)

    monkeypatch.setattr(Actor, "step", step)
    monkeypatch.setattr(Learner, "step", last_step)
    monkeypatch.setattr(run, "STOP_SECONDS", 0.5)
    monkeypatch.setattr(run, "LATE_SECONDS", 0.5)
    said = "^actor-0, actor-1 did not stop; everything learned is saved$"
    with pytest.raises(Stalled, match=said):
        run.train(catch(512 + rounds * 512), tmp_path / "run", log=lambda _: None)
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("actor-"):
            thread.join(60)
