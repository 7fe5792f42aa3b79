"""When a replay buffer lets actors add and learners sample, so that neither runs ahead.

Counts are steps added and windows sampled since the buffer was made. One window is one sample,
however many steps it has: with n-step returns it makes one target, and one priority always.
"""

from __future__ import annotations

from typing import Protocol

from gelada.core.errors import GeladaError


class RateLimiter(Protocol):
    """Counts steps added and windows sampled, and decides who may go on."""

    minimum: int  # steps added before the first sample
    added: int  # steps so far
    sampled: int  # windows so far

    def may_add(self) -> bool:
        """Say whether an actor may add another trajectory."""

    def may_sample(self) -> bool:
        """Say whether another batch may be taken."""


class MinimumSize:
    """Learners wait for the first ``minimum`` steps; actors never wait."""

    def __init__(self, minimum: int) -> None:
        self.minimum = minimum
        self.added = self.sampled = 0

    def may_add(self) -> bool:
        """Return True."""
        return True

    def may_sample(self) -> bool:
        """Say whether the minimum has been added."""
        return self.added >= self.minimum


class SamplesPerInsert:
    """``ratio`` windows are sampled for each step added after the first ``minimum``.

    The rule is that of Reverb's rate limiter (Cassirer et al. 2021, section 3.3). The *surplus*
    is what may be sampled but has not been: ``ratio * (added - minimum) - sampled``. A
    trajectory is wanted while the surplus with it is at most ``tolerance``; a batch may be taken
    while the surplus without it is at least ``-tolerance``. So actors and learners could both be
    stopped only if ``tolerance - ratio * trajectory < surplus < batch - tolerance``, which no
    surplus is where the tolerance is at least ``ratio * trajectory`` and ``batch``. Actors that
    asked at the same moment may together go beyond the tolerance; learners then catch up.

    Args:
        ratio: windows sampled per step added.
        minimum: steps added before the first sample; they count for no samples.
        tolerance: windows by which the surplus may differ from 0.
        trajectory: steps that an actor adds at once (games * length).
        batch: windows that a learner samples at once.

    Raises:
        GeladaError: if the limit could never be met.
    """

    def __init__(
        self, ratio: float, minimum: int, tolerance: float, trajectory: int, batch: int
    ) -> None:
        if not 0.0 < ratio < float("inf"):
            raise GeladaError(
                f"samples per insert {ratio:g}: learners would never get a batch; give a number "
                "above 0"
            )
        least = max(ratio * trajectory, batch)
        if not tolerance >= least:
            raise GeladaError(
                f"samples per insert {ratio:g} with a tolerance of {tolerance:g} can never be met: "
                f"a trajectory of {trajectory:,} steps asks for {ratio * trajectory:,g} samples "
                f"and a batch takes {batch:,}; raise the tolerance to {least:,g} or more"
            )
        self.ratio, self.minimum, self.tolerance = ratio, minimum, tolerance
        self._trajectory, self._batch = trajectory, batch
        self.added = self.sampled = 0

    @property
    def surplus(self) -> float:
        """Windows that may be sampled but have not been (below 0: sampled too early)."""
        return self.ratio * (self.added - self.minimum) - self.sampled

    def may_add(self) -> bool:
        """Say whether another trajectory is wanted."""
        if self.added < self.minimum:
            return True
        return self.surplus + self.ratio * self._trajectory <= self.tolerance

    def may_sample(self) -> bool:
        """Say whether another batch may be taken."""
        return self.added >= self.minimum and self.surplus - self._batch >= -self.tolerance
