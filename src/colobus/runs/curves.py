"""Reads the metrics of a run while they grow, and keeps a bounded number of their rows."""

from __future__ import annotations

import errno
import json
import math
import stat
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from colobus.core.files import LARGEST, MOST_LINES, open_regular
from colobus.runs.folder import METRICS

Value = float | None

KEPT = 400
"""A longer file is thinned to between so many rows and twice as many."""

ALL = 2**62
"""As many rows as there are."""

WHOLE = 512 << 10
"""Bytes that are read whole; of a longer piece only the lines that are kept are read."""

TAIL = 64 << 10
"""Bytes at the end of a file in which the newest line is looked for first."""

LONGEST = 16 << 20
"""Bytes of a line at most; nothing that a run writes is so long."""


class Row(NamedTuple):
    """One line of the file."""

    at: int  # where it begins, in bytes
    values: dict[str, float]  # its numbers below `LARGEST`, ``steps`` and ``seconds`` always


class Curve:
    """The rows of one run's ``metrics.jsonl``, steps rising.

    `refresh` reads only what was appended since the last call. Of a long file only some lines are
    read and parsed, evenly spread over its bytes, so that at most ``2 * kept`` rows are kept; the
    newest line is always there. A resumed run goes back to a checkpoint: the rows that it lost by
    that are dropped, and `resumed` remembers the steps it went on from.

    Args:
        path: of the file, which may not exist yet.
        kept: see `KEPT`.
    """

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self._path, self._kept = path, kept
        self._forget()

    def _forget(self) -> None:
        self._file = 0  # inode number
        self._end = 0  # bytes that were read, up to the end of a whole line
        self._gap = 0  # bytes at least from one row to the next
        self._rows: list[Row] = []
        self._newest: Row | None = None
        self.pause = 0.0  # seconds of training between the last two lines
        self.resumed: list[int] = []

    def refresh(self) -> bool:
        """Read what is new; return whether anything is.

        A file that was replaced or cut off is read again from its beginning. A link, or a file that
        cannot be read, counts as empty.
        """
        before = bool(self._end)
        try:
            return self.read() or (before and not self._end)
        except OSError:
            self._forget()
            return before

    def read(self) -> bool:
        """Read what is new; return whether there was a whole line.

        Raises:
            OSError: if the file cannot be read, is a link (behind one is nothing of the run), or
                is too long to keep all its rows.
        """
        found = self._path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(self._path))
        if self._kept == ALL and found.st_size > MOST_LINES:
            raise OSError(errno.EFBIG, f"longer than {MOST_LINES:,} bytes", str(self._path))
        if found.st_ino == self._file and found.st_size == self._end:
            return False
        if found.st_ino != self._file or found.st_size < self._end:
            self._forget()
            self._file = found.st_ino
        return self._read(found.st_size)

    @property
    def rows(self) -> list[Row]:
        """All rows that are kept, the newest last."""
        newest = self._newest
        if newest is None or (self._rows and self._rows[-1].at == newest.at):
            return self._rows
        return [*self._rows, newest]

    @property
    def newest(self) -> dict[str, float]:
        """The values of the newest line; {} before the first."""
        return self._newest.values if self._newest else {}

    def names(self) -> list[str]:
        """Return the names of all values, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row.values))

    def columns(self, names: Sequence[str], most: int) -> dict[str, list[Value]]:
        """Return values by name, each list as long as the others; None where a row has none.

        Args:
            names: of values; ``steps_per_second`` is computed from the rows that are returned.
            most: rows at most, spread evenly; the newest row is among them.
        """
        rows = [row.values for row in thinned(self.rows, most)]
        plain = {name: [row.get(name) for row in rows] for name in names}
        return plain | ({SPEED: _speeds(rows)} if SPEED in names else {})

    def _read(self, size: int) -> bool:
        """Read up to ``size`` bytes; return whether there was a whole line."""
        first = self._end
        with open_regular(self._path) as file:
            end = _last_end(file, first, size)
            if end == first:
                return False
            some = end - first > WHOLE
            if some:
                self._gap = max(self._gap, (end - first) // self._kept)
            for at, line in _lines(file, first, end, self._gap if some else 0):
                is_due = not self._rows or at >= self._rows[-1].at + self._gap
                if is_due and (row := _parse(line, at)):
                    self._append(row)
            last = [*_lines(file, max(first, end - TAIL), end, 0)][-3:]
            tail = [row for at, line in last if (row := _parse(line, at))]  # it may be torn
            for row in tail[-2:]:
                self.pause = row.values["seconds"] - self.newest.get("seconds", 0.0)
                self._newest = row
            if tail:
                self._drop_lost(tail[-1])
        self._end = end
        return True

    def _append(self, row: Row) -> None:
        self._drop_lost(row)
        self._rows.append(row)
        if len(self._rows) > 2 * self._kept:
            self._rows = self._rows[::2]
            self._gap = (self._rows[-1].at - self._rows[0].at) // (len(self._rows) - 1)

    def _drop_lost(self, row: Row) -> None:
        """Drop the rows before ``row`` that have as many steps or more."""
        steps = row.values["steps"]
        kept = bisect_left(self._rows, steps, key=lambda one: one.values["steps"])
        lost = [one for one in self._rows[kept:] if one.at != row.at]
        if lost and lost[-1].values["steps"] > steps:
            self.resumed.append(int(steps))
        del self._rows[kept : kept + len(lost)]


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Return the numbers of each line of a run's metrics, steps rising; see `Curve`.

    Raises:
        OSError: if the file cannot be read.
    """
    curve = Curve(folder / METRICS, ALL)
    curve.read()
    return [row.values for row in curve.rows]


def _last_end(file: BinaryIO, first: int, size: int) -> int:
    """Return where the last whole line ends; ``first`` if there is none after it."""
    length = TAIL
    while True:
        begin = max(first, size - length)
        file.seek(begin)
        found = file.read(size - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        if begin == first or length >= LONGEST:
            return size if size - first > LONGEST else first  # what is too long is passed over
        length *= 4


def _lines(file: BinaryIO, first: int, end: int, gap: int) -> Iterator[tuple[int, bytes]]:
    """Return the first line, and then always the next one that begins ``gap`` bytes later.

    Each comes with the place where it begins; a gap of 0 leaves none out.
    """
    file.seek(first)
    at = first
    while at < end:
        line = file.readline(LONGEST)
        yield at, line
        if gap > len(line):
            file.seek(min(at + gap - 1, end))
            file.readline(LONGEST)  # the rest of a line
        at = file.tell()


SPEED = "steps_per_second"


def thinned(rows: Sequence[Row], most: int) -> Iterator[Row]:
    """Return at most ``most`` of the rows, spread evenly, the last one among them."""
    every = max(-(-len(rows) // max(most, 1)), 1)
    return reversed([*reversed(rows)][::every])


def _parse(line: bytes, at: int) -> Row | None:
    """Return a line's numbers; None if it is no row of a run."""
    try:
        found = json.loads(line)
        values = {
            name: value
            for name, value in found.items()
            if type(value) in (int, float) and abs(value) < LARGEST
        }
    except (AttributeError, ValueError, RecursionError, OverflowError):
        return None
    if type(values.get("steps")) is not int or "seconds" not in values:
        return None
    return Row(at, values)


def _speeds(rows: Sequence[dict[str, float]]) -> list[Value]:
    """Return the steps per second between each row and the one before; None for the first."""
    speeds: list[Value] = [None] * min(len(rows), 1)
    for before, row in pairwise(rows):
        seconds = row["seconds"] - before["seconds"]
        speed = (row["steps"] - before["steps"]) / seconds if seconds > 0 else math.inf
        speeds.append(speed if abs(speed) < LARGEST else None)
    return speeds
