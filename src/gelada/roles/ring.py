"""The sum of a group of learners whose processes are connected with each other, by Gloo or NCCL.

Each learner sends to the next one only, so the vectors do not all pass through one process. What is
on GPUs is added up by NCCL, if each learner has one of its own, else in the memory of the host. The
processes find each other at a `Meeting`, which is a passive role of the first of them. `Ring` has
the methods of `gelada.roles.group.LearnerGroup`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import torch

from gelada.core.errors import Closed, Lost
from gelada.core.types import CPU
from gelada.ops.flat import in_host_memory
from gelada.runtime.system import own_address

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


class Ring:
    """One learner's place in the ring.

    Args:
        meeting: where the learners meet.
        rank: of this learner, from 0.
        size: learners in the group.
        patience: seconds that it waits for the others.
        device: on which this learner computes.
    """

    def __init__(
        self,
        meeting: Meeting,
        rank: int,
        size: int,
        patience: float = 600.0,
        device: torch.device = CPU,
    ) -> None:
        self._meeting, self._rank, self._size, self._patience = meeting, rank, size, patience
        self._device = device
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

    def leave(self, rank: int) -> None:  # noqa: ARG002 - as LearnerGroup
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

        address, patience = self._meeting.address(), timedelta(seconds=self._patience)
        store = TCPStore(address.host, address.port, is_master=False, timeout=patience)
        gloo: Any = ProcessGroupGloo  # torch's stub has no options
        options = gloo._Options()
        options._timeout = patience
        options._devices = [gloo.create_device(**one) for one in _networks(address.host)]
        self._group = gloo(store, self._rank, self._size, options)
        if self._device.type != "cpu":
            store.set(f"gpu-{self._rank}", _gpu(self._device))
            gpus = [store.get(f"gpu-{rank}").decode() for rank in range(self._size)]
            if backend_of(gpus) == "nccl":
                if address.host == LOOPBACK:  # by itself NCCL would listen on a network
                    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
                self._gpus = _nccl(store, self._rank, self._size, patience)


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


def _nccl(store: Any, rank: int, size: int, patience: timedelta) -> Any:
    """Return torch's process group that adds up on GPUs."""
    from torch.distributed import (  # type: ignore[attr-defined]  # torch stub
        PrefixStore,
        ProcessGroupNCCL,
    )

    nccl: Any = ProcessGroupNCCL  # torch's stub has no options
    options = nccl.Options()
    options._timeout = patience
    return nccl(PrefixStore("nccl", store), rank, size, options)


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
