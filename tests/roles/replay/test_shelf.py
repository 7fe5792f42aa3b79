"""A shelf of prepared batches: their order, its bounds, and who waits."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from conftest import random_trajectory, stand_in
from gelada.core.errors import Closed, Deadline
from gelada.core.types import Batch
from gelada.roles.prefetch import Loader, Shelf
from gelada.roles.replay.queue import as_batch


class Numbered:
    """A replay whose batches are numbered by their keys."""

    depth = 7

    def __init__(self) -> None:
        self.sampled = 0
        self.updates: list[Any] = []
        self._batch = as_batch([random_trajectory(np.random.default_rng(1))])

    def sample(self) -> Batch:
        self.sampled += 1
        return self._batch._replace(keys=torch.tensor([self.sampled]))

    def update(self, *everything: Any) -> None:
        self.updates.append(everything)


def number(batch: Batch) -> int:
    return int(batch.keys)


def test_batches_come_in_the_order_of_their_tickets() -> None:
    shelf = Shelf(stand_in(Numbered()), slots=4, patience=20.0)
    rng = np.random.default_rng(3)

    def load() -> None:
        for _ in range(25):
            ticket, batch = shelf.take()
            time.sleep(rng.uniform(0, 2e-3))
            shelf.put(ticket, batch)

    loaders = [threading.Thread(target=load) for _ in range(4)]
    for loader in loaders:
        loader.start()
    assert [number(shelf.sample()) for _ in range(100)] == list(range(1, 101))
    for loader in loaders:
        loader.join()


def test_no_more_is_taken_than_there_are_slots() -> None:
    replay = Numbered()
    shelf = Shelf(stand_in(replay), slots=2, patience=0.0)
    loader = Loader(0, shelf)
    loader.step()
    loader.step()
    with pytest.raises(Deadline, match=r"^no free slot for 0 s$"):
        loader.step()
    assert replay.sampled == loader.clock.steps == 2
    assert number(shelf.sample()) == 1
    loader.step()
    assert [number(shelf.sample()) for _ in range(2)] == [2, 3]
    with pytest.raises(Deadline, match=r"^no loaded batch for 0 s$"):
        shelf.sample()


def test_it_passes_on_what_concerns_the_replay_and_ends_all_waiting() -> None:
    replay = Numbered()
    shelf = Shelf(stand_in(replay), slots=1, patience=20.0)
    assert shelf.depth == 7
    shelf.update(torch.tensor([1]), torch.tensor([2]), torch.tensor([3.0]))
    assert len(replay.updates) == 1
    threading.Timer(0.05, shelf.close).start()
    with pytest.raises(Closed):
        shelf.sample()
    with pytest.raises(Closed):
        shelf.take()
