"""Measures slow environments of Gymnasium in one thread, and in processes (--env-processes).

    python -m benchmarks.env_processes

Eight games take random steps. A step takes 1 or 10 ms, of a processor (busy) or of waiting for
something else (idle), such as a simulator on another machine. Prints steps a second as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from colobus.core.functions import name_of
from colobus.envs.gym import GymGames

GAMES = 8
SECONDS = 10.0
PROCESSES = (0, 1, 2, 4, 8)
"""0 is the thread of an actor."""


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole, whose steps take long."""

    def __init__(self, milliseconds: float, busy: bool) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._seconds, self._busy = milliseconds / 1000, busy

    def step(self, action: Any) -> Any:
        """Play a step."""
        if self._busy:
            until = time.thread_time() + self._seconds
            while time.thread_time() < until:
                pass
        else:
            time.sleep(self._seconds)
        return super().step(action)


def steps_a_second(milliseconds: float, busy: bool, processes: int, seconds: float) -> float:
    """Return how many steps a second all games take together."""
    make = name_of(partial(Slow, milliseconds, busy))
    games = GymGames(make, np.arange(1, GAMES + 1), processes=processes)
    games.reset()
    random = np.random.default_rng(1)
    began, rounds = time.monotonic(), 0
    while (spent := time.monotonic() - began) < seconds:
        games.step(random.integers(games.actions, size=GAMES))
        rounds += 1
    games.close()
    return rounds * GAMES / spent


def main(args: Sequence[str] | None = None) -> int:
    """Measure all of them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    seconds = parser.parse_args(args).seconds
    for busy in (True, False):
        for milliseconds in (1.0, 10.0):
            for processes in PROCESSES:
                rate = steps_a_second(milliseconds, busy, processes, seconds)
                row = {"ms": milliseconds, "busy": busy, "processes": processes}
                print(json.dumps(row | {"steps a second": round(rate, 1)}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
