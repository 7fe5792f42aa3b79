"""Learners that step alike: the sum of what each of them has.

Every learner of such a group has the whole network, an optimizer and a replay of its own. Before
each step all of them sum their gradients, so all take the same step and their parameters stay
equal, bit for bit. `Member` is a learner's side of what joins them: on threads a `ThreadAllreduce`,
which is passive, and between processes a `ProcessAllreduce`.

Processes are connected by Gloo or NCCL in a ring: each learner sends to the next one only, so the
vectors do not all pass through one process. What is on GPUs is added up by NCCL, if each learner
has one of its own, else in the memory of the host. They find each other at a `Meeting`, which is a
passive role of the first of them.
"""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import torch

from colobus.core.errors import Closed, ColobusError, Deadline, Diverged, Lost
from colobus.core.timing import Clock, Closable, wait_for
from colobus.core.types import CPU
from colobus.ops.flat import in_host_memory
from colobus.runtime.system import own_address

CLOSING_SECONDS = 30.0
"""Once a run stops, a learner waits at most so long for the others to end their round."""

NORM = "parameter_norm"
"""Value of a round that is the same for all, while their parameters are."""


class ThreadAllreduce(Closable):
    """Allreduce vectors of several learners in the order of their ranks; passive.

    Each learner adds up its own slice of all vectors, so the work is shared, and the order does not
    depend on who comes first.

    Args:
        size: learners in the group.
        patience: seconds after which `sum` raises `Deadline` (0: it does not wait).
    """

    def __init__(self, size: int, patience: float = 600.0) -> None:
        super().__init__(patience)
        self._size = size
        self._vectors: dict[int, torch.Tensor] = {}  # of the sum under way, by rank
        self._total = torch.empty(0)
        self._begun = self._ended = 0  # sums for which all vectors are there; that are complete
        self._added = 0  # slices of the sum under way
        self._left: set[int] = set()

    def sum(self, rank: int, vector: torch.Tensor) -> torch.Tensor:
        """Wait for the vectors of all learners, and return their sum.

        Args:
            rank: of the learner, from 0.
            vector: [P], of the same length and dtype for all; nobody changes it until this returns.
                From a GPU it is copied to the memory of the host, where the sum is.

        Raises:
            Deadline: if some did not come within the patience; the message names them.
            Closed: if the run stops and one of the others has left.
        """
        vector = in_host_memory(vector)
        with self._changed:
            turn = self._begun + 1
            self._vectors[rank] = vector
            if len(self._vectors) == self._size:
                self._total = torch.empty_like(vector)
                self._begun, self._added = turn, 0
                self._changed.notify_all()
            self._wait(lambda: self._begun >= turn, self._missing)
            parts = [self._vectors[i] for i in range(self._size)]
            total = self._total
        _add(parts, total, rank)
        with self._changed:
            self._added += 1
            if self._added == self._size:
                self._vectors, self._ended = {}, turn
                self._changed.notify_all()
            self._wait(lambda: self._ended >= turn, lambda: set(range(self._size)) - {rank})
        return total

    def leave(self, rank: int) -> None:
        """Note that a learner has ended; nobody waits for it once the run stops."""
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()

    def _missing(self) -> set[int]:
        return set(range(self._size)) - self._vectors.keys()

    def _wait(self, holds: Callable[[], bool], awaited: Callable[[], set[int]]) -> None:
        """Wait until ``holds``; ``awaited`` returns the ranks for which this waits."""

        def over() -> bool:
            return holds() or self._closed

        there = wait_for(self._changed, over, self._patience)
        if there and not holds():  # the run stops; learners in the middle of a round may end it
            there = self._changed.wait_for(
                lambda: holds() or bool(self._left & awaited()), CLOSING_SECONDS
            )
            if not holds():
                raise Closed
        if not there:
            names = ", ".join(f"learner-{i}" for i in sorted(awaited()))
            raise Deadline(f"no sum for {self._patience:g} s: it waits for {names}")


def _add(parts: list[torch.Tensor], total: torch.Tensor, rank: int) -> None:
    """Write this rank's slice of the sum of all parts, added up in their order, to ``total``."""
    length = len(total)
    own = slice(length * rank // len(parts), length * (rank + 1) // len(parts))
    first, *rest = (part[own] for part in parts)
    total[own] = first
    for part in rest:
        total[own].add_(part)


@dataclass(eq=False)
class Member:
    """A learner in a group."""

    group: Allreduce  # joins the learners
    rank: int  # of the learner, from 0
    size: int  # learners in the group
    clock: Clock = field(default_factory=Clock)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of the tensors of all members; each has the same bits."""
        with self.clock("wait for learners"):
            total = self.group.sum(self.rank, values.reshape(-1))
        return total.to(values.device).view(values.shape)

    def average(self, gradients: torch.Tensor, weight: torch.Tensor) -> None:
        """Replace gradients float32[P] by the mean of all members', weighted by ``weight``."""
        total = self.sum(torch.cat([gradients * weight, weight.reshape(1)]))
        torch.div(total[:-1], total[-1].clamp(min=1e-8), out=gradients)

    def moments(self, sums: torch.Tensor) -> torch.Tensor:
        """Return mean and deviation of the samples of all members, float32[K, 2].

        Args:
            sums: float64[K, 3], of K minibatches: the weights of the own samples, the weighted
                samples, and their weighted squares.
        """
        weights, first, second = self.sum(sums).unbind(dim=1)
        mean = first / weights.clamp(min=1e-8)
        square = second / weights.clamp(min=1e-8) - mean.square()
        return torch.stack([mean, square.clamp(min=0.0).sqrt()], dim=1).float()

    def share(self, values: dict[str, float], steps: int) -> tuple[dict[str, float], int]:
        """Return the values of a round of all members, and the environment steps of all.

        Values are means (of ``…_max`` the largest), so that what follows them is the same for all.

        Raises:
            Diverged: if the parameters of the members are not the same any more.
        """
        names = list(values)
        table = torch.zeros(self.size, len(names) + 1, dtype=torch.float64)
        table[self.rank] = torch.tensor([*values.values(), steps], dtype=torch.float64)
        table = self.sum(table)
        norms = table[:, names.index(NORM)].tolist() if NORM in names else []
        if len(set(norms)) > 1:
            raise Diverged(f"replicas differ: the norms of the learners' parameters are {norms}")
        there = table > -math.inf  # a member that measured nothing has -inf
        sums = table.masked_fill(~there, 0.0).sum(dim=0) / there.sum(dim=0)
        means = sums.masked_fill(~there.any(dim=0), -math.inf).tolist()
        most = table.amax(dim=0).tolist()
        shared = {
            name: largest if name.endswith("_max") else mean
            for name, mean, largest in zip(names, means, most, strict=False)
        }
        return shared, round(table[:, -1].sum().item())

    def any(self, own: bool) -> bool:
        """Return whether it is true for a member."""
        return bool(self.sum(torch.tensor([float(own)])) > 0)

    def leave(self) -> None:
        """Tell the others that this learner has ended, if they are still there."""
        with suppress(Closed, Lost):
            self.group.leave(self.rank)


LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """Where the processes of a group find each other."""

    host: str
    port: int


class Meeting:
    """Tells the processes of a group where to meet; passive.

    Neither the meeting nor the ring asks for a password.

    Args:
        on_network: some of the processes are on other hosts; else all listen on the loopback
            address only.
    """

    def __init__(self, on_network: bool = False) -> None:
        self._host = own_address() if on_network else LOOPBACK
        if on_network and self._host == LOOPBACK:
            raise ColobusError("--reduce group: this host has no route to others; give it one")
        self._store: Any = None
        self._lock = threading.Lock()
        self._closed = False

    def address(self) -> Address:
        """Return where to meet; the first call begins to listen there.

        Raises:
            Closed: if the run stops.
        """
        if self._closed:
            raise Closed
        with self._lock:
            if self._store is None:
                from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch stub

                with socket.create_server((self._host, 0)) as listening:
                    port = listening.getsockname()[1]
                    self._store = TCPStore(  # by itself it would listen on all addresses
                        self._host,
                        port,
                        is_master=True,
                        wait_for_workers=False,
                        master_listen_fd=listening.detach(),
                    )
            return Address(self._host, self._store.port)

    def close(self) -> None:
        """Tell nobody from now on; those who have met stay connected."""
        self._closed = True


@dataclass
class ProcessAllreduce:
    """One learner's place in the ring."""

    meeting: Meeting  # where the learners meet
    rank: int  # of this learner, from 0
    size: int  # learners in the group
    patience: float = 600.0  # seconds that it waits for the others
    device: torch.device = CPU  # on which this learner computes

    def __post_init__(self) -> None:
        self._group: Any = None  # adds up in the memory of the host
        self._gpus: Any = None  # adds up on GPUs, if each learner has one

    def sum(self, rank: int, vector: torch.Tensor) -> torch.Tensor:
        """Wait for the vectors of all learners, and return their sum, the same bits for all.

        Raises:
            Lost: if one of the others is gone, or does not come.
        """
        try:
            if self._group is None:
                self._connect()
            if vector.device.type == "cpu" or self._gpus is None:
                group, total = self._group, in_host_memory(vector)
                total = total.clone() if total is vector else total
            else:
                group, total = self._gpus, vector.clone()
            group.allreduce([total]).wait()
        except RuntimeError as error:
            self.leave(rank)
            lines = str(error).strip().splitlines() or [""]
            raise Lost(f"a learner of the group is gone: {lines[0]}") from None
        return total

    def leave(self, rank: int) -> None:
        """Break the connections, so that nobody waits for this learner."""
        self._group, gpus, self._gpus = None, self._gpus, None
        if gpus is not None:
            gpus.abort()  # else it would wait for sums that never come

    def _connect(self) -> None:
        """Meet the others; make torch's process groups."""
        from torch.distributed import (  # type: ignore[attr-defined]  # torch stub
            ProcessGroupGloo,
            TCPStore,
        )

        address, patience = self.meeting.address(), timedelta(seconds=self.patience)
        store = TCPStore(address.host, address.port, is_master=False, timeout=patience)
        gloo: Any = ProcessGroupGloo  # torch's stub has no options
        options = gloo._Options()
        options._timeout = patience
        options._devices = [gloo.create_device(**one) for one in _networks(address.host)]
        self._group = gloo(store, self.rank, self.size, options)
        if self.device.type != "cpu":
            store.set(f"gpu-{self.rank}", _gpu(self.device))
            gpus = [store.get(f"gpu-{rank}").decode() for rank in range(self.size)]
            if backend_of(gpus) == "nccl":
                if address.host == LOOPBACK:  # by itself NCCL would listen on a network
                    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
                from torch.distributed import (  # type: ignore[attr-defined]  # torch stub
                    PrefixStore,
                    ProcessGroupNCCL,
                )

                nccl: Any = ProcessGroupNCCL  # torch's stub has no options
                options = nccl.Options()
                options._timeout = patience
                self._gpus = nccl(PrefixStore("nccl", store), self.rank, self.size, options)


Allreduce = ThreadAllreduce | ProcessAllreduce
"""What joins the learners of a group. A sum has the same bits for all of them; it may be in the
memory of the host, wherever the vectors are."""


def backend_of(gpus: Sequence[str]) -> Literal["nccl", "gloo"]:
    """Return what adds up vectors on devices, given the names of all learners' GPUs.

    NCCL refuses two learners on one GPU. A learner on a GPU that NCCL cannot use names none ("").
    """
    alone = all(gpus) and len(set(gpus)) == len(gpus)
    return "nccl" if alone else "gloo"


def _gpu(device: torch.device) -> str:
    """Return the name of a GPU that no other has on any host; "" without NCCL."""
    if device.type != "cuda" or not torch.distributed.is_nccl_available():
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def _networks(meeting: str) -> list[dict[str, str]]:
    """Return by which networks the others reach this process, as Gloo takes them.

    By itself Gloo would listen where the name of this host leads, which on many systems is a
    loopback address.

    Args:
        meeting: address at which the learners meet.
    """
    if meeting == LOOPBACK:
        return [{"hostname": LOOPBACK}]
    if names := os.environ.get("GLOO_SOCKET_IFNAME"):
        return [{"interface": name} for name in names.split(",")]
    return [{"hostname": own_address()}]
