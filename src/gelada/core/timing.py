"""The stage that a role is in, since when, and the seconds spent in each stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

WAIT = "wait"
"""In a stage whose name starts with this, a role waits for another role."""


class Clock:
    """Seconds in each stage of one active role; the runtime and the profiler read it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stage = "starting"
        self.since = time.monotonic()
        self.steps = 0  # finished calls of step()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time in this context as time of ``stage``."""
        before, start = self.stage, time.monotonic()
        self.stage, self.since = stage, start
        try:
            yield
        finally:
            now = time.monotonic()
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - start
            self.stage, self.since = before, now

    @property
    def waiting(self) -> bool:
        """Whether the role is waiting for another role now."""
        return self.stage.startswith(WAIT)


def bounding_stage(stages: Mapping[str, Mapping[str, float]]) -> str:
    """Return what bounds the speed, from seconds (or shares of a role's time) by role and stage.

    If the learners wait longer than they work, it is the stage that takes the actors most time;
    otherwise "learn".
    """
    waiting = working = 0.0
    acting: dict[str, float] = {}
    for role, seconds in stages.items():
        for stage, spent in seconds.items():
            waits = stage.startswith(WAIT)
            if role.startswith("learner"):
                waiting, working = waiting + waits * spent, working + (not waits) * spent
            elif not waits:
                acting[stage] = acting.get(stage, 0.0) + spent
    if acting and waiting > working:
        return max(acting, key=lambda stage: acting[stage])
    return "learn" if working else "starting"
