"""What a role is doing, since when, and where its time went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

WAIT = "wait"
"""Stages whose name starts with this are waits for another role, not work."""


class Clock:
    """Seconds by stage of one active role; read by whoever watches over it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stage = "starting"
        self.since = time.monotonic()
        self.steps = 0  # finished calls of step()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time inside as ``stage``."""
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
        """Whether the role waits for another one just now."""
        return self.stage.startswith(WAIT)
