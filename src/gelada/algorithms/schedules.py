"""Schedules: numbers that change with the environment steps, or follow a KL divergence."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from gelada.core.types import Aux

COEFFICIENT_LIMITS = (1e-4, 1e4)
"""Smallest and largest coefficient of a KL term that `followed` returns. Our choice: from 0 or
infinity the coefficient could never come back."""


def linear(start: float, end: float, steps: int, over: int) -> float:
    """Return a number that changes linearly from ``start`` to ``end`` with the steps.

    Args:
        start: value at 0 steps.
        end: value after ``over`` steps and later.
        steps: environment steps so far.
        over: environment steps of the change (0: the value is ``end`` after the first step).
    """
    done = min(steps / max(over, 1), 1.0)
    return start + done * (end - start)


def staircase(start: float, end: float, steps: int, over: int, stages: int) -> float:
    """Return a number that changes like `linear`, but in ``stages`` equal jumps.

    With one stage it is ``start`` before ``over`` steps and ``end`` from then on. With 0 stages it
    is `linear`.
    """
    if not stages:
        return linear(start, end, steps, over)
    done = math.floor(stages * min(steps / max(over, 1), 1.0)) / stages
    return start + done * (end - start)


def followed(coefficient: float, kl: float, target: float) -> float:
    """Return the next coefficient of a KL term, given the KL divergence that was measured.

    Schulman et al. 2017, section 4, with the numbers of RLlib: 1.5 times the coefficient if the
    divergence is above twice the target, half of it if it is below half the target.
    """
    if kl > 2.0 * target:
        coefficient *= 1.5
    elif kl < 0.5 * target:
        coefficient *= 0.5
    low, high = COEFFICIENT_LIMITS
    return min(max(coefficient, low), high)


Ends = Mapping[str, tuple[float, float | None]]
"""The start and the end of numbers by name. A number without an end is constant."""


def begun(ends: Ends) -> Aux:
    """Return the starts of the numbers that have an end, for an algorithm's own state."""
    return {
        name: torch.tensor(start, dtype=torch.float64)
        for name, (start, end) in ends.items()
        if end is not None
    }


def moved(aux: Aux, ends: Ends, steps: int, over: int) -> None:
    """Set the numbers of `begun` in an algorithm's state, linearly over ``over`` steps."""
    for name, (start, end) in ends.items():
        if end is not None:
            aux[name].fill_(linear(start, end, steps, over))


def current(aux: Aux, ends: Ends, name: str) -> float:
    """Return a number as it is now."""
    return float(aux[name]) if name in aux else ends[name][0]
