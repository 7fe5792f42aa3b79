"""A group of learners: its sums, who is waited for, and what the learners share."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from colobus.core.errors import Closed, Deadline, Diverged
from colobus.ops import losses
from colobus.roles.allreduce import Member, ThreadAllreduce
from helpers.waiting import on_a_thread


def at_once(size: int, work: Callable[[Member], Any], patience: float = 20.0) -> list[Any]:
    """Let all members of a group work, each on a thread; return their results."""
    group = ThreadAllreduce(size, patience)
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(work, [Member(group, rank, size) for rank in range(size)]))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 7, 640])
def test_sums_are_in_the_order_of_the_ranks_bit_for_bit(size: int, length: int) -> None:
    rng = np.random.default_rng(length)
    rows = torch.from_numpy(rng.normal(size=(20, size, length)) * 1e3).float()

    def work(member: Member) -> torch.Tensor:
        sums = []
        for row in rows:
            time.sleep(rng.uniform(0, 1e-3))
            sums.append(member.sum(row[member.rank].clone()))
        return torch.stack(sums)

    want = rows[:, 0].clone()
    for rank in range(1, size):
        want += rows[:, rank]
    for found in at_once(size, work):
        assert torch.equal(found, want)


def test_a_learner_that_does_not_come_is_named() -> None:
    group = ThreadAllreduce(3, patience=1.0)
    with ThreadPoolExecutor(2) as threads:
        sums = [threads.submit(group.sum, rank, torch.ones(4)) for rank in (0, 2)]
        for found in sums:
            with pytest.raises(Deadline, match=r"^no sum for 1 s: it waits for learner-1$"):
                found.result()


def waiting(group: ThreadAllreduce) -> Future[torch.Tensor]:
    return on_a_thread(lambda: group.sum(0, torch.ones(2)))


def test_whoever_waits_for_one_that_left_is_let_go_once_the_run_stops() -> None:
    group = ThreadAllreduce(2, patience=20.0)
    first = waiting(group)
    group.leave(1)
    time.sleep(0.05)
    assert not first.done()  # its error may be on its way to the runtime
    group.close()
    with pytest.raises(Closed):
        first.result(60.0)


def test_a_round_that_has_begun_is_ended_while_the_run_stops() -> None:
    group = ThreadAllreduce(2, patience=20.0)
    first = waiting(group)
    group.close()
    time.sleep(0.05)
    assert not first.done()
    assert torch.equal(group.sum(1, torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(first.result(60.0), torch.full((2,), 2.0))


def test_gradients_are_averaged_by_the_weights_of_their_samples() -> None:
    gradients, weights = torch.tensor([[1.0, 2.0], [5.0, -2.0], [9.0, 9.0]]), [3.0, 1.0, 0.0]

    def work(member: Member) -> torch.Tensor:
        own = gradients[member.rank].clone()
        member.average(own, torch.tensor(weights[member.rank]))
        return own

    for found in at_once(3, work):
        assert found.tolist() == [2.0, 1.0]


def test_moments_are_those_of_all_samples() -> None:
    rng = np.random.default_rng(2)
    values, weights = torch.from_numpy(rng.normal(3.0, 7.0, (3, 50))).float(), torch.ones(3, 50)
    weights[0, :40] = 0.0
    spoilt = values.clone()
    spoilt[0, 0] = torch.inf  # what has no weight may hold anything

    def work(member: Member) -> torch.Tensor:
        sums = losses.weighted_sums(spoilt[member.rank], weights[member.rank])
        return member.moments(torch.stack([sums, sums]))

    want = losses.standardise(values.flatten(), weights.flatten())
    for found in at_once(3, work):
        assert found.shape == (2, 2)
        again = losses.standardise_by(values.flatten(), found[1])
        torch.testing.assert_close(again, want, rtol=1e-5, atol=1e-6)


def test_values_of_a_round_are_shared() -> None:
    def work(member: Member) -> tuple[dict[str, float], int]:
        own = {"kl": float(member.rank), "kl_max": float(member.rank), "parameter_norm": 2.0}
        return member.share(own, 10 + member.rank)

    want = {"kl": 1.0, "kl_max": 2.0, "parameter_norm": 2.0}
    assert at_once(3, work) == [(want, 33)] * 3
    assert at_once(3, lambda member: member.any(member.rank == 2)) == [True] * 3
    assert at_once(3, lambda member: member.any(False)) == [False] * 3


def test_replicas_that_differ_end_the_run() -> None:
    def work(member: Member) -> None:
        with pytest.raises(Diverged, match=r"^replicas differ: .* \[0\.0, 1\.0\]$"):
            member.share({"parameter_norm": float(member.rank)}, 1)

    at_once(2, work)
