"""Which windows of a store are drawn how often: prioritized replay.

Schaul et al. 2016, section 3: window ``i`` is drawn with probability ``P(i) = p_i^alpha / sum``,
and its loss is weighted by ``(N P(i))^-beta``, divided by the largest such weight of the batch.
A priority is the absolute error that the learner met there, plus a small constant. A window that
was never learned from has the largest priority seen so far (1 at the start).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gelada.core.types import Floats, Ints
from gelada.roles.replay.ring import Appended
from gelada.roles.replay.sum_tree import Doubles, SumTree

SMALL = 1e-6
"""Added to every priority, so that no window is lost for ever (chosen; the paper has no number)."""


@dataclass(frozen=True)
class Uniform:
    """Every window with the same probability."""


@dataclass(frozen=True)
class Prioritized:
    """Windows by their priorities; the defaults are those of Ape-X (Horgan et al. 2018)."""

    alpha: float = 0.6
    """Exponent of the priorities (0: uniform)."""
    beta: float = 0.4
    """Exponent of the importance weights (1: the bias is undone)."""


Select = Uniform | Prioritized


class Priorities:
    """Priorities of ``places`` places of a store, 0 where no window can begin.

    A draw is of ``count`` windows.
    """

    def __init__(self, places: int, count: int, select: Prioritized) -> None:
        self.tree = SumTree(places)
        self._count, self._parts = count, np.arange(count)
        self.largest = 1.0
        self._alpha, self._beta = select.alpha, select.beta

    def append(self, appended: Appended) -> None:
        """Forget the steps that are gone; give new windows the largest priority seen."""
        if len(appended.closed):
            self.tree.set(appended.closed, 0.0)
        if len(appended.opened):
            self.tree.set(appended.opened, self.largest**self._alpha)

    def draw(self, random: np.random.Generator) -> tuple[Ints, Floats]:
        """Return keys int64[count] and importance weights float32[count].

        Stratified: the sum of priorities is cut into ``count`` equal parts with one draw in each.
        """
        parts: Doubles = self._parts + random.random(self._count)
        keys = self.tree.find(parts * (self.tree.total / self._count))
        weights = self.tree.weights.take(keys)
        # N and the sum are the same for all, so they cancel when the largest weight divides
        return keys, ((weights / weights.min()) ** -self._beta).astype(np.float32)

    def update(self, keys: Ints, priorities: Doubles) -> None:
        """Set the priorities of windows.

        Raises:
            ValueError: if one is below 0 or no finite number.
        """
        if not len(keys):
            return
        least, most = float(priorities.min()), float(priorities.max())
        if not (least >= 0.0 and most < float("inf")):
            raise ValueError(f"priorities from {least} to {most}: must be finite and at least 0")
        self.largest = max(self.largest, most + SMALL)
        self.tree.set(keys, (priorities + SMALL) ** self._alpha)
