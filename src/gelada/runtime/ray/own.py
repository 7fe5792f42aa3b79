"""What belongs to a Ray that is started for one run, and how nothing of it is left behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "GELADA_RAY"
"""Environment variable by which the processes of one Ray are known."""

LONGEST = 20
"""Characters of the folder for temporary files. Ray makes sockets below it, whose paths end after
107 (103 on macOS)."""

END_SECONDS = 10.0
"""How long killed processes have to be gone."""


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder for the files, logs and sockets of a Ray, and delete it at the end.

    Ray opens the folder that it is given to all users, so this is one inside of a folder that only
    this user can enter (mode 0700).
    """
    parent = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    if len(parent) > LONGEST:
        parent = "/tmp"
    private = tempfile.mkdtemp(prefix="gelada-", dir=parent)
    try:
        yield Path(private) / "r"
    finally:
        shutil.rmtree(private, ignore_errors=True)


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """Mark all processes that are started in the block, and those that they start later."""
    mark = secrets.token_hex(8)
    os.environ[MARK] = mark
    try:
        yield mark
    finally:
        del os.environ[MARK]


def end_marked(mark: str) -> None:
    """Kill all processes with a mark, and wait until they are gone (Linux only)."""
    until = time.monotonic() + END_SECONDS
    while (left := processes_with(mark)) and time.monotonic() < until:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


def processes_with(mark: str) -> list[int]:
    """Return the numbers of the processes with a mark, but not that of this one."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # of another user, or gone
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return [process for process in found if process != os.getpid()]
