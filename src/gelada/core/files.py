"""Atomic writes of whole files, and files of events with one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is complete or unchanged after a crash; see `whole_file`.

    Raises:
        OSError: if the disk is full or the folder cannot be written to; nothing is left behind.
    """
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give the path of a temporary file that becomes the file at ``path``.

    At the end of the block it is flushed to disk and renamed. After an error it is deleted, and an
    older file at ``path`` is unchanged.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def flush_to_disk(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines, such as ``metrics.jsonl``.

    A line that cannot be read is left out: a process that was killed may leave half a line.

    Raises:
        OSError: if the file cannot be read.
    """
    return parse_lines(path.read_text(encoding="utf-8", errors="replace"))


def parse_lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of a text of JSON lines, without the lines that cannot be read."""
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's ``metrics.jsonl``, steps rising.

    A resumed run goes back to a checkpoint. The lines that it lost by that are left out.

    Raises:
        OSError: if the file cannot be read.
    """
    rows: list[dict[str, Any]] = []
    for row in read_lines(folder / "metrics.jsonl"):
        if not isinstance(row.get("steps"), int):
            continue
        while rows and rows[-1]["steps"] >= row["steps"]:
            rows.pop()
        rows.append(row)
    return rows


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
