"""The stage that a role is in, since when, and the seconds spent in each stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
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
