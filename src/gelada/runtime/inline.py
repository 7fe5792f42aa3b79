"""Inline: all roles in the calling thread, one after the other.

It is for tests: a deterministic run on threads or on Ray must give the same parameters as here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gelada.runtime.api import Active, Passive, nothing
from gelada.runtime.graph import Graph


class Inline:
    """Calls ``step`` of active roles in the order of the graph (a `gelada.runtime.api.Runtime`).

    Passive roles must have a patience of 0, so that a wait that would never end raises
    `gelada.core.errors.Deadline`. Nothing is restarted: what a role raises, `wait` raises.
    """

    def __init__(self, graph: Graph) -> None:
        self.roles: dict[str, Any] = graph.build()
        self.active: list[Active] = [self.roles[n.name] for n in graph.nodes if n.active]
        self.away = 0

    def run(self) -> None:
        """Call ``step`` of all active roles in turn until one of them has finished."""
        while not self.wait(0.0):
            pass

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Do nothing: roles run while `wait` is called."""

    def has_begun(self, role: str) -> bool:
        """Return whether there is such a role: all are there from the beginning."""
        return role in self.roles

    def wait(self, seconds: float) -> bool:  # noqa: ARG002 - the protocol
        """Call ``step`` of each active role once; return whether one has finished."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for role in self.active:
                role.step()
        finally:
            torch.set_num_threads(before)
        return any(role.finished for role in self.active)

    def check(self) -> None:
        """Do nothing: `wait` raises what a role raised."""

    def stop(self, patience: float = 30.0) -> list[str]:  # noqa: ARG002 - the protocol
        """Close the passive roles; return no names, as nothing runs."""
        for role in self.roles.values():
            if isinstance(role, Passive):
                role.close()
        return []

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def hit(self, kind: str, number: int) -> None:
        """Raise ValueError: there are no processes."""
        raise ValueError(f"signal {number} to a {kind}: inline there are no processes")
