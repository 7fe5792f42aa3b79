"""Whether Ray itself still lives: its head process (GCS), and its process on this host (raylet).

If one of them is gone, calls of Ray may wait for a minute and then end this process without a word.
So they are asked in another way: by a connection to their ports, which the system refuses at once
when a process has died.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping

import ray

LOOK_SECONDS = 1.0
"""Between two connections to a port."""

LOST_SECONDS = 10.0
"""After so long without an answer Ray is lost. A head process with a database may come back."""

ANSWER_SECONDS = 1.0
"""How long a port has to answer."""

Address = tuple[str, int]


class Alive:
    """Tells whether all processes that a run cannot do without can be reached.

    Args:
        ports: host and port of each process, by what messages call it.
        now: returns the time in seconds.
    """

    def __init__(
        self, ports: Mapping[str, Address], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._ports, self._now = ports, now
        self._missing: dict[str, float] = {}  # since when they have given no answer
        self._looked = float("-inf")
        self.lost = ""  # what is lost for good, in words

    def look(self, at_once: bool = False) -> bool:
        """Return whether all answer; they are asked at most once a second unless ``at_once``."""
        now = self._now()
        if not at_once and now - self._looked < LOOK_SECONDS:
            return not self._missing
        self._looked = now
        for name, (host, port) in self._ports.items():
            if _answers((host, port)):
                self._missing.pop(name, None)
            elif now - self._missing.setdefault(name, now) >= LOST_SECONDS and not self.lost:
                self.lost = f"{name} at {host}:{port} has given no answer for {LOST_SECONDS:g} s"
        return not self._missing


def ports_of_ray() -> dict[str, Address]:
    """Return where Ray's head process and its process on this host listen."""
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    ports = {"the head process (GCS)": (host.strip("[]"), int(port))}
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            ports["the process of this host (raylet)"] = (
                node["NodeManagerAddress"],
                int(node["NodeManagerPort"]),
            )
    return ports


def _answers(address: Address) -> bool:
    try:
        socket.create_connection(address, ANSWER_SECONDS).close()
    except OSError:
        return False
    return True
