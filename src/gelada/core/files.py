"""Atomic writes of whole files, and files of events with one JSON object a line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is complete or unchanged after a crash.

    The data is written to a temporary file, flushed to disk and renamed.

    Raises:
        OSError: if the disk is full or the folder cannot be written to; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Events:
    """Appends one line of JSON for each event, with the seconds since the run began.

    Args:
        path: of the file.
        began: `time.monotonic` at the beginning.
    """

    def __init__(self, path: Path, began: float) -> None:
        self._path, self._began = path, began

    def __call__(self, event: dict[str, Any]) -> None:
        """Append an event. A failure to write is ignored here: the tracker reports a full disk."""
        line = json.dumps({"seconds": round(time.monotonic() - self._began, 3), **event})
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            pass
