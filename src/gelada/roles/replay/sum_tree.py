"""Non-negative weights of many places, their sum, and draws in proportion to them.

The sum tree of Schaul et al. 2016 (appendix B.2.1), broad and flat: a node has 64 children, and
the top level has up to 4,096 nodes that are summed up one after the other. That is little work
for numpy, and less than a call for each of twenty levels.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from gelada.core.types import Doubles, Ints

CHILDREN = 64
TOP = 4096
"""Nodes of the top level at most."""


class SumTree:
    """Weights float64[size], all 0 at first."""

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

    @property
    def nbytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.nbytes for level in self._levels)

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


def tree_bytes(size: int) -> int:
    """Return the bytes that a tree of ``size`` places takes, but for a few running sums."""
    return sum(rows_of(size)) * CHILDREN * 8
