"""Who goes first: priorities of threads, as the kernel has them."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from colobus.core.timing import Clock
from colobus.roles.actor import Actor
from colobus.roles.learner import Learner
from colobus.runtime.system import ACTORS
from colobus.runtime.threads import Threads
from colobus.training.start import open_games
from conftest import short_pong

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have no own priority")


def niceness(thread: int = 0) -> int:
    """Return that of a thread (0: this one), from the kernel's own file."""
    stat = Path(f"/proc/self/task/{thread or threading.get_native_id()}/stat")
    return int(stat.read_text(encoding="ascii").rsplit(")", 1)[1].split()[16])


def threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def as_nice_as_actors(before: int) -> int:
    """Return the niceness of actors; that of the tests themselves may be high already."""
    return min(before + ACTORS, 19)


class Looking:
    def __init__(self, name: str) -> None:
        self.name, self.clock, self.finished = name, Clock(), False

    def step(self) -> None:
        self.seen, self.finished = niceness(), True


class Nice(Looking):
    niceness = Actor.niceness


def test_actors_let_learners_go_first_and_nobody_else_is_nice() -> None:
    assert Actor.niceness == ACTORS > 0
    assert not hasattr(Learner, "niceness")
    before = niceness()
    actor, learner = Nice("actor-0"), Looking("learner-0")
    place = Threads({role.name: role for role in (actor, learner)})
    place.start()
    while not (actor.finished and learner.finished):
        place.wait(0.01)
    assert not place.stop()
    assert (actor.seen, learner.seen) == (as_nice_as_actors(before), before)
    assert niceness() == before


@pytest.mark.slow
def test_the_emulators_threads_are_nicer_and_the_caller_is_not() -> None:
    before, known = niceness(), threads()
    games = open_games(short_pong(1))
    for one in games:
        one.reset()
    emulators = []
    for thread in threads() - known:
        # the thread that opened them may just be going
        with suppress(FileNotFoundError, ProcessLookupError):
            emulators.append(niceness(thread))
    assert len(emulators) >= len(games) > 0
    assert set(emulators) == {as_nice_as_actors(before)}
    assert niceness() == before
