"""The folder of a Ray that is started for one run, and how nothing of that Ray is left behind.

This file is also a program: a process that waits for the end of the process of the run, however
that ends, and then kills what is left of its Ray and deletes the folder. So it imports nothing but
the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

LONGEST = 20
"""Characters of the folder for temporary files. Ray makes sockets below it, whose paths end after
107 (103 on macOS)."""

END_SECONDS = 10.0
"""How long killed processes have to be gone."""


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder for the files, logs and sockets of a Ray.

    At the end, or when this process is killed, all who write into it are killed, and it is deleted.
    Ray opens the folder that it is given to all users, so this is one inside of a folder that only
    this user can enter (mode 0700).
    """
    parent = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    if len(parent) > LONGEST:
        parent = "/tmp"
    private = tempfile.mkdtemp(prefix="colobus-", dir=parent)
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, private, str(os.getpid())],
        stdin=subprocess.PIPE,  # its end is the sign
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal is not for it
    )
    try:
        yield Path(private) / "r"
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.communicate(timeout=2 * END_SECONDS)


def end_writers(folder: Path, spared: Collection[int] = ()) -> None:
    """Kill all processes that write into files below a folder, and wait until they are gone.

    All processes of a Ray, and those that they start, write their output into its folder. Only
    Linux tells which processes those are; elsewhere nothing happens.
    """
    until = time.monotonic() + END_SECONDS
    while (left := writers(folder).difference(spared)) and time.monotonic() < until:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


def writers(folder: Path) -> set[int]:
    """Return the numbers of all processes but this one that write into files below a folder."""
    found, below = set[int](), f"{folder.resolve()}/"
    for process in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        with contextlib.suppress(OSError):  # of another user, or gone
            for number in os.listdir(f"/proc/{process}/fd"):
                if _is_written(process, number, below):
                    found.add(int(process))
    return found - {os.getpid()}


def _is_written(process: str, number: str, below: str) -> bool:
    """Return whether an open file of a process is below a folder, and open for writing."""
    with contextlib.suppress(OSError, ValueError, LookupError):  # it was closed meanwhile
        if os.readlink(f"/proc/{process}/fd/{number}").startswith(below):
            info = Path(f"/proc/{process}/fdinfo/{number}").read_text().splitlines()
            (flags,) = (line.split()[1] for line in info if line.startswith("flags:"))
            return bool(int(flags, 8) & (os.O_WRONLY | os.O_RDWR))
    return False


def main() -> None:
    """Wait for the end of stdin, then end all writers but one process and delete the folder."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which may be sent to all of a job
    folder, spared = Path(sys.argv[1]), int(sys.argv[2])
    sys.stdin.read()
    end_writers(folder, {spared})
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
