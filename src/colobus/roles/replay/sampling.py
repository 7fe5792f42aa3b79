"""When and how a replay buffer is sampled: a rate limiter, uniform draws, and priorities.

Prioritized replay (Schaul et al. 2016, section 3) samples window ``i`` with probability
``P(i) = p_i^alpha / sum`` and weights its loss by ``(N P(i))^-beta``, divided by the largest such
weight of the batch. The largest is taken over the windows that have a step to learn from: a window
without one has a priority near 0, so its weight would make all others vanish.

The priority of a window is the absolute error that the learner reported for it, plus a small
constant. A window that was never sampled has the largest priority reported so far (1 at first).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from colobus.core.types import Bools, Doubles, Floats, Ints
from colobus.roles.replay.frame_ring import STEP_BYTES, Appended, BufferShape


@dataclass(eq=False)
class RateLimiter:
    """Lets learners wait for the first ``minimum`` steps; with a ratio keeps both sides in step.

    It counts steps added and windows sampled since the buffer was made. One window is one sample,
    however many steps it has: with n-step returns it makes one target, and one priority always.

    With a ``ratio``, so many windows are sampled for each step added after the minimum. The rule is
    that of Reverb's rate limiter (Cassirer et al. 2021, section 3.3). The *surplus*
    is what may be sampled but has not been: ``ratio * (added - minimum) - sampled``. A
    trajectory is wanted while the surplus with it is at most ``tolerance``; a batch may be taken
    while the surplus without it is at least ``-tolerance``. So actors and learners could both be
    stopped only if ``tolerance - ratio * trajectory < surplus < batch - tolerance``, which no
    surplus is where the tolerance is at least ``ratio * trajectory`` and ``batch``. Actors that
    asked at the same moment may together go beyond the tolerance; learners then catch up.
    """

    minimum: int  # steps added before the first sample; they count for no samples
    ratio: float = 0.0  # windows sampled per step added
    tolerance: float = math.inf
    """Windows by which the surplus may differ from 0 (default: actors never wait, and learners for
    the minimum only)."""
    trajectory: int = 0  # steps that an actor adds at once (games * length)
    batch: int = 0  # windows that a learner samples at once
    added: int = 0
    sampled: int = 0

    @property
    def surplus(self) -> float:
        """Windows that may be sampled but have not been (below 0: sampled too early)."""
        return self.ratio * (self.added - self.minimum) - self.sampled

    def may_add(self) -> bool:
        """Say whether an actor may add another trajectory."""
        if self.added < self.minimum:
            return True
        return self.surplus + self.ratio * self.trajectory <= self.tolerance

    def may_sample(self) -> bool:
        """Say whether another batch may be taken."""
        return self.added >= self.minimum and self.surplus - self.batch >= -self.tolerance


CHILDREN = 64
TOP = 4096
"""Nodes of the top level at most."""


class SumTree:
    """Non-negative weights float64[size] of places, their sum, and draws in proportion to them.

    The sum tree of Schaul et al. 2016 (appendix B.2.1), broad and flat: a node has 64 children, and
    the top level has up to 4,096 nodes that are summed up one after the other. That is little work
    for numpy, and less than a call for each of twenty levels. All weights are 0 at first.
    """

    def __init__(self, size: int) -> None:
        self._levels = [np.zeros((rows, CHILDREN)) for rows in rows_of(size)]  # leaves first
        self._flat: list[Doubles] = [level.reshape(-1) for level in self._levels]
        self._size = size
        self._sums: Doubles | None = None  # 0 and the running sums of the top level

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._running()[-1])

    @property
    def weights(self) -> Doubles:
        """The weights float64[size], a view; whoever writes to it calls `sum_anew` after."""
        return self._flat[0][: self._size]

    def set(self, places: Ints, weights: Doubles | float) -> None:
        """Set the weights of ``places`` int64[M]; of a place given twice, one of the two counts."""
        self._flat[0][places] = weights
        for level, above in zip(self._levels, self._flat[1:], strict=False):
            places = places // CHILDREN
            if len(places) > CHILDREN:  # many neighbours: most share a node
                places = np.unique(places)
            # summed anew from all children, so errors of rounding do not grow with the changes
            above[places] = np.add.reduce(level[places], axis=1)
        self._sums = None

    def sum_anew(self) -> None:
        """Sum all weights anew."""
        for level, above in pairwise(self._levels):
            above.reshape(-1)[: len(level)] = np.add.reduce(level, axis=1)
        self._sums = None

    def find(self, targets: Doubles) -> Ints:
        """Return places int64[M] for ``targets`` float64[M] in [0, total).

        Place ``i`` is returned for targets from the sum of the weights before it up to that sum
        with its own. So its weight is never 0, as long as the total is above 0.
        """
        sums = self._running()
        left = np.minimum(targets, math.nextafter(sums[-1], 0.0))
        nodes: Ints = sums[1:].searchsorted(left, side="right")
        left = left - sums.take(nodes)
        for level in self._levels[-2::-1]:
            rows = level.take(nodes, axis=0).cumsum(axis=1)  # [M, 64]
            # a node's own sum may differ from its row's by rounding
            left = np.minimum(left, np.nextafter(rows[:, -1], 0.0))
            child = (rows > left[:, None]).argmax(axis=1)  # the first
            nodes = nodes * CHILDREN + child
            if level is not self._levels[0]:
                left = left - np.where(child > 0, rows[np.arange(len(rows)), child - 1], 0.0)
        return nodes

    def _running(self) -> Doubles:
        """Return 0 and the running sums of the top level."""
        if self._sums is None:
            top = self._flat[-1]
            self._sums = np.zeros(len(top) + 1)
            top.cumsum(out=self._sums[1:])
        return self._sums


def rows_of(size: int) -> list[int]:
    """Return the rows of 64 of each level for ``size`` places, leaves first."""
    rows = [-(-size // CHILDREN)]
    while rows[-1] * CHILDREN > TOP:
        rows.append(-(-rows[-1] // CHILDREN))
    return rows


SMALL = 1e-6
"""Added to every priority, so that each window keeps a chance (chosen; the paper has no number)."""


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


class Priorities:
    """The priorities of ``places`` places of a buffer, 0 where no window can begin.

    Args:
        places: of the buffer.
        count: windows of a draw.
        sampling: exponents.
    """

    def __init__(self, places: int, count: int, sampling: Prioritized) -> None:
        self.tree, self.sampling = SumTree(places), sampling
        self._count, self._parts = count, np.arange(count)
        self.largest = 1.0

    def append(self, appended: Appended) -> None:
        """Forget the steps that are gone; give new windows the largest priority so far."""
        if len(appended.closed):
            self.tree.set(appended.closed, 0.0)
        if len(appended.opened):
            self.tree.set(appended.opened, self.largest**self.sampling.alpha)

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
        self.tree.set(keys, (priorities + SMALL) ** self.sampling.alpha)


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


def bytes_needed(shape: BufferShape, prioritized: bool) -> int:
    """Return the bytes that a `ReplayBuffer` of this shape takes. Nothing is allocated.

    Raises:
        ColobusError: if the capacity is too small.
    """
    places = shape.streams * (shape.kept_steps() + shape.stack)
    frame = math.prod(shape.frame_shape) * np.dtype(shape.frame_type).itemsize
    # a tree has a few running sums besides
    tree = sum(rows_of(places)) * CHILDREN * 8 if prioritized else 0
    return places * (frame + STEP_BYTES) + tree
