"""A ring of learners: its sums, and what happens if one is gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from colobus.core.errors import Closed, Lost
from colobus.core.types import CPU
from colobus.roles.allreduce import (
    Allreduce,
    Meeting,
    Member,
    ProcessAllreduce,
    ThreadAllreduce,
    backend_of,
)
from helpers.reading import META, Reads


def sums_of(groups: list[Allreduce], vectors: torch.Tensor) -> list[list[torch.Tensor]]:
    """Return what each learner finds as the sums of vectors [turns, learners, P]."""

    def work(rank: int) -> list[torch.Tensor]:
        member = Member(groups[rank], rank, len(groups))
        return [member.sum(turn[rank].clone()) for turn in vectors]

    with ThreadPoolExecutor(len(groups)) as threads:
        return list(threads.map(work, range(len(groups))))


def rings(size: int, on_network: bool = False, device: torch.device = CPU) -> list[Any]:
    meeting = Meeting(on_network)
    return [ProcessAllreduce(meeting, rank, size, 30.0, device) for rank in range(size)]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_two_learners_in_a_ring_are_those_on_threads_bit_for_bit(kind: torch.dtype) -> None:
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 2, 1001))).to(kind)
    group = ThreadAllreduce(2)
    want, found = sums_of([group, group], vectors), sums_of(rings(2), vectors)
    for one, other in zip(want, found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_all_learners_find_the_same_bits() -> None:
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 3, 1001))).float()
    first, *rest = sums_of(rings(3), vectors)
    torch.testing.assert_close(torch.stack(first), vectors.sum(dim=1), rtol=1e-5, atol=1e-5)
    for found in rest:
        assert all(torch.equal(a, b) for a, b in zip(first, found, strict=True))


@pytest.mark.parametrize("kind", ["threads", "ring"])
def test_what_is_on_a_device_is_added_up_by_the_host(kind: str) -> None:
    groups: list[Any] = [ThreadAllreduce(2)] * 2 if kind == "threads" else rings(2, device=META)
    added: list[torch.Tensor] = []

    def work(rank: int) -> torch.Tensor:
        with Reads() as reads:  # ones
            added.append(groups[rank].sum(rank, torch.zeros(3, device=META)))
            found = Member(groups[rank], rank, 2).sum(torch.zeros(3, 1, device=META))
        assert reads.count == 2
        return found

    with ThreadPoolExecutor(2) as threads:
        for found in threads.map(work, range(2)):
            assert (found.device, found.shape) == (META, (3, 1))
    assert [total.tolist() for total in added] == [[2.0] * 3] * 2


def test_nccl_is_for_learners_with_a_gpu_each() -> None:
    assert backend_of(["GPU-a", "GPU-b"]) == "nccl"
    assert backend_of(["GPU-a", "GPU-a"]) == "gloo"  # two learners share it
    assert backend_of(["GPU-a", ""]) == "gloo"  # NCCL is missing
    assert backend_of(["", ""]) == "gloo"


class OnGpus:
    """Stands for a process group of NCCL."""

    def __init__(self) -> None:
        self.added: list[torch.device] = []
        self.aborted = False

    def allreduce(self, tensors: list[torch.Tensor]) -> OnGpus:
        self.added += [one.device for one in tensors]
        return self

    def wait(self) -> None:
        if self.aborted:
            raise RuntimeError("NCCL communicator was aborted")

    def abort(self) -> None:
        self.aborted = True


def test_with_a_gpu_each_only_what_is_on_it_is_added_up_there() -> None:
    (ring,) = rings(1, device=META)
    host = torch.ones(2)
    assert ring.sum(0, host).tolist() == [1.0, 1.0]
    ring._gpus = gpus = OnGpus()
    assert ring.sum(0, torch.zeros(2, device=META)).device == META
    assert ring.sum(0, host).tolist() == [1.0, 1.0]
    assert gpus.added == [META]
    gpus.aborted = True
    with pytest.raises(Lost, match=r"^a learner of the group is gone: NCCL communicator was abor"):
        ring.sum(0, torch.zeros(2, device=META))
    ring._gpus, gpus.aborted = gpus, False
    ring.leave(0)
    assert gpus.aborted


def test_nobody_waits_for_a_learner_that_left() -> None:
    one, other = rings(2)
    sums_of([one, other], torch.ones(1, 2, 4))
    other.leave(1)
    with pytest.raises(Lost, match=r"^a learner of the group is gone: "):
        one.sum(0, torch.ones(4))


def listening() -> set[Any]:
    """Return the addresses and ports at which this process listens."""
    found = psutil.Process().net_connections(kind="inet")
    return {one.laddr for one in found if one.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    ("on_network", "named", "learners", "meeting"),
    [(False, "", 1, 1), (True, "", 2, 2), (True, "lo", 1, 2)],
    ids=["the loopback", "what leads to others", "a named network"],
)
def test_where_all_listen(
    on_network: bool, named: str, learners: int, meeting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.roles.allreduce.own_address", lambda: "127.0.0.2")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    if named:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", named)
    before = listening()
    groups = rings(2, on_network)
    sums_of(groups, torch.ones(1, 2, 4))
    opened = sorted(address.ip for address in listening() - before)
    assert opened == [f"127.0.0.{last}" for last in (learners, learners, meeting)]


def test_a_meeting_that_is_closed_tells_nobody() -> None:
    meeting = Meeting()
    assert meeting.address() == meeting.address()
    meeting.close()
    with pytest.raises(Closed):
        meeting.address()
