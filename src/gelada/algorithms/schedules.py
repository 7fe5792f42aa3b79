"""Schedules: numbers that change with the environment steps."""

from __future__ import annotations


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
