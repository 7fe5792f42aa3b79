"""Admission: the rule by which a parameter server accepts or drops gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gelada.core.errors import GeladaError
from gelada.core.types import Version


class Admission(Protocol):
    """Which gradients a server accepts, and how many of them make a step."""

    @property
    def needed(self) -> int:
        """Gradients that make a step."""

    def refusal(self, computed: Version, now: Version) -> str:
        """Return why to drop a gradient computed from ``computed`` at version ``now``, or ""."""


@dataclass(frozen=True)
class Quorum:
    """Synchronous: each step uses the first ``count`` gradients of the newest version.

    Later gradients are dropped. If there are more than ``count`` learners, the others are backup
    workers (Chen et al. 2016; DBA3C).
    """

    count: int

    @property
    def needed(self) -> int:
        """Gradients that make a step."""
        return self.count

    def refusal(self, computed: Version, now: Version) -> str:
        """Refuse a gradient that was not computed from the newest version."""
        return "" if computed == now else f"computed from {computed}, now {now}"

    def check(self, learners: int) -> None:
        """Raise GeladaError if ``count`` is above the number of learners."""
        if self.count > learners:
            raise GeladaError(
                f"quorum {self.count} with {learners} learner(s): a step would never be complete; "
                f"ask for at most {learners}"
            )


@dataclass(frozen=True)
class Async:
    """Asynchronous: every gradient makes a step, unless it is too stale (Gorila)."""

    max_staleness: int  # steps of the server since the gradient's version

    @property
    def needed(self) -> int:
        """Gradients that make a step."""
        return 1

    def refusal(self, computed: Version, now: Version) -> str:
        """Refuse a gradient that is more than ``max_staleness`` steps old."""
        behind = now.number - computed.number
        if 0 <= behind <= self.max_staleness:
            return ""
        return f"{behind} steps old, at most {self.max_staleness} count"
