"""The ledger of measurements: what was started, what came of it, and the rules for reading it.

A *cell* is (what, hash of the settings, seed). Each line of ``results/ledger.jsonl`` is one event
of one cell: ``started``, then ``finished`` with its result or ``failed`` with its error. Lines are
only ever appended, so every run that was started stays on record.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gelada.core.files import parse_lines

Line = dict[str, Any]

LEDGER = Path(__file__).parent / "results" / "ledger.jsonl"

RUNS = Path(__file__).parent / "runs"
"""Runs of cells that another cell needs; not committed."""


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    what: str
    seed: int
    settings: dict[str, Any]  # everything the result may depend on, but for seed and code
    measure: Callable[[Cell, Path, Path], dict[str, Any]]  # (cell, empty folder, log folder)

    @property
    def hash(self) -> str:
        """Return the hash of the settings."""
        return settings_hash(self.settings)

    @property
    def name(self) -> str:
        """Return what, hash and seed as one word."""
        return f"{self.what}-{self.hash}-{self.seed}"

    def matches(self, line: Line) -> bool:
        """Say whether a line of the ledger is about this cell."""
        mine = (self.what, self.hash, self.seed)
        return (line["what"], line["settings"], line["seed"]) == mine


def logged_metrics(line: Line) -> list[Line]:
    """Return the metrics that are kept of a line's run, oldest first."""
    data = gzip.decompress((LEDGER.parent / line["log"] / "metrics.jsonl.gz").read_bytes())
    return parse_lines(data.decode())


class Ledger:
    """The file: one JSON object a line, appended and never changed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[Line]:
        """Return all lines, oldest first."""
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def of(self, cell: Cell) -> list[Line]:
        """Return the lines about a cell, oldest first."""
        return [line for line in self.lines() if cell.matches(line)]

    def append(self, line: Line) -> None:
        """Add a line in one write, so that two measuring processes do not mix theirs."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def settings_hash(settings: dict[str, Any]) -> str:
    """Return 12 hexadecimal digits that name the settings, whatever the order of their keys."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def finished(lines: Iterable[Line]) -> Line | None:
    """Return the first finished line of a cell, or None: a result is never measured away."""
    return next((line for line in lines if line["event"] == "finished"), None)


def result_of(cell: Cell, lines: Iterable[Line]) -> dict[str, Any] | None:
    """Return a cell's result, or None if it is missing."""
    line = finished(line for line in lines if cell.matches(line))
    return None if line is None else line["result"]


def state(lines: Sequence[Line]) -> str:
    """Return what has become of a cell in words."""
    started = sum(line["event"] == "started" for line in lines)
    failed = sum(line["event"] == "failed" for line in lines)
    done = finished(lines)
    lost = started - failed - (done is not None)
    parts = ["finished" if done else "missing"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{lost} started without an end"] if lost else []
    return ", ".join(parts)


def missing(cells: Sequence[Cell], lines: Sequence[Line]) -> list[Cell]:
    """Return the cells that have no finished line, in their order."""
    return [cell for cell in cells if not finished([line for line in lines if cell.matches(line)])]


def first_confirmed(count: int, mean: Callable[[int, bool], float], threshold: float) -> int | None:
    """Return the first of ``count`` checkpoints whose mean score is reached twice, or None.

    Args:
        count: of checkpoints, oldest first.
        mean: (index, whether to confirm) to the mean score of fresh games. It is asked in order,
            and to confirm only where the first answer reached the threshold.
        threshold: both means must be at least this.
    """
    for index in range(count):
        if mean(index, False) >= threshold and mean(index, True) >= threshold:
            return index
    return None


def can_reach(threshold: float, scores: Sequence[float], games: int, best: float = 21.0) -> bool:
    """Say whether the mean of ``games`` could reach the threshold after these scores.

    ``best`` is the highest score of a game (Pong: 21).
    """
    return sum(scores) + best * (games - len(scores)) >= threshold * games


def median_of(values: Sequence[float | None]) -> float | None:
    """Return the median, where None (never reached) is above every number; None if it is that."""
    if not values:
        return None
    middle = median(math.inf if value is None else value for value in values)
    return None if math.isinf(middle) else middle


def steady_rate(metrics: Sequence[Line], after: float = 10.0) -> float:
    """Return steps per second between the first line after so many seconds and the last line.

    Raises:
        ValueError: if there are not two such lines.
    """
    part = [line for line in metrics if line["seconds"] >= after]
    if len(part) < 2:
        raise ValueError(f"{len(part)} metrics lines after {after:g} s: the run was too short")
    first, last = part[0], part[-1]
    return float((last["steps"] - first["steps"]) / (last["seconds"] - first["seconds"]))


def differences(one: Sequence[Line], other: Sequence[Line]) -> list[str]:
    """Return where the metrics of two runs differ apart from their times; [] if nowhere."""
    found = [] if len(one) == len(other) else [f"{len(one)} lines against {len(other)}"]
    for number, (a, b) in enumerate(zip(one, other, strict=False), start=1):
        names = sorted((a.keys() | b.keys()) - {"seconds"})
        found += [f"line {number}: {name}" for name in names if a.get(name) != b.get(name)]
    return found
