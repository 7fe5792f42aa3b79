"""Numbers that move with the environment steps."""

from __future__ import annotations


def linear(start: float, end: float, steps: int, over: int) -> float:
    """Return a number that moves in a straight line from ``start`` to ``end``.

    Args:
        start: at 0 steps.
        end: after ``over`` steps, and from then on.
        steps: environment steps so far.
        over: environment steps that the line takes; 0 is at the end at once.
    """
    done = min(steps / max(over, 1), 1.0)
    return start + done * (end - start)
