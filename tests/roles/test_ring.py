"""A ring of learners: its sums, and what happens if one is gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from gelada.core.errors import Closed, Lost
from gelada.roles.group import LearnerGroup, Member, Sums
from gelada.roles.ring import Meeting, Ring


def sums_of(groups: list[Sums], vectors: torch.Tensor) -> list[list[torch.Tensor]]:
    """Return what each learner finds as the sums of vectors [turns, learners, P]."""

    def work(rank: int) -> list[torch.Tensor]:
        member = Member(groups[rank], rank, len(groups))
        return [member.sum(turn[rank].clone()) for turn in vectors]

    with ThreadPoolExecutor(len(groups)) as threads:
        return list(threads.map(work, range(len(groups))))


def rings(size: int) -> list[Any]:
    meeting = Meeting()
    return [Ring(meeting, rank, size, patience=30.0) for rank in range(size)]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_two_learners_in_a_ring_are_those_on_threads_bit_for_bit(kind: torch.dtype) -> None:
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 2, 1001))).to(kind)
    group = LearnerGroup(2)
    want, found = sums_of([group, group], vectors), sums_of(rings(2), vectors)
    for one, other in zip(want, found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_all_learners_find_the_same_bits() -> None:
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 3, 1001))).float()
    first, *rest = sums_of(rings(3), vectors)
    torch.testing.assert_close(torch.stack(first), vectors.sum(dim=1), rtol=1e-5, atol=1e-5)
    for found in rest:
        assert all(torch.equal(a, b) for a, b in zip(first, found, strict=True))


def test_nobody_waits_for_a_learner_that_left() -> None:
    one, other = rings(2)
    sums_of([one, other], torch.ones(1, 2, 4))
    other.leave(1)
    with pytest.raises(Lost, match=r"^a learner of the group is gone: "):
        one.sum(0, torch.ones(4))


def test_on_one_host_all_listen_on_the_loopback_only() -> None:
    process = psutil.Process()

    def listening() -> set[Any]:
        found = process.net_connections(kind="inet")
        return {one.laddr for one in found if one.status == psutil.CONN_LISTEN}

    before = listening()
    groups = rings(2)
    sums_of(groups, torch.ones(1, 2, 4))
    opened = listening() - before
    assert len(opened) == 3  # the meeting, and each learner
    assert {address.ip for address in opened} == {"127.0.0.1"}


def test_a_meeting_that_is_closed_tells_nobody() -> None:
    meeting = Meeting()
    assert meeting.address() == meeting.address()
    meeting.close()
    with pytest.raises(Closed):
        meeting.address()
