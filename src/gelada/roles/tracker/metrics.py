"""``metrics.jsonl``, TensorBoard events, and the thread that writes the files of a run."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch


class Writer:
    """A thread that writes files, so that nobody who reports waits for a disk.

    An error is kept in ``failure``, and the thread goes on with the next call.
    """

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self._todo: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def put(self, write: Callable[[], None]) -> None:
        """Let the thread call ``write`` after everything that was put before."""
        self._todo.put(write)

    def close(self) -> None:
        """Wait until everything is written."""
        self._todo.put(None)
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)
        while (write := self._todo.get()) is not None:
            try:
                write()
            except OSError as error:
                self.failure = error


class Metrics:
    """Appends lines to ``metrics.jsonl`` and to TensorBoard's events.

    Args:
        folder: of the run. Nothing is opened before the first line.
        tensorboard: write events too.
    """

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        self._folder, self._tensorboard = folder, tensorboard
        self._lines: TextIO | None = None
        self._events: Any = None

    def write(self, line: dict[str, Any]) -> None:
        """Write a line; ``steps`` is its time axis in TensorBoard."""
        if self._lines is None:
            self._lines = self._open()
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()
        if not self._tensorboard:
            return
        if self._events is None:
            from tensorboardX import SummaryWriter

            self._events = SummaryWriter(str(self._folder / "tensorboard"))
        for name, value in line.items():
            if name not in ("steps", "version") and value is not None:
                self._events.add_scalar(name, value, line["steps"])

    def close(self) -> None:
        """Close the files."""
        if self._lines:
            self._lines.close()
        if self._events:
            self._events.close()

    def _open(self) -> TextIO:
        path = self._folder / "metrics.jsonl"
        unfinished = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
        file = path.open("a", encoding="utf-8")
        if unfinished:  # the last line of a killed run must not swallow the first of this one
            file.write("\n")
        return file
