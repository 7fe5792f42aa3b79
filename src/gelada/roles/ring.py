"""The sum of a group of learners whose processes are connected with each other, by Gloo.

Each learner sends to the next one only, so the vectors do not all pass through one process. The
processes find each other at a `Meeting`, which is a passive role of the first of them. `Ring` has
the methods of `gelada.roles.group.LearnerGroup`.
"""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from typing import Any, NamedTuple

import torch

from gelada.core.errors import Closed, Lost
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
    """

    def __init__(self, meeting: Meeting, rank: int, size: int, patience: float = 600.0) -> None:
        self._meeting, self._rank, self._size, self._patience = meeting, rank, size, patience
        self._group: Any = None

    def sum(self, rank: int, vector: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - as LearnerGroup
        """Wait for the vectors of all learners, and return their sum, the same bits for all.

        Raises:
            Lost: if one of the others is gone, or does not come.
        """
        total = vector.clone()
        try:
            if self._group is None:
                self._group = self._connect()
            self._group.allreduce([total]).wait()
        except RuntimeError as error:
            self._group = None
            lines = str(error).strip().splitlines() or [""]
            raise Lost(f"a learner of the group is gone: {lines[0]}") from None
        return total

    def leave(self, rank: int) -> None:  # noqa: ARG002 - as LearnerGroup
        """Break the connections, so that nobody waits for this learner."""
        self._group = None

    def _connect(self) -> Any:
        """Meet the others; return torch's process group."""
        from torch.distributed import (  # type: ignore[attr-defined]  # torch stub
            ProcessGroupGloo,
            TCPStore,
        )

        address, patience = self._meeting.address(), timedelta(seconds=self._patience)
        store = TCPStore(address.host, address.port, is_master=False, timeout=patience)
        if address.host != LOOPBACK:
            return ProcessGroupGloo(store, self._rank, self._size, patience)
        gloo: Any = ProcessGroupGloo  # torch's stub has no options
        options = gloo._Options()
        options._timeout = patience
        options._devices = [gloo.create_device(hostname=LOOPBACK)]
        return gloo(store, self._rank, self._size, options)
