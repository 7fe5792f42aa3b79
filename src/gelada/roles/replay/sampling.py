"""How a replay buffer samples its windows: uniformly, or by priority.

Prioritized replay (Schaul et al. 2016, section 3) samples window ``i`` with probability
``P(i) = p_i^alpha / sum`` and weights its loss by ``(N P(i))^-beta``, divided by the largest such
weight of the batch. The largest is taken over the windows that have a step to learn from: a window
without one has a priority near 0, so its weight would make all others vanish.

The priority of a window is the absolute error that the learner reported for it, plus a small
constant. A window that was never sampled has the largest priority reported so far (1 at first).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gelada.core.types import Bools, Doubles, Floats, Ints
from gelada.roles.replay.frame_ring import Appended
from gelada.roles.replay.sum_tree import SumTree

SMALL = 1e-6
"""Added to every priority, so that each window keeps a chance (chosen; the paper has no number)."""


@dataclass(frozen=True)
class Uniform:
    """Sample every window with the same probability."""


@dataclass(frozen=True)
class Prioritized:
    """Sample windows by their priorities.

    Schaul et al. 2016 move beta to 1 in a straight line, as ``beta_end`` and ``beta_steps`` do;
    with their defaults it is ``beta_end`` from the start. Ape-X (Horgan et al. 2018), whose values
    ``alpha`` and ``beta`` have, keeps beta constant: for that, ``beta_end`` has the same value.
    """

    alpha: float = 0.6
    """Exponent of the priorities (0: uniform)."""
    beta: float = 0.4
    """Exponent of the importance weights at first."""
    beta_end: float = 1.0
    """Exponent after ``beta_steps`` (1: the weights undo the bias of the draw)."""
    beta_steps: float = 0.0
    """Steps added to the buffer over which the exponent changes (0: ``beta_end`` at once)."""

    def exponent(self, steps: float) -> float:
        """Return the exponent of the importance weights after so many added steps."""
        done = min(steps / self.beta_steps, 1.0) if self.beta_steps > 0 else 1.0
        return self.beta + done * (self.beta_end - self.beta)


Sampling = Uniform | Prioritized


class Priorities:
    """The priorities of ``places`` places of a buffer, 0 where no window can begin.

    Args:
        places: of the buffer.
        count: windows of a draw.
        sampling: exponents.
    """

    def __init__(self, places: int, count: int, sampling: Prioritized) -> None:
        self.tree = SumTree(places)
        self._count, self._parts = count, np.arange(count)
        self.largest = 1.0
        self._alpha = sampling.alpha

    def append(self, appended: Appended) -> None:
        """Forget the steps that are gone; give new windows the largest priority so far."""
        if len(appended.closed):
            self.tree.set(appended.closed, 0.0)
        if len(appended.opened):
            self.tree.set(appended.opened, self.largest**self._alpha)

    def draw(self, random: np.random.Generator) -> tuple[Ints, Doubles]:
        """Return keys int64[count] and their priorities float64[count], to the power of alpha.

        The draw is stratified: the sum of priorities is cut into ``count`` equal parts, and each
        part has one draw.
        """
        parts: Doubles = self._parts + random.random(self._count)
        keys = self.tree.find(parts * (self.tree.total / self._count))
        return keys, self.tree.weights.take(keys)

    def update(self, keys: Ints, priorities: Doubles) -> None:
        """Set the priorities of windows.

        Raises:
            ValueError: if one is negative or not finite.
        """
        if not len(keys):
            return
        least, most = float(priorities.min()), float(priorities.max())
        if not (least >= 0.0 and most < float("inf")):
            raise ValueError(f"priorities from {least} to {most}: must be finite and at least 0")
        self.largest = max(self.largest, most + SMALL)
        self.tree.set(keys, (priorities + SMALL) ** self._alpha)


def importance_weights(priorities: Doubles, counts: Bools, exponent: float) -> Floats:
    """Return importance weights float32[N], at most 1; 0 where a window does not count.

    Args:
        priorities: float64[N], to the power of alpha.
        counts: bool[N], whether a window has a step to learn from.
        exponent: beta.
    """
    weights = np.zeros(len(priorities), dtype=np.float32)
    if counts.any():
        counted = priorities[counts]
        # N and the sum are the same for all, so they cancel when the largest weight divides
        weights[counts] = (counted / counted.min()) ** -exponent
    return weights
