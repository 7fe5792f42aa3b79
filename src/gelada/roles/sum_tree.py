"""Non-negative weights of many places, their sum, and draws in proportion to them.

The sum tree of Schaul et al. 2016 (appendix B.2.1) with 64 children to a node instead of two: one
row of 64 numbers is little more work for numpy than one pair, and a million places make four
levels instead of twenty.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gelada.types import Ints

Doubles = NDArray[np.float64]

CHILDREN = 64


class SumTree:
    """Weights float64[size], all 0 at first."""

    def __init__(self, size: int) -> None:
        self._levels: list[Doubles] = []  # leaves first; each is [nodes of the level above, 64]
        for rows in rows_of(size):
            self._levels.append(np.zeros((rows, CHILDREN)))
        self._leaves: Doubles = self._levels[0].reshape(-1)[:size]

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._levels[-1].sum())

    @property
    def weights(self) -> Doubles:
        """The weights float64[size], a view; whoever writes to it calls `sum_anew` after."""
        return self._leaves

    @property
    def nbytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.nbytes for level in self._levels)

    def set(self, places: Ints, weights: Doubles | float) -> None:
        """Set the weights of ``places`` int64[M]; of a place given twice, one of the two counts."""
        self._leaves[places] = weights
        nodes = places
        for level, above in pairwise(self._levels):
            nodes = nodes // CHILDREN
            if len(nodes) > CHILDREN:  # many neighbours: most share a node
                nodes = np.unique(nodes)
            # summed anew from all children, so errors of rounding do not grow with the changes
            above.reshape(-1)[nodes] = level[nodes].sum(axis=1)

    def sum_anew(self) -> None:
        """Sum all weights anew."""
        for level, above in pairwise(self._levels):
            above.reshape(-1)[: len(level)] = level.sum(axis=1)

    def find(self, targets: Doubles) -> Ints:
        """Return places int64[M] for ``targets`` float64[M] in [0, total).

        Place ``i`` is returned for targets from the sum of the weights before it up to that sum
        with its own. So its weight is never 0, as long as the total is above 0.
        """
        nodes: Ints = np.zeros(len(targets), dtype=np.int64)
        left, rows = targets, np.arange(len(targets))
        for level in reversed(self._levels):
            sums = level[nodes].cumsum(axis=1)  # [M, 64]
            # a node's own sum may differ from its row's by rounding
            left = np.minimum(left, np.nextafter(sums[:, -1], 0.0))
            child = np.count_nonzero(sums <= left[:, None], axis=1)
            left = left - np.where(child > 0, sums[rows, child - 1], 0.0)
            nodes = nodes * CHILDREN + child
        return nodes


def rows_of(size: int) -> list[int]:
    """Return the number of rows of each level for ``size`` places, leaves first."""
    rows = [-(-size // CHILDREN)]
    while rows[-1] > 1:
        rows.append(-(-rows[-1] // CHILDREN))
    return rows


def tree_bytes(size: int) -> int:
    """Return the bytes that a tree of ``size`` places takes."""
    return sum(rows_of(size)) * CHILDREN * 8
