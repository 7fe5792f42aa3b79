"""Files of JSON lines: one line at a time, none of them lost or cut by a full disk."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any

from gelada.core.files import BINARY

MOST = 100_000
"""Lines that wait for the disk at most; beyond that the oldest are lost."""


class Metrics:
    """Appends lines to a file, such as ``metrics.jsonl``.

    Args:
        folder: of the run. Nothing is opened before the first line.
        name: of the file.
    """

    def __init__(self, folder: Path, name: str = "metrics.jsonl") -> None:
        self._path = folder / name
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=MOST)
        self._begun = b""  # what is being written; a full disk may take a part of it
        self._file: int | None = None

    def put(self, line: dict[str, Any]) -> None:
        """Let `write` append a line."""
        data = json.dumps(line).encode() + b"\n"
        with self._lock:
            self._waiting.append(data)

    def write(self) -> None:
        """Write all lines that wait.

        Raises:
            OSError: if the disk is full or the folder is gone; the lines go on waiting.
        """
        while self._collect():
            if self._file is not None and os.fstat(self._file).st_nlink == 0:
                self.close()  # somebody has deleted it
            if self._file is None:
                self._file = self._open()
            self._begun = self._begun[os.write(self._file, self._begun) :]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _collect(self) -> bool:
        """Return whether there is anything to write."""
        if not self._begun:
            with self._lock:
                self._begun = b"".join(self._waiting)
                self._waiting.clear()
        return bool(self._begun)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY
        file = os.open(self._path, flags, 0o644)
        size = os.fstat(file).st_size
        if size:
            os.lseek(file, size - 1, os.SEEK_SET)
            if os.read(file, 1) != b"\n":
                # the last line of a killed run must not swallow the first of this one
                self._begun = b"\n" + self._begun
        return file
