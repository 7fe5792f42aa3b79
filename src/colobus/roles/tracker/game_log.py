"""``episodes.jsonl``: a line for every game, and for fewer of them when there are very many.

Games of some steps end a thousand times a second, and their lines would fill a disk in weeks.
When the file is larger than `MOST_BYTES`, every second line is deleted, and from then on only every
second game gets a line, and so on. A line says in ``games`` for how many it stands, if for several.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from colobus.core.files import backwards, open_regular, whole_file
from colobus.roles.tracker.writer import Metrics

MOST_BYTES = 32 << 20
"""Of the file, but for what is written at once: lines of about 350,000 games."""

END = re.compile(rb'(?:, "games": ([1-9]\d{,14}))?}\s*$')
"""The end of a line, with the number of games that it stands for."""

FEW = 3
"""Lines at the end of which the last may be torn."""

NUMBER = "number"
"""Name of a game's number in a line that waits."""


class GameLog(Metrics):
    """Appends lines about games to a file of bounded length.

    Args:
        path: of the file; see `Metrics`.
        most: bytes, see `MOST_BYTES`.
    """

    def __init__(self, path: Path, most: int = MOST_BYTES) -> None:
        super().__init__(path)
        self._most, self._every = most, stands_for(path)

    def put_game(self, number: int, line: dict[str, Any]) -> None:
        """Let `write` append a line about a game, the ``number``-th of the run."""
        if number % self._every == 0:
            self.put({NUMBER: number, **line})

    def write(self) -> None:
        """Write the lines that wait, and thin the file if it has become too long.

        Raises:
            OSError: if the disk is full or the folder is gone; what could not be done is done by
                the next call.
        """
        super().write()
        if self._file is not None and os.fstat(self._file).st_size > self._most:
            self.close()
            thin(self._path, self._most)
            self._every = stands_for(self._path)

    def _shaped(self, line: dict[str, Any]) -> bytes:
        number = line.pop(NUMBER)
        if number % self._every:  # which has risen meanwhile
            return b""
        return super()._shaped(line | ({"games": self._every} if self._every > 1 else {}))


def stands_for(path: Path) -> int:
    """Return for how many games each line of a file stands."""
    with suppress(OSError), open_regular(path) as file:
        for _, line in islice(backwards(file), FEW):
            if found := END.search(line):
                return int(found[1] or 1)
    return 1


def thin(path: Path, most: int = MOST_BYTES) -> bool:
    """Halve the lines of a file until it has no more than ``most`` bytes, or hardly more.

    Of lines about games n, 2n, 3n and so on those about 2n, 4n and so on stay.

    Returns:
        Whether it was too long.

    Raises:
        OSError: if it cannot be read or written; it is unchanged then.
    """
    size = path.stat().st_size if path.exists() else 0
    if size <= most:
        return False
    share = 2
    while size > share * most:
        share *= 2
    end = b', "games": %d}\n' % (share * stands_for(path))
    with open_regular(path) as lines, whole_file(path) as shorter, shorter.open("wb") as file:
        for number, line in enumerate(lines, 1):
            if number % share == 0 and (found := END.search(line)):
                file.write(line[: found.start()] + end)
    return True
