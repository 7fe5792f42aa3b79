"""A group of learners, in a ring or on threads: its sums, who is waited for, what is shared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
import torch

from colobus.core.errors import Deadline, Diverged, Lost
from colobus.core.timing import Condition, wait_for
from colobus.core.types import CPU
from colobus.ops import losses
from colobus.roles.allreduce import Meeting, Member, ProcessAllreduce, ThreadAllreduce, backend_of
from helpers.launching import assert_closed, on_a_thread
from helpers.ray_runs import listening
from helpers.tapes import META, Reads


def at_once(groups: list[Any], work: Callable[[Member], Any]) -> list[Any]:
    """Let all members of a group work, each on a thread; return their results."""
    size = len(groups)
    with ThreadPoolExecutor(size) as threads:
        members = [Member(group, rank, size) for rank, group in enumerate(groups)]
        return list(threads.map(work, members))


def sums_of(groups: list[Any], vectors: torch.Tensor) -> list[torch.Tensor]:
    """Return what each learner finds [turns, P] as the sums of vectors [turns, learners, P]."""
    rng = np.random.default_rng(0)

    def work(member: Member) -> torch.Tensor:
        sums = []
        for turn in vectors:
            time.sleep(rng.uniform(0, 1e-3))  # so that one or the other comes first
            sums.append(member.sum(turn[member.rank].clone()))
        return torch.stack(sums)

    return at_once(groups, work)


def rings(size: int, on_network: bool = False, device: torch.device = CPU) -> list[Any]:
    meeting = Meeting(on_network)
    return [ProcessAllreduce(meeting, rank, size, 30.0, device) for rank in range(size)]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_two_learners_in_a_ring_are_those_on_threads_bit_for_bit(kind: torch.dtype) -> None:
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 2, 1001))).to(kind)
    group = ThreadAllreduce(2)
    want, found = sums_of([group, group], vectors), sums_of(rings(2), vectors)
    assert all(torch.equal(one, other) for one, other in zip(want, found, strict=True))


def test_all_learners_find_the_same_bits() -> None:
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 3, 1001))).float()
    first, *rest = sums_of(rings(3), vectors)
    torch.testing.assert_close(first, vectors.sum(dim=1), rtol=1e-5, atol=1e-5)
    assert all(torch.equal(first, found) for found in rest)


@pytest.mark.parametrize("kind", ["threads", "ring"])
def test_what_is_on_a_device_is_added_up_by_the_host(kind: str) -> None:
    groups: list[Any] = [ThreadAllreduce(2)] * 2 if kind == "threads" else rings(2, device=META)
    added: list[torch.Tensor] = []

    def work(member: Member) -> torch.Tensor:
        with Reads() as reads:  # ones
            added.append(member.group.sum(member.rank, torch.zeros(3, device=META)))
            found = member.sum(torch.zeros(3, 1, device=META))
        assert reads.count == 2
        return found

    for found in at_once(groups, work):
        assert (found.device, found.shape) == (META, (3, 1))
    assert [total.tolist() for total in added] == [[2.0] * 3] * 2


def test_nccl_is_for_learners_with_a_gpu_each() -> None:
    assert backend_of(["GPU-a", "GPU-b"]) == "nccl"
    assert backend_of(["GPU-a", "GPU-a"]) == "gloo"  # two learners share it
    assert backend_of(["GPU-a", ""]) == "gloo"  # NCCL is missing
    assert backend_of(["", ""]) == "gloo"


def test_with_a_gpu_each_only_what_is_on_it_is_added_up_there() -> None:
    (ring,) = rings(1, device=META)
    host, gpus = torch.ones(2), Mock()  # stands for a process group of NCCL
    assert ring.sum(0, host).tolist() == [1.0, 1.0]
    ring._gpus = gpus
    assert ring.sum(0, torch.zeros(2, device=META)).device == META
    assert ring.sum(0, host).tolist() == [1.0, 1.0]
    added = [one.device for (tensors,), _ in gpus.allreduce.call_args_list for one in tensors]
    assert added == [META]
    gpus.allreduce.return_value.wait.side_effect = RuntimeError("NCCL communicator was aborted")
    with pytest.raises(Lost, match=r"^a learner of the group is gone: NCCL communicator was abor"):
        ring.sum(0, torch.zeros(2, device=META))
    assert gpus.abort.call_count == 1
    ring._gpus = gpus
    ring.leave(0)
    assert gpus.abort.call_count == 2


def test_nobody_waits_for_a_learner_that_left() -> None:
    one, other = rings(2)
    sums_of([one, other], torch.ones(1, 2, 4))
    other.leave(1)
    with pytest.raises(Lost, match=r"^a learner of the group is gone: "):
        one.sum(0, torch.ones(4))


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
    before = listening(psutil.Process())
    groups = rings(2, on_network)
    sums_of(groups, torch.ones(1, 2, 4))
    opened = sorted(host for host, _ in listening(psutil.Process()) - before)
    assert opened == [f"127.0.0.{last}" for last in (learners, learners, meeting)]


def test_a_meeting_that_is_closed_tells_nobody() -> None:
    meeting = Meeting()
    assert meeting.address() == meeting.address()
    meeting.close()
    assert_closed(meeting.address)


def on_threads(size: int, work: Callable[[Member], Any]) -> list[Any]:
    return at_once([ThreadAllreduce(size, 20.0)] * size, work)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 7, 640])
def test_sums_are_in_the_order_of_the_ranks_bit_for_bit(size: int, length: int) -> None:
    rng = np.random.default_rng(length)
    rows = torch.from_numpy(rng.normal(size=(20, size, length)) * 1e3).float()
    want = rows[:, 0].clone()
    for rank in range(1, size):
        want += rows[:, rank]
    for found in sums_of([ThreadAllreduce(size, 20.0)] * size, rows):
        assert torch.equal(found, want)


def test_a_learner_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by one that came before the others."""
    group = ThreadAllreduce(3, patience=0.1)

    def once_two_are_there(changed: Condition, holds: Callable[[], bool], patience: float) -> bool:
        changed.notify_all()
        changed.wait_for(lambda: len(group._vectors) == 2, 60.0)
        return wait_for(changed, holds, patience)

    monkeypatch.setattr("colobus.roles.allreduce.wait_for", once_two_are_there)
    with ThreadPoolExecutor(2) as threads:
        sums = [threads.submit(group.sum, rank, torch.ones(4)) for rank in (0, 2)]
        for found in sums:
            with pytest.raises(Deadline, match=r"^no sum for 0\.1 s: it waits for learner-1$"):
                found.result()


def test_whoever_waits_for_one_that_left_is_let_go_once_the_run_stops() -> None:
    group = ThreadAllreduce(2, patience=20.0)
    first = on_a_thread(partial(group.sum, 0, torch.ones(2)))
    group.leave(1)
    time.sleep(0.05)
    assert not first.done()  # its error may be on its way to the runtime
    group.close()
    assert_closed(partial(first.result, 60.0))


def test_a_round_that_has_begun_is_ended_while_the_run_stops() -> None:
    group = ThreadAllreduce(2, patience=20.0)
    first = on_a_thread(partial(group.sum, 0, torch.ones(2)))
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

    for found in on_threads(3, work):
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

    samples = values.flatten(), weights.flatten()
    want = losses.standardise(*samples)
    for found in on_threads(3, work):
        assert found.shape == (2, 2)
        again = losses.standardise(*samples, moments=found[1])
        torch.testing.assert_close(again, want, rtol=1e-5, atol=1e-6)


def test_values_of_a_round_are_shared() -> None:
    def work(member: Member) -> tuple[dict[str, float], int]:
        own = {"kl": float(member.rank), "kl_max": float(member.rank), "parameter_norm": 2.0}
        own |= {"some": -math.inf if member.rank else 3.0, "none": -math.inf}  # was not measured
        return member.share(own, 10 + member.rank)

    want = {"kl": 1.0, "kl_max": 2.0, "parameter_norm": 2.0, "some": 3.0, "none": -math.inf}
    assert on_threads(3, work) == [(want, 33)] * 3
    assert on_threads(3, lambda member: member.any(member.rank == 2)) == [True] * 3
    assert on_threads(3, lambda member: member.any(False)) == [False] * 3


def test_replicas_that_differ_end_the_run() -> None:
    def work(member: Member) -> None:
        with pytest.raises(Diverged, match=r"^replicas differ: .* \[0\.0, 1\.0\]$"):
            member.share({"parameter_norm": float(member.rank)}, 1)

    on_threads(2, work)
