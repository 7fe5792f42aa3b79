"""The thread that writes the files of a run, so that nobody who reports waits for a disk.

Lines of JSON are written one at a time; none is lost or cut by a full disk.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from colobus.core.files import BINARY

RETRY_SECONDS = 1.0
"""Between two tries to write."""

SLOW_SECONDS = 20.0
"""A try that takes longer than this is reported."""

END_SECONDS = 30.0
"""How long one try, and the last one of a run, may take at least, however short the patience."""


class Work(Protocol):
    """Something that collects what is to be written."""

    def write(self) -> None:
        """Write what has been collected. After an error it stays, and the next call goes on."""


@dataclass(eq=False)
class Writer:
    """A thread that writes, so that nobody who reports waits for a disk.

    After an `OSError` or a `MemoryError` it tries again every second, for ``patience`` seconds; any
    other error is final at once. An error in ``others`` counts as long as it stays there. A final
    error is kept in ``failure``.
    """

    work: Sequence[Work]  # what is written whenever `wake` is called, in this order
    patience: float  # seconds for which writing may fail or hang before the error is final
    now: Callable[[], float] = time.monotonic  # returns the time in seconds

    def __post_init__(self) -> None:
        self._limit = max(self.patience, END_SECONDS)  # for one try, and for the last
        self.others: OSError | None = None  # of somebody else who writes into the folder
        self._failure: OSError | None = None
        self._error: OSError | None = None  # of the last try; None if it went well
        self._since = 0.0  # when writing began to fail
        self._busy: float | None = None  # when the try in progress began
        self._pictures: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._asked = self._closing = self._ended = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread write."""
        with self._changed:
            self._asked = True
            self._changed.notify_all()

    def put(self, draw: Callable[[], None]) -> None:
        """Let the thread call ``draw`` once. It may fail: a picture is no reason to end a run."""
        self._pictures.append(draw)
        self.wake()

    @property
    def failure(self) -> OSError | None:
        """The error that is final: of a write, or that writing hangs or the thread has ended."""
        if self._failure is None and self._hangs(self._limit):
            text = f"the disk gives no answer for {self._limit:g} s"
            self._failure = OSError(errno.ETIMEDOUT, text)
        if self._failure is None and not self._ended and not self._thread.is_alive():
            self._failure = self._error or OSError(errno.EIO, "the writing thread has ended")
        return self._failure

    def trouble(self) -> str:
        """Return why nothing is written at the moment, or ""."""
        if self._error is not None:
            return str(self._error.strerror or self._error)
        return "the disk gives no answer" if self._hangs(SLOW_SECONDS) else ""

    def close(self) -> None:
        """Write what is left, and end.

        Raises:
            OSError: if that could not be done within the patience.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(self._limit)
        if self._thread.is_alive():
            text = self.trouble() or "the last write did not end"
            raise self._error or OSError(errno.ETIMEDOUT, text)
        if not self._ended:
            raise OSError(errno.EIO, "the writing thread has ended")
        if self._error is not None:
            raise self._error

    def _hangs(self, seconds: float) -> bool:
        """Return whether a try takes longer than this."""
        busy = self._busy
        return busy is not None and self.now() - busy > seconds

    def _run(self) -> None:
        torch.set_num_threads(1)
        done = True
        while True:
            with self._changed:
                if done:
                    self._changed.wait_for(lambda: self._asked or self._closing)
                elif not self._closing:
                    self._changed.wait(RETRY_SECONDS)
                closing, self._asked = self._closing, False
            done = self._write()
            if closing and (done or self._is_final()):
                self._ended = True
                return
            if closing:
                time.sleep(RETRY_SECONDS)

    def _write(self) -> bool:
        """Write everything; return whether all went well."""
        error: OSError | None = None
        for work in self.work:
            self._busy = self.now()
            try:
                work.write()
            except OSError as found:
                error = error or found
            except MemoryError:
                error = error or OSError(errno.ENOMEM, "not enough memory to write")
            except Exception as found:
                error = self._failure = OSError(errno.EIO, f"{type(found).__name__}: {found}")
            finally:
                self._busy = None
        error = error or self.others
        if error is not None and self._error is None:
            self._since = self.now()
        self._error = error
        while self._pictures:
            with contextlib.suppress(Exception):
                self._pictures.popleft()()
        if error is not None and self._is_final():
            self._failure = error
        return error is None

    def _is_final(self) -> bool:
        """Return whether trying again makes no sense any more."""
        return self._failure is not None or self.now() - self._since >= self.patience


MOST = 100_000
"""Lines that wait for the disk at most; beyond that the oldest are lost."""


class Metrics:
    """Appends lines to a file, such as ``metrics.jsonl``.

    Args:
        path: of the file. Nothing is opened before the first line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MOST)
        self._begun = b""  # what is being written; a full disk may take a part of it
        self._file: int | None = None

    def put(self, line: dict[str, Any]) -> None:
        """Let `write` append a line, which is its own from now on."""
        with self._lock:
            self._waiting.append(line)

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
                lines = list(self._waiting)
                self._waiting.clear()
            self._begun = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
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
