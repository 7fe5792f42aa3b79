"""What a peer's script shares with the others: its flags, its count of steps, its line of JSON.

A *step* is one agent decision of 4 emulator frames that was acted and learned. This file needs
nothing but the standard library, because it runs in every peer's own environment.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SETTLED = 0.3
"""Share of the time, from the first count on, that is left out: loading, filling of queues."""

LEAST_COUNTS = 6
"""Counts that a run needs at least; it goes on for longer than it was told until it has them."""

FIELDS = ("peer", "version", "steps", "seconds", "steps_per_s", "command")
"""What a peer's line must have besides what describes the run (`network`, `input`, `passes`)."""


class Rate(NamedTuple):
    """Steps in a window of seconds."""

    steps: int
    seconds: float

    def as_dict(self) -> dict[str, float]:
        """Return both and the steps per second, rounded."""
        rate = round(self.steps / self.seconds, 1)
        return {"steps": self.steps, "seconds": round(self.seconds, 2), "steps_per_s": rate}


class Counts:
    """Notes how many steps were learned until when.

    Args:
        seconds: between the first count and the last that a run should have.
        clock: in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.points: list[tuple[float, int]] = []
        self._seconds, self._clock = seconds, clock

    def see(self, steps: int) -> bool:
        """Note that ``steps`` were learned since the start; return whether that is enough."""
        if not self.points or steps > self.points[-1][1]:
            self.points.append((self._clock(), steps))
        span = self.points[-1][0] - self.points[0][0]
        return span >= self._seconds and len(self.points) >= LEAST_COUNTS


def steady(points: Sequence[tuple[float, int]]) -> Rate:
    """Return the rate between the first count after `SETTLED` of the time and the last.

    Args:
        points: (seconds, steps learned until then), in order.

    Raises:
        ValueError: if there are not two counts after that, or no step between them.
    """
    settled = points[0][0] + SETTLED * (points[-1][0] - points[0][0]) if points else 0.0
    kept = [point for point in points if point[0] >= settled]
    if len(kept) < 2 or kept[-1][1] <= kept[0][1]:
        raise ValueError(f"{len(kept)} counts in the steady part: the run was too short")
    return Rate(kept[-1][1] - kept[0][1], kept[-1][0] - kept[0][0])


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that all peers have."""
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--game", default="Pong", help="as in ALE/GAME-v5 (default: Pong)")
    flags.add_argument("--seconds", type=float, default=60.0, help="of counting (default: 60)")
    return flags


def report(points: Sequence[tuple[float, int]], **about: Any) -> None:
    """Print the line of JSON that says how fast a peer was; see `FIELDS`."""
    command = " ".join(["python", Path(sys.argv[0]).name, *sys.argv[1:]])
    print(json.dumps({**about, **steady(points).as_dict(), "command": command}), flush=True)
