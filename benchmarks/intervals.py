"""Means of a few seeds with 95 % intervals of Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Of 97.5 % with one degree of freedom fewer than there are values. With so few seeds a bootstrap,
which draws from nothing but them, gives intervals that are too narrow."""


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def shown(self, form: str) -> str:
        """Return it as text, each number in a format such as ``{:.2f}``."""
        mean, low, high = (form.format(value) for value in self)
        return f"{mean} ({low} to {high})"


def interval(values: Sequence[float]) -> Interval | None:
    """Return the mean of two to five values with its interval; None for other numbers of them."""
    if len(values) not in QUANTILES:
        return None
    mean = fmean(values)
    around = QUANTILES[len(values)] * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - around, mean + around)


def geometric(values: Sequence[float]) -> Interval | None:
    """Return the geometric mean of positive values with its interval, that of their logarithms."""
    found = interval([math.log(value) for value in values])
    return None if found is None else Interval(*map(math.exp, found))
