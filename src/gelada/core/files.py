"""Files that are written whole or not at all, and files that grow by a JSON line at a time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, flush it to disk and rename it."""
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
    """Appends one JSON line for each event, with its seconds since the run began.

    Args:
        path: of the file.
        began: `time.monotonic` at the beginning.
    """

    def __init__(self, path: Path, began: float) -> None:
        self._path, self._began = path, began

    def __call__(self, event: dict[str, Any]) -> None:
        """Write an event down. A full disk does not end a run here: the tracker will say it."""
        line = json.dumps({"seconds": round(time.monotonic() - self._began, 3), **event})
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            pass
