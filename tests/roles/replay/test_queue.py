"""TrajectoryQueue: order, each once, drops, waiting; against a plain list."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from colobus.core import timing
from colobus.core.errors import Deadline
from colobus.core.timing import NotYet, PatientCall
from colobus.core.types import Batch, Version
from colobus.roles.replay.api import ReplayReader
from colobus.roles.replay.joined import JoinedQueues
from colobus.roles.replay.queue import Fifo, Rounds, TrajectoryQueue
from conftest import random_trajectory
from helpers.launching import assert_closed, on_a_thread
from helpers.streams import PLAYED, windows


def numbers(batch: Batch) -> list[int]:
    out: list[int] = batch.actions[:, 0].tolist()
    return out


class AgainstAList(RuleBasedStateMachine):
    """Fifo of windows does what a list of windows does, with room as in a worker."""

    count, capacity = 5, 100
    full: int | None = 3

    def __init__(self) -> None:
        super().__init__()
        select = Fifo(self.count)
        self.replay = TrajectoryQueue(select, self.capacity, patience=0, full=self.full)
        self.model: list[list[int]] = []  # windows left of each trajectory that waits
        self.added = 0

    @rule(games=st.integers(1, 12))
    def add(self, games: int) -> None:
        self.replay.add(windows(self.added, games))
        self.model.append(list(range(self.added, self.added + games)))
        self.model = self.model[-self.capacity :]
        self.added += games

    @rule()
    def sample(self) -> None:
        want = [window for waiting in self.model for window in waiting][: self.count]
        if len(want) < self.count:
            with pytest.raises(Deadline):
                self.replay.sample()
            return
        batch = self.replay.sample()
        assert batch.actions[:, 0].tolist() == want  # in order, whole, each once
        assert batch.weights.tolist() == [1.0] * self.count
        assert not batch.generations.any()
        for name in PLAYED:
            field, marks = getattr(batch, name).flatten(1), torch.tensor(want)[:, None]
            if name != "actions":
                marks = marks % (2 if field.dtype == torch.bool else 9)
            assert (field.long() == marks).all(), name
        left = ([w for w in waiting if w > want[-1]] for waiting in self.model)
        self.model = [waiting for waiting in left if waiting]

    @invariant()
    def there_is_room_while_few_wait(self) -> None:
        assert self.replay.depth == len(self.model)
        if len(self.model) < (self.full or self.capacity):
            self.replay.wait_for_room()
        else:
            with pytest.raises(Deadline, match="no room for 0 s: the learner takes nothing"):
                self.replay.wait_for_room()


class DropsTheOldest(AgainstAList):
    """There is room up to the capacity, and beyond it the oldest trajectory is dropped."""

    count, capacity = 2, 5
    full = None


TestAgainstAList: Any = AgainstAList.TestCase
TestDropsTheOldest: Any = DropsTheOldest.TestCase


@given(actors=st.integers(1, 4), rounds=st.integers(1, 4), data=st.data())
def test_rounds_come_by_actor_in_any_order(actors: int, rounds: int, data: st.DataObject) -> None:
    every = product(range(rounds), range(actors))
    sent = [windows(100 * r + a)._replace(actor=a, round=r) for r, a in every]
    replay = TrajectoryQueue(Rounds(actors), capacity=len(sent), patience=0)
    arrived: set[tuple[int, int]] = set()
    taken: list[list[int]] = []
    for trajectory in data.draw(st.permutations(sent)):
        replay.add(trajectory)
        arrived.add((trajectory.round, trajectory.actor))
        while all((len(taken), a) in arrived for a in range(actors)):
            taken.append(numbers(replay.sample()))
        with pytest.raises(Deadline):
            replay.sample()
    assert taken == [[100 * r + a for a in range(actors)] for r in range(rounds)]


def test_windows_are_cut_without_copies_and_keep_their_version() -> None:
    trajectory = random_trajectory(np.random.default_rng(0), games=8, number=6)
    stored = deque([trajectory])
    taken = Fifo(3).take(stored)
    assert taken is not None
    assert [len(t.actions) for t in (*taken, *stored)] == [3, 5]
    for part in (*taken, *stored):
        assert part.version == Version(0, 6)
        assert np.shares_memory(part.frames, trajectory.frames)


def test_who_waits_for_room_is_woken_by_a_sample_and_by_close() -> None:
    replay = TrajectoryQueue(Fifo(1), capacity=9, patience=60, full=1)
    out: list[int] = []

    def play() -> None:
        for number in range(3):
            replay.wait_for_room()
            replay.add(windows(number))
            out.append(number)

    playing = on_a_thread(play)
    assert [numbers(replay.sample()) for _ in range(3)] == [[0], [1], [2]]
    playing.result(60)
    assert out == [0, 1, 2]
    replay.add(windows(3))
    playing = on_a_thread(play)
    replay.close()
    assert_closed(partial(playing.result, 60))
    assert out == [0, 1, 2]
    assert_closed(replay.wait_for_room, replay.sample, lambda: replay.add(windows(4)))


def test_a_waiting_sample_is_woken_by_the_add_that_completes_its_batch() -> None:
    replay = TrajectoryQueue(Fifo(2), capacity=9, patience=60)
    sampled = on_a_thread(replay.sample)
    replay.add(windows(1))
    time.sleep(0.05)
    assert not sampled.done()
    replay.add(windows(2))
    assert numbers(sampled.result(60)) == [1, 2]


@pytest.mark.parametrize("own", [True, False])
def test_a_batch_that_comes_slowly_is_awaited(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    replay = TrajectoryQueue(Fifo(4), capacity=9, patience=60)
    reader: ReplayReader = replay if own else JoinedQueues([replay], patience=60)
    coming = [3, 2, 1, 0]

    def wait_for(_changed: Any, holds: Callable[[], bool], *_: object) -> bool:
        if coming:  # one comes in each patience
            replay.add(windows(coming.pop()))
        return holds()

    monkeypatch.setattr(timing, "wait_for", wait_for)
    assert numbers(reader.sample()) == [0, 1, 2, 3]
    coming.append(4)  # and nothing after that
    with pytest.raises(Deadline, match="no batch for 60 s: the actors send nothing"):
        reader.sample()


def test_a_call_from_another_process_waits_for_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again from its beginning each time that something comes."""
    replay = TrajectoryQueue(Fifo(4), capacity=9, patience=8)
    moment = [0.0]
    monkeypatch.setattr(timing, "now", lambda: moment[0])
    call = PatientCall(lambda: None)
    for number in range(4):  # in 20 seconds
        with pytest.raises(NotYet):
            call(replay.sample)
        replay.add(windows(number))
        moment[0] += 5.0
    assert numbers(call(replay.sample)) == [0, 1, 2, 3]
    vain = PatientCall(lambda: None)
    for _ in range(2):
        with pytest.raises(NotYet):
            vain(replay.sample)
        moment[0] += 5.0
    with pytest.raises(Deadline, match="no batch for 8 s: the actors send nothing"):
        vain(replay.sample)
