"""A curve that stays short, however long the run is."""

from __future__ import annotations

Point = tuple[int, float, float]
"""Steps, seconds, score."""

MOST_POINTS = 4000
"""Points at most. A status with the curve crosses between processes about twice a second."""


class Thinned:
    """Keeps every ``n``-th point and the newest one; ``n`` doubles when there are too many.

    Args:
        most: points that are kept at most.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.points: list[Point] = []
        self._most, self._every, self._count = most, 1, 0

    def add(self, point: Point) -> None:
        """Add the newest point."""
        if self._count and (self._count - 1) % self._every:  # the last one was kept as the newest
            self.points[-1] = point
        else:
            self.points.append(point)
        self._count += 1
        if len(self.points) >= self._most:
            self.points = [*self.points[:-1:2], self.points[-1]]
            self._every *= 2
