"""What a peer's script shares with the others: its flags, its counts, its line of JSON.

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
from statistics import fmean
from typing import Any

SETTLED = 0.3
"""Share of the time, from the first count on, that is left out: loading, filling of queues."""

LEAST_COUNTS = 6
"""Counts that a run needs at least; it goes on for longer than it was told until it has them."""

GAMES = 20
"""The newest training games, of which a peer's score is the mean."""

CURVE_SECONDS = 60.0
"""Between two points of the learning curve that is kept."""

MARKS = (60, 120, 300, 600, 1200, 2400, 3600)
"""Seconds after which networks are kept, if they are."""


class Counts:
    """Notes how many steps were learned until when, and with what score.

    Args:
        seconds: between the first count and the last that a run should have.
        score: ends the run as soon as it is reached.
        clock: in seconds.
        keep: folder for networks.

    Attributes:
        points: (seconds, steps learned until then), in order.
        scores: (seconds since the first count, steps, mean return), in order.
        reached: when the score was: seconds since the first count, and steps.
    """

    def __init__(
        self,
        seconds: float,
        score: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        keep: Path | None = None,
    ) -> None:
        self.points: list[tuple[float, int]] = []
        self.scores: list[tuple[float, int, float]] = []
        self.reached: tuple[float, int] | None = None
        self._seconds, self._score, self._clock = seconds, score, clock
        self._keep, self._kept = keep, 0

    def see(self, steps: int, returns: Sequence[float] = ()) -> bool:
        """Note that ``steps`` were learned since the start; return whether that is enough.

        Args:
            steps: agent decisions.
            returns: of the training games that ended last, the newest last; the first games of a
                run, fewer than `GAMES`, have no mean.
        """
        if not self.points or steps > self.points[-1][1]:
            self.points.append((self._clock(), steps))
        span = self.points[-1][0] - self.points[0][0]
        if self._score is not None and len(returns) >= GAMES:
            now, mean = round(span, 2), fmean(returns[-GAMES:])
            self.scores.append((now, steps, mean))
            if self.reached is None and mean >= self._score:
                self.reached = now, steps
        over = span >= self._seconds or self.reached is not None
        return over and len(self.points) >= LEAST_COUNTS

    def place_to_keep(self, steps: int) -> Path | None:
        """Return the file for a network, named by seconds and steps, if it is time to keep one."""
        now = self._clock() - self.points[0][0] if self.points else 0.0
        due = sum(mark <= now for mark in MARKS)
        if self._keep is None or due <= self._kept:
            return None
        self._kept = due
        return self._keep / f"{now:.0f}-{steps}.npz"

    def about_score(self) -> dict[str, Any]:
        """Return what is reported of the score, nothing if none was asked for."""
        if self._score is None:
            return {}
        curve: list[list[float]] = []
        for seconds, steps, mean in self.scores:
            if not curve or seconds >= curve[-1][0] + CURVE_SECONDS:
                curve.append([seconds, steps, round(mean, 2)])
        return {
            "score": self._score,
            "within": self._seconds,
            "reached": dict(zip(("seconds", "steps"), self.reached or (None, None), strict=True)),
            "last": round(self.scores[-1][2], 2) if self.scores else None,
            "curve": curve,
        }


def steady(points: Sequence[tuple[float, int]]) -> dict[str, float]:
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
    steps, seconds = kept[-1][1] - kept[0][1], kept[-1][0] - kept[0][0]
    rate = round(steps / seconds, 1)
    return {"steps": steps, "seconds": round(seconds, 2), "steps_per_s": rate}


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that all peers have."""
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--game", default="Pong", help="as in ALE/GAME-v5 (default: Pong)")
    flags.add_argument("--seconds", type=float, default=60.0, help="of counting (default: 60)")
    flags.add_argument("--score", type=float, help="ends the run when training games reach it")
    flags.add_argument("--keep", type=Path, help="folder for the network after some minutes")
    return flags


def report(counts: Counts, **about: Any) -> None:
    """Print the line of JSON that says how fast a peer was, and learned."""
    command = " ".join(["python", Path(sys.argv[0]).name, *sys.argv[1:]])
    line = {**about, **steady(counts.points), "command": command}
    print(json.dumps({**line, **counts.about_score()}), flush=True)
