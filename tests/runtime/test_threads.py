"""Threads: what happens when a role raises, hangs, waits too long or is stopped.

At the end whole runs of workers in which a role raises once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from colobus.core.errors import Closed, Deadline, Diverged, RoleFailed, Stalled
from colobus.core.timing import Clock
from colobus.core.types import Gradient, Version
from colobus.envs.catch import CatchGames
from colobus.envs.single import playing
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, ReuseSettings
from colobus.roles.parameters.server import ParameterServer
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.tracker import Tracker
from colobus.runtime.graph import RoleGraph
from colobus.runtime.threads import PAUSES, RESTARTS, SOUND_SECONDS, Threads
from conftest import catch, distributed_catch, dqn, reshaped
from helpers.outcomes import Outcome, assert_same, place_threads, run_to_the_end, threads
from helpers.servers import server_of

Work = Callable[["Role"], object]


class Role:
    def __init__(self, name: str, work: Work) -> None:
        self.name, self.work = name, work
        self.clock, self.finished = Clock(), False
        self.restarts = 0

    def step(self) -> None:
        with self.clock("work"):
            self.work(self)
        self.clock.steps += 1


class Restartable(Role):
    def restart(self) -> None:
        self.restarts += 1


def place_of(*roles: tuple[type[Role], str, Work], deadline: float = 60.0) -> Any:
    graph = RoleGraph()
    for kind, name, work in roles:
        graph.add(name, "actor", "main", kind, name, work)
    lines: list[str] = []
    place = Threads(graph.build(), deadline, lines.append)
    return place, lines


def ended(kind: type[Role], name: str, work: Work) -> Any:
    place, lines = place_of((kind, name, work))
    place.start()
    assert place.wait(60)
    return place, lines


def fail_until(count: int) -> Work:
    def work(role: Role) -> None:
        if role.restarts < count:
            raise OSError(f"broken {role.restarts}")
        role.finished = True

    return work


def test_a_role_that_raises_is_restarted_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.runtime.threads.PAUSES", (0.0,) * RESTARTS)
    place, lines = ended(Restartable, "actor-7", fail_until(RESTARTS))
    place.check()
    assert place.stop() == []
    assert place.roles["actor-7"].restarts == RESTARTS
    assert len(lines) == RESTARTS
    assert lines[0].startswith("actor-7 raised at test_threads.py:")
    assert lines[0].endswith(": OSError: broken 0; restarted (1 of 5)")


def test_an_environment_that_raises_is_named() -> None:
    def work(role: Role) -> None:
        with playing("mine:Rooms"):
            fail_until(1)(role)

    place, lines = ended(Restartable, "actor-7", work)
    place.stop()
    (line,) = lines
    assert line.startswith("actor-7: mine:Rooms raised at test_threads.py:")
    assert line.endswith(": OSError broken 0; restarted (1 of 5)")


def test_a_role_that_raises_too_often_ends_the_run_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is wrong may pass: a disk, a library that is being replaced."""
    place, _ = place_of((Restartable, "actor-7", fail_until(RESTARTS + 1)))
    wait = Mock(return_value=False)
    monkeypatch.setattr(place._stopping, "wait", wait)
    place.start()
    assert place.wait(60)
    with pytest.raises(RoleFailed, match=r"^actor-7 failed 6 times at .*: OSError: broken 5$"):
        place.check()
    assert place.stop() == []
    assert [waited.args[0] for waited in wait.call_args_list] == sorted(PAUSES)
    assert PAUSES[0] < PAUSES[-1]


class Refusing(Role):
    def restart(self) -> bool:
        return False


@pytest.mark.parametrize("kind", [Role, Refusing])
def test_a_role_that_cannot_be_restarted_ends_the_run_at_once(kind: type[Role]) -> None:
    place, lines = ended(kind, "learner-0", fail_until(1))
    with pytest.raises(RoleFailed, match=r"^learner-0 failed at .*: OSError: broken 0$"):
        place.check()
    assert lines == []


class Leaving(Role):
    left = False

    def leave(self) -> None:
        self.left = True


@pytest.mark.parametrize("when", ["at its beginning", "after its work", "after an error"])
def test_a_device_that_fails_ends_the_run(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that has failed says so again when its stream is waited for."""

    @contextmanager
    def own_stream(_: torch.device) -> Iterator[None]:
        try:
            if when != "at its beginning":
                yield
        finally:
            raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr("colobus.runtime.threads.own_stream", own_stream)
    place, _ = ended(Leaving, "learner-0", fail_until(when == "after an error"))
    with pytest.raises(RoleFailed, match=r"^learner-0 failed at .*: RuntimeError: CUDA error: "):
        place.check()
    assert place.stop() == []
    assert place.roles["learner-0"].left


NO_ROOM = r"^actor-1 needs more memory than there is, at .*--games"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (Deadline("no batch for 3 s"), Stalled, "^actor-1: no batch for 3 s$"),
        (Diverged("kl became nan"), Diverged, "^kl became nan$"),
        (MemoryError(), RoleFailed, NO_ROOM),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), RoleFailed, NO_ROOM),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), RoleFailed, NO_ROOM),
    ],
)
def test_after_errors_that_end_a_run_nothing_is_tried_again(
    error: Exception, kind: type[Exception], message: str
) -> None:
    place, lines = ended(Restartable, "actor-1", Mock(side_effect=error))
    with pytest.raises(kind, match=message):
        place.check()
    assert lines == []
    assert place.roles["actor-1"].restarts == 0


def test_a_role_whose_wait_is_closed_just_ends() -> None:
    place, lines = ended(Role, "actor-1", Mock(side_effect=Closed))
    place.check()
    assert lines == []


def look_for(place: Threads, seconds: int, now: list[float]) -> None:
    """Check as `train` does while so many seconds pass, but at once."""
    for _ in range(seconds):
        place.check()
        now[0] += 1.0
    place.check()


def test_a_role_that_hangs_is_named_with_its_stage_but_one_that_waits_is_not(
    now: list[float],
) -> None:
    released = threading.Event()

    def stuck_in(stage: str) -> Work:
        def work(role: Role) -> None:
            if role.clock.steps == 1:
                with role.clock(stage):
                    released.wait(60)

        return work

    place, _ = place_of(
        (Role, "waiting", stuck_in("wait for parameters")),
        (Role, "starting", lambda _: released.wait(60)),
        (Role, "actor-3", stuck_in("emulate")),
        deadline=100.0,
    )
    place.start()
    stages = ["wait for parameters", "work", "emulate"]
    while [role.clock.stage for role in place.active] != stages:
        place.wait(0.01)
    with pytest.raises(Stalled, match=r"^actor-3 has hung in 'emulate' for \d+ s \(deadline 100 "):
        look_for(place, 110, now)
    assert sorted(place.stop(patience=0.01)) == ["actor-3", "starting", "waiting"]
    released.set()
    assert place.stop() == []


def test_a_process_that_was_stopped_is_not_called_hung(now: list[float]) -> None:
    """SIGSTOP, a laptop's lid, a paused machine: nobody looked and nobody worked."""
    goes_on = threading.Event()
    place, _ = place_of((Role, "actor-0", lambda _: goes_on.wait(30)), deadline=20.0)
    role = place.active[0]
    role.clock.steps = 1  # the first step has more time
    now[0] += 0.5  # the stage begins between two looks, as nearly all do
    place.start()
    while role.clock.stage != "work":
        pass
    now[0] += 3600.0
    place.check()
    for _ in range(4):
        now[0] += 4.0
        place.check()
    now[0] += 3600.0  # nobody looks
    place.check()
    now[0] += 4.0
    place.check()
    now[0] += 4.0
    with pytest.raises(Stalled, match="actor-0 has hung in 'work' for 24 s"):
        place.check()
    goes_on.set()
    place.stop()


def test_restarts_long_ago_do_not_count(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.runtime.threads.PAUSES", (0.0,) * RESTARTS)

    def work(role: Role) -> None:
        now[0] += SOUND_SECONDS + 1
        if role.restarts < 3 * RESTARTS:
            raise OSError("now and then")
        role.finished = True

    place, lines = place_of((Restartable, "actor-0", work))
    place.start()
    while not place.wait(1.0):
        pass
    assert place.failure is None
    assert len(lines) == 3 * RESTARTS
    assert all("(1 of 5)" in line for line in lines)


WORKERS = distributed_catch(20, workers=3)


def run_with_an_error(experiment: Experiment, who: str) -> Outcome:
    """Run an experiment in which a method raises once; one line says of whom, and that is all."""
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    (line,) = lines
    assert line.startswith(who)
    assert line.endswith(": RuntimeError: by accident; restarted (1 of 5)")
    return found


def test_an_actor_that_raises_is_restarted_and_its_worker_goes_on(fail_once: Any) -> None:
    fail_once(CatchGames, "step", 300)
    found = run_with_an_error(WORKERS, "actor-")
    assert found.version == Version(0, 20)
    assert found.status.steps == 504 + 20 * 3 * 72  # the lost trajectory was played anew
    assert found.status.workers is not None
    assert found.status.workers.traffic.dropped == 0


CENTRAL = catch(504 + 10 * 512, deterministic=True)
"""One learner, whose rounds have several minibatches."""

RUNS: dict[str, Experiment] = {
    "workers": WORKERS,
    "appo": CENTRAL,
    "three servers": reshaped(CENTRAL, servers=3),
    "broadcast": reshaped(CENTRAL, servers=2, broadcast_every=3),
    "used again": replace(CENTRAL, reuse=ReuseSettings(0.5, 5, 3, "random", ramp_up=True)),
    "dqn": dqn(CENTRAL, prioritized=True),
    "pqn": replace(CENTRAL, algorithm=PRESETS["pqn-catch"].algorithm),
}


@functools.cache
def oracle_of(name: str) -> Outcome:
    return threads(RUNS[name])


BATCH = CENTRAL.shape.actors * CENTRAL.shape.games * CENTRAL.shape.length
PARTS = CENTRAL.algorithm.epochs * -(-BATCH // CENTRAL.algorithm.minibatch)
"""Minibatches of a round, all epochs together."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "where", "at"),
    [
        ("workers", "loss", 31),
        ("workers", "push", 31),
        ("workers", "pull", 31),
        ("workers", "report", 31),
        ("appo", "loss", 7 * PARTS + 1),  # before the first step of a round
        ("appo", "loss", 7 * PARTS + 3),
        ("appo", "push", 7 * PARTS + 3),
        ("appo", "push", 8 * PARTS),  # the step that makes the version
        ("appo", "report", 5),
        ("three servers", "loss", 8 * PARTS),
        ("three servers", "push", 3 * (7 * PARTS + 1) + 2),  # some have stepped, others have not
        ("broadcast", "loss", 8 * PARTS),  # nobody can pull the version before
        ("used again", "loss", 30),
        ("used again", "report", 7),
        ("dqn", "loss", 20),
        ("dqn", "push", 21),
        ("dqn", "update", 22),
        ("pqn", "loss", 20),
    ],
)
def test_a_learner_that_raises_begins_its_round_again_as_if_nothing_had_been(
    fail_once: Any, name: str, where: str, at: int
) -> None:
    experiment, oracle = RUNS[name], oracle_of(name)
    kinds: dict[str, Any] = {"report": Tracker, "update": ReplayBuffer}
    kinds |= {"pull": ParameterServer, "push": ParameterServer}
    fail_once(kinds.get(where, type(experiment.algorithm)), where, at)
    who = "learner-" if name == "workers" else "learner-0 raised at "
    assert_same(oracle, run_with_an_error(experiment, who))


def test_a_server_whose_only_step_was_interrupted_cannot_go_back(fail_once: Any) -> None:
    server = server_of(torch.zeros(64), version=Version(0, 3))
    fail_once(server.optimizer, "step", 1)
    with pytest.raises(RuntimeError, match="by accident"):
        server.push(Gradient(0, Version(0, 3), 0, 1, 1, 0.1, torch.ones(64)))
    assert not server.go_back(Version(0, 3))


def test_a_learner_whose_servers_stand_at_several_versions_ends_the_run(fail_once: Any) -> None:
    # the last but one server of a round's last gradient
    fail_once(ParameterServer, "push", 3 * PARTS * 5 - 1)
    place = place_threads(RUNS["three servers"], [])
    with pytest.raises(RoleFailed, match="by accident"):
        run_to_the_end(place)
    place.stop()
    assert not place.roles["learner-0"].save_last()
