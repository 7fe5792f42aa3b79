"""A process that was stopped for an hour (SIGSTOP, a paused machine) has not waited for an hour."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from gelada.core.errors import Deadline, Lost
from gelada.core.types import Batch
from gelada.roles.replay.buffer import ReplayBuffer
from gelada.roles.replay.in_rounds import BufferInRounds
from gelada.roles.replay.joined import JoinedQueues, ShardedReplay
from gelada.roles.replay.queue import TrajectoryQueue
from gelada.roles.replay.rate_limiter import MinimumSize
from gelada.roles.replay.sampling import Uniform
from gelada.roles.update_schedule import Sampled
from helpers.streams import make_store

PATIENCE = 20.0


class Away:
    """A queue that is lost with its process."""

    def sample(self, _: float | None = None) -> Batch:
        raise Lost("it is gone")


def in_rounds() -> Callable[[], Batch]:
    limiter = MinimumSize(60)
    store = make_store(200, streams=4, sampling=Uniform(), limiter=limiter, seed=5)
    return BufferInRounds(store, range(2), Sampled(32, 60, 0.75, 8), PATIENCE).sample


def joined() -> Callable[[], Batch]:
    return JoinedQueues([cast("TrajectoryQueue", Away())], PATIENCE).sample


def sharded() -> Callable[[], Batch]:
    stores: list[ReplayBuffer] = [make_store(200, limiter=MinimumSize(60))]
    return ShardedReplay(stores, 1, 0, PATIENCE).sample


@pytest.mark.parametrize("make", [in_rounds, joined, sharded])
def test_an_hour_in_which_nothing_ran_is_no_waiting(
    make: Callable[[], Callable[[], Batch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait takes as long as was asked for, but the second one an hour."""
    now, waits = [1000.0], list[float]()

    def pass_by(seconds: float) -> None:
        waits.append(seconds)
        now[0] += 3600.0 if len(waits) == 2 else seconds

    def wait_for(_: Any, holds: Callable[[], object], timeout: float | None = None) -> object:
        assert timeout is not None
        if not holds() and timeout:
            pass_by(timeout)
        return holds()

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", pass_by)
    monkeypatch.setattr(threading.Condition, "wait_for", wait_for)
    with pytest.raises(Deadline):
        make()()
    assert max(waits) <= 5.0
    assert sum(waits) >= PATIENCE - 5.0
