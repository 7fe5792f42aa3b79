"""Several trajectory queues as one: order, parts, and queues that are lost and come back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import random_trajectory, stand_in
from gelada.core.errors import Closed, Deadline, Lost
from gelada.core.types import Batch
from gelada.roles.replay.joined import JoinedQueues
from gelada.roles.replay.queue import Fifo, Rounds, TrajectoryQueue


def queues(count: int) -> list[TrajectoryQueue]:
    return [TrajectoryQueue(Fifo(1), 9, 0.0) for _ in range(count)]


def test_a_batch_is_the_parts_in_the_order_of_the_queues() -> None:
    rng = np.random.default_rng(1)
    sent = [random_trajectory(rng, actor=a, games=2) for a in range(6)]
    one = TrajectoryQueue(Rounds(6), 9, 0.0)
    several = [TrajectoryQueue(Rounds(2, first=first), 9, 0.0) for first in (0, 2, 4)]
    for trajectory in reversed(sent):
        one.add(trajectory)
        several[trajectory.actor // 2].add(trajectory)
    want, found = one.sample(), JoinedQueues(several, 0.0).sample()
    for name in Batch._fields:
        if name != "keys":
            assert torch.equal(getattr(want, name), getattr(found, name)), name
    assert len(set(found.keys.tolist())) == 12


def test_nothing_is_handed_out_before_each_queue_has_its_part() -> None:
    several = queues(2)
    several[0].add(random_trajectory(np.random.default_rng(1)))
    with pytest.raises(Deadline, match="no batch for 0 s: the actors send nothing"):
        JoinedQueues(several, 0.0).sample()
    several[1].close()
    with pytest.raises(Closed):
        JoinedQueues(several[1:], 0.0).sample()


class Away:
    """A queue whose process may be lost."""

    def __init__(self) -> None:
        self.queue, self.lost = TrajectoryQueue(Fifo(1), 9, 0.0), False
        self.asked: list[float | None] = []

    def sample(self, patience: float | None = None) -> Batch:
        self.asked.append(patience)
        if self.lost:
            raise Lost("replay-1 is gone")
        return self.queue.sample(patience)


def test_others_go_on_while_a_queue_is_lost_and_it_comes_back() -> None:
    (here,), away = queues(1), Away()
    joined = JoinedQueues([here, stand_in(away)], 5.0)

    def feed(number: int, *to: TrajectoryQueue) -> None:
        for queue in to:
            queue.add(random_trajectory(np.random.default_rng(number), games=2, number=number))

    def versions() -> list[int]:
        found: list[int] = joined.sample().versions.tolist()
        return found

    feed(1, here, away.queue)
    assert versions() == [1, 1, 1, 1]
    away.lost = True
    feed(2, here)
    assert versions() == [2, 2]
    away.lost, away.queue = False, TrajectoryQueue(Fifo(1), 9, 0.0)
    feed(3, here)
    assert versions() == [3, 3]  # there, but its actors have sent nothing yet: nobody waits
    feed(4, here, away.queue)
    assert versions() == [4, 4, 4, 4]
    assert away.asked == [5.0, 5.0, 0.0, 0.0]
    feed(5, here)
    joined = JoinedQueues([here, stand_in(away)], 0.0)
    with pytest.raises(Deadline):  # now it is waited for again
        joined.sample()


def test_all_lost_is_a_deadline() -> None:
    away = Away()
    away.lost = True
    with pytest.raises(Deadline, match="no batch for 0 s: all queues are lost"):
        JoinedQueues([stand_in(away), stand_in(away)], 0.0).sample()
