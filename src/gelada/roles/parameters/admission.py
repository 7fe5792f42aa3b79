"""Which gradients count: the rule of a parameter server, apart from its bookkeeping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gelada.core.errors import GeladaError
from gelada.core.types import Version


class Admission(Protocol):
    """When a gradient of this epoch counts, and how many make a step."""

    @property
    def needed(self) -> int:
        """Gradients that make a step."""

    def refusal(self, computed: Version, now: Version) -> str:
        """Return why a gradient computed from an older version does not count, or ""."""


@dataclass(frozen=True)
class Quorum:
    """Synchronous: a step is made of the first ``count`` fresh gradients; late ones are dropped.

    With more learners than ``count`` the others are backups (Chen et al. 2016; DBA3C).
    """

    count: int

    @property
    def needed(self) -> int:
        """Gradients that make a step."""
        return self.count

    def refusal(self, computed: Version, now: Version) -> str:
        """Refuse what was not computed from the newest version."""
        return "" if computed == now else f"computed from {computed}, now {now}"

    def check(self, learners: int) -> None:
        """Raise GeladaError if more gradients are asked for than there are learners."""
        if self.count > learners:
            raise GeladaError(
                f"quorum {self.count} with {learners} learner(s): a step would never be complete; "
                f"ask for at most {learners}"
            )


@dataclass(frozen=True)
class Async:
    """Asynchronous: every gradient makes a step, unless it is too old (Gorila)."""

    max_staleness: int  # steps that others may have made since

    @property
    def needed(self) -> int:
        """Gradients that make a step."""
        return 1

    def refusal(self, computed: Version, now: Version) -> str:
        """Refuse what is older than ``max_staleness`` steps."""
        behind = now.number - computed.number
        if 0 <= behind <= self.max_staleness:
            return ""
        return f"{behind} steps old, at most {self.max_staleness} count"
