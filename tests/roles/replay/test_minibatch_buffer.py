"""Uses of batches over rounds: exact numbers in random cases, the ring's places, random draws."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colobus.core import timing
from colobus.core.errors import Deadline
from colobus.core.types import Batch
from colobus.roles.replay.minibatch_buffer import Loader, MinibatchBuffer, Order, PrefetchQueue
from colobus.roles.replay.queue import as_batch
from conftest import random_trajectory
from helpers.launching import assert_closed, on_a_thread

RNG = np.random.default_rng(0)
TINY = as_batch([random_trajectory(RNG, games=1, length=2, stack=1, frame_shape=(1, 1))])


def numbered(number: int) -> Batch:
    """Return a batch that is told by its versions."""
    return TINY._replace(versions=torch.tensor([number]))


def rounds_of(reuse: MinibatchBuffer, rounds: int) -> list[dict[int, int]]:
    """Return the epochs of each round by batch; check what holds in every round."""
    table = []
    for number in range(rounds):
        uses = reuse.take(numbered(number))
        found = {int(batch.versions): epochs for batch, epochs in uses}
        assert list(found) == sorted(found)
        assert list(found)[-1] == number  # the fresh batch comes last
        assert all(epochs > 0 for epochs in found.values())
        table.append(found)
    return table


@given(
    rounds=st.integers(1, 7),
    uses=st.integers(1, 12),
    ramp_up=st.booleans(),
    order=st.sampled_from(["ring", "random"]),
    seed=st.integers(0, 99),
)
def test_each_batch_has_exactly_its_uses_and_few_are_held(
    rounds: int, uses: int, ramp_up: bool, order: Order, seed: int
) -> None:
    reuse = MinibatchBuffer(rounds, uses, ramp_up, order, (seed, 1))
    table = rounds_of(reuse, 30)
    counts: Counter[int] = Counter()
    for number, found in enumerate(table):
        counts.update(found)
        assert min(found) > number - rounds  # so at most `rounds` batches are held
    for batch in range(30 - rounds + 1):
        assert counts[batch] == (min(batch + 1, uses) if ramp_up else uses)
    assert len(reuse._held) <= rounds - 1
    if order == "random" and not ramp_up:  # a round costs what it costs with the ring
        ring = rounds_of(MinibatchBuffer(rounds, uses), 30)
        assert [sum(found.values()) for found in table] == [sum(found.values()) for found in ring]


@given(rounds=st.integers(1, 7), uses=st.integers(1, 12), ramp_up=st.booleans())
def test_the_ring_spreads_uses_evenly(rounds: int, uses: int, ramp_up: bool) -> None:
    places: Counter[tuple[int, int]] = Counter()
    for batch in range(20):
        own = min(batch + 1, uses) if ramp_up else uses
        for use in range(own):
            places[batch + int(np.floor(use * rounds / own)), batch] += 1
    table = rounds_of(MinibatchBuffer(rounds, uses, ramp_up), 20)
    for number, found in enumerate(table):
        want = {batch: count for (of, batch), count in places.items() if of == number}
        assert found == want


def test_random_uses_fall_into_all_rounds_and_the_seeds_decide() -> None:
    tables = [
        rounds_of(MinibatchBuffer(4, 2, order="random", seeds=(seed, 0)), 400) for seed in (1, 1, 2)
    ]
    assert tables[0] == tables[1] != tables[2]
    offsets = Counter(
        number - batch
        for number, found in enumerate(tables[0])
        for batch, epochs in found.items()
        for _ in range(epochs)
    )
    assert offsets[0] > 390  # one of two, and now and then both
    assert all(offsets[offset] > 40 for offset in (1, 2, 3))


def numbering() -> Mock:
    return Mock(depth=7, sample=Mock(side_effect=map(numbered, itertools.count(1))))


def numbers(prefetched: PrefetchQueue, count: int) -> list[int]:
    return [int(prefetched.sample().versions) for _ in range(count)]


def test_batches_come_in_the_order_of_their_tickets() -> None:
    prefetched = PrefetchQueue(numbering(), slots=4, patience=20.0)
    rng = np.random.default_rng(3)

    def load() -> None:
        for _ in range(25):
            ticket, batch = prefetched.take()
            time.sleep(rng.uniform(0, 2e-3))
            prefetched.put(ticket, batch)

    loaders = [on_a_thread(load) for _ in range(4)]
    assert numbers(prefetched, 100) == list(range(1, 101))
    for loader in loaders:
        loader.result(60)


def test_no_more_is_taken_than_there_are_slots() -> None:
    replay = numbering()
    prefetched = PrefetchQueue(replay, slots=2, patience=0.0)
    loader = Loader(0, prefetched)
    loader.step()
    loader.step()
    with pytest.raises(Deadline, match=r"^no free slot for 0 s$"):
        loader.step()
    assert replay.sample.call_count == loader.clock.steps == 2
    assert numbers(prefetched, 1) == [1]
    loader.step()
    assert numbers(prefetched, 2) == [2, 3]
    with pytest.raises(Deadline, match=r"^no loaded batch for 0 s$"):
        prefetched.sample()


def test_how_long_a_batch_may_take_its_loader_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replay waits on while something comes; who waits for the loader cannot see that."""
    prefetched, asked = PrefetchQueue(numbering(), slots=2, patience=20.0), list[float]()

    def wait_for(_changed: Any, holds: Callable[[], bool], patience: float, *_: object) -> bool:
        asked.append(patience)
        return holds()

    monkeypatch.setattr(timing, "wait_for", wait_for)
    Loader(0, prefetched).step()
    assert numbers(prefetched, 1) == [1]
    assert asked == [20.0, math.inf]


def test_it_passes_on_what_concerns_the_replay_and_ends_all_waiting() -> None:
    replay = numbering()
    prefetched = PrefetchQueue(replay, slots=1, patience=20.0)
    assert prefetched.depth == 7
    prefetched.update(torch.tensor([1]), torch.tensor([2]), torch.tensor([3.0]))
    assert replay.update.call_count == 1
    threading.Timer(0.05, prefetched.close).start()
    assert_closed(prefetched.sample, prefetched.take)
