"""The curve of a long run is short, even, and ends at the newest point."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gelada.roles.tracker.writer import Thinned


@pytest.mark.parametrize("most", [8, 9, 40])
def test_points_are_as_far_from_one_another_everywhere(most: int) -> None:
    curve = Thinned(most)
    for number in range(1000):
        curve.add((number, 0.0, 1.0))
        steps = [steps for steps, _, _ in curve.points]
        assert len(steps) < most
        assert (steps[0], steps[-1]) == (0, number)
        assert len({after - before for before, after in pairwise(steps[:-1])}) <= 1
        assert number < most - 1 or len(steps) >= most // 2


def test_a_short_curve_has_all_points() -> None:
    curve = Thinned(10)
    for number in range(9):
        curve.add((number, 0.1 * number, 1.0))
    assert curve.points == [(n, 0.1 * n, 1.0) for n in range(9)]
