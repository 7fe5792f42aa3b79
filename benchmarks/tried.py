"""What the search for one recipe (`halving.py`) has found: candidates, runs, who goes on.

A score is the mean of the last 50 training games. It counts as a share: 0 is random play, 1 the
best public curve at 6 million frames (`gelada.report.plots`), which is where ten minutes on
two cores come to. A candidate's value is the mean of its games' shares.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from candidates import Settings
from gelada.core.files import read_lines
from gelada.evaluation.scores import normalised, published
from gelada.report.plots import public_curves
from ledger import Line

FILE = Path(__file__).resolve().parent / "results" / "halving.jsonl"

GAMES = ("qbert", "space_invaders", "freeway", "seaquest")
"""Of the six games those in which recipes differ most. The first two weigh most in the
interquartile mean of all six, so they are played first."""

FRAMES = 6_000_000


class Level(NamedTuple):
    """A level of a round."""

    minutes: float  # of training of each game
    seed: int
    candidates: int  # that reach it


LEVELS = (Level(2.5, 11, 8), Level(10.0, 11, 3), Level(10.0, 12, 1))
"""The last level plays the best candidate with another seed: what was chosen for one seed looks
better on it than it is."""

BEFORE = 1
"""The level whose values Optuna learns from, where a candidate has reached it."""


class Run(NamedTuple):
    """A run of the search."""

    candidate: int
    game: str
    level: int


class Search:
    """What the file says.

    Args:
        lines: of the file, oldest first.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self.settings: dict[int, Settings] = {}
        self.rounds: list[list[int]] = []  # candidates of each
        self.runs: dict[Run, Line] = {}
        for line in lines:
            if line["kind"] == "candidate":
                number = int(line["candidate"])
                self.settings[number] = line["settings"]
                self.rounds += [[] for _ in range(line["round"] + 1 - len(self.rounds))]
                self.rounds[line["round"]].append(number)
            else:
                run = Run(line["candidate"], line["game"], line["level"])
                self.runs.setdefault(run, line)  # the first result counts

    def value(self, candidate: int, level: int) -> float | None:
        """Return the mean share of a candidate's games at a level; None if one is missing."""
        own = [self.runs.get(Run(candidate, game, level)) for game in GAMES]
        found = [share(line["game"], line["score"]) for line in own if line is not None]
        return fmean(found) if len(found) == len(GAMES) else None

    def reaching(self, level: int) -> list[int]:
        """Return the candidates of the newest round that play at a level, the best ones first.

        It is empty as long as the level before is not finished.
        """
        if level == 0:
            return list(self.rounds[-1]) if self.rounds else []
        values = {one: self.value(one, level - 1) for one in self.reaching(level - 1)}
        known = {one: value for one, value in values.items() if value is not None}
        if not known or len(known) < len(values):
            return []
        return sorted(known, key=lambda one: (-known[one], one))[: LEVELS[level].candidates]

    def missing(self) -> list[Run]:
        """Return the runs of the level that is being played, in their order; [] after a round."""
        for level in range(len(LEVELS)):
            own = self.reaching(level)
            runs = [Run(one, game, level) for game in GAMES for one in own]
            if todo := [run for run in runs if run not in self.runs]:
                return todo
        return []

    def tried(self) -> list[tuple[Settings, dict[int, float]]]:
        """Return the settings of all candidates, with their values by level.

        Each value is less the mean of its round at that level: the machines of some rounds were
        twice as fast as those of others, and a faster one makes any candidate look better.
        """
        values: dict[int, dict[int, float]] = {number: {} for number in self.settings}
        for numbers, level in product(self.rounds, range(BEFORE + 1)):
            own = {number: self.value(number, level) for number in numbers}
            known = {number: value for number, value in own.items() if value is not None}
            for number, value in known.items():
                values[number][level] = value - fmean(known.values())
        return [(self.settings[number], own) for number, own in values.items()]


def share(game: str, score: float | None) -> float:
    """Return a score as a share: 0 is random play, 1 the best public curve at 6 M frames.

    A run without a score (its loss diverged, or no game ended) counts as random play.
    """
    low = published(game, "random")
    assert low is not None
    if score is None:
        return 0.0
    best = max(one.points[FRAMES] for one in public_curves(game) if FRAMES in one.points)
    return (score - low) / (best - low)


def minutes_of(run: Run) -> float:
    """Return the minutes that a run takes: less than its level's if it goes on with one before."""
    level = LEVELS[run.level]
    before = [one.minutes for one in LEVELS[: run.level] if one.seed == level.seed]
    return level.minutes - max(before, default=0.0)


WEIGHTS = {"qbert": 3, "space_invaders": 3, "freeway": 2, "seaquest": 2}
"""How many runs of each game the interquartile mean over six games and three seeds takes, if all of
Boxing are above these and all of Beam Rider below: of 18 runs the middle ten count."""


def estimated(scores: dict[str, float | None]) -> float:
    """Return the interquartile mean of human-normalised scores that the six games would have."""
    total = 0.0
    for game, score in scores.items():
        percent = 0.0 if score is None else normalised(score, game)
        assert percent is not None
        total += WEIGHTS[game] * percent / 100
    return total / sum(WEIGHTS.values())


def lines() -> list[Line]:
    """Return the lines of the file; a line that was cut off is left out."""
    return read_lines(FILE) if FILE.exists() else []


def append(*new: Line) -> None:
    """Add lines in one write and flush them to the disk."""
    whole = not FILE.exists() or FILE.read_bytes()[-1:] in (b"", b"\n")
    with FILE.open("a", encoding="utf-8") as file:
        file.write(("" if whole else "\n") + "".join(json.dumps(line) + "\n" for line in new))
        file.flush()
        os.fsync(file.fileno())
