"""When a run will end, and by which of its stop rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gelada.core.timing import clock
from gelada.roles.tracker import Status, StopRule

Points = Sequence[tuple[float, float]]
"""(seconds, score), oldest first."""

LATELY = 1 / 3
"""Share of the time so far over which the trend of a score is taken …"""

LEAST_SECONDS = 20.0
"""… but at least so many seconds."""

LONGEST = 100 * 3600.0
"""A score that would be reached later than in so many seconds is not in sight."""


class Ending(NamedTuple):
    """How near one stop rule is."""

    what: str  # completes "43 % of …"
    share: float  # 0 to 1
    left: float | None  # seconds until it holds; None: there is no telling
    sure: bool  # the rule is one of steps or time, which come for certain


def endings(status: Status, stop: StopRule, rate: float, evaluations: Points = ()) -> list[Ending]:
    """Return how near each rule of a run is, the one that is expected first before the others.

    A score is expected where its trend of late leads to.

    Args:
        status: of the run.
        stop: its rules.
        rate: steps per second.
        evaluations: means of the evaluator, by the seconds when they were told.
    """
    found = []
    if stop.steps is not None:
        left = max(stop.steps - status.steps, 0) / rate if rate > 0 else None
        share = min(status.steps / stop.steps, 1.0)
        found.append(Ending(f"{stop.steps:,} steps", share, left, True))
    if stop.minutes is not None:
        end = 60 * stop.minutes
        left = max(end - status.seconds, 0.0)
        what = f"{stop.minutes:g} minute{'s' * (stop.minutes != 1)}"
        found.append(Ending(what, min(status.seconds / end, 1.0), left, True))
    if stop.until_score is not None:
        points = [(seconds, score) for _, seconds, score in status.curve]
        found.append(_of_score("a score of", points, stop.until_score))
    if isinstance(stop.until_evaluated, float | int):
        found.append(_of_score("an evaluated score of", evaluations, stop.until_evaluated))
    return sorted(found, key=lambda one: (one.left is None, one.left or 0.0, not one.sure))


def _of_score(what: str, points: Points, goal: float) -> Ending:
    """Return how near a score is to its goal, and when it will be there if it goes on like that."""
    what = f"the way to {what} {goal:g}"
    if not points:
        return Ending(what, 0.0, None, False)
    now, low = points[-1][1], min(score for _, score in points)
    share = min(max((now - low) / (goal - low), 0.0), 1.0) if goal > low else 1.0
    slope = trend(points)
    left = max(goal - now, 0.0) / slope if slope > 0 else None
    return Ending(what, share, left if left is not None and left < LONGEST else None, False)


def trend(points: Points) -> float:
    """Return the rise of a score in a second of late; 0 if there are too few points."""
    last = points[-1][0]
    since = last - max(LATELY * last, LEAST_SECONDS)
    recent = [point for point in points if point[0] >= since]
    half = len(recent) // 2
    if half < 1:
        return 0.0
    (t1, early), (t2, late) = (_middle(part) for part in (recent[:half], recent[half:]))
    return (late - early) / (t2 - t1) if t2 > t1 else 0.0


def _middle(points: Points) -> tuple[float, float]:
    """Return the means of time and score."""
    count = len(points)
    return sum(t for t, _ in points) / count, sum(score for _, score in points) / count


def progress(found: Sequence[Ending]) -> str:
    """Return how much is done by the rule that will end the run; "" without rules."""
    return f"{100 * found[0].share:.0f} % of {found[0].what}" if found else ""


def time_left(found: Sequence[Ending]) -> str:
    """Return the time until the run ends in words, such as "about 1:10 left, at most 4:58"."""
    if not found or found[0].left is None:
        return ""
    first = found[0]
    longest = min((one.left for one in found if one.sure and one.left is not None), default=None)
    if first.sure:
        sooner = any(not one.sure for one in found)
        return f"{'at most ' if sooner else ''}{clock(first.left)} left"
    most = "" if longest is None else f", at most {clock(longest)}"
    return f"about {clock(first.left)} left{most}"
