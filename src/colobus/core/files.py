"""Atomic writes of whole files, reading of files that may be anything, and the lock of a folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from colobus.core.errors import ColobusError
from colobus.core.timing import now

BINARY: int = getattr(os, "O_BINARY", 0)
"""Flag of ``os.open`` with which Windows leaves the ends of lines as they are."""

LONGEST = 2**26
"""Bytes of a file of JSON at most."""

MOST_LINES = 2**31
"""Bytes of a file of JSON lines at most."""


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
    older file at ``path`` is unchanged. Of two that write at the same time, the last one stays.

    Raises:
        IsADirectoryError: if ``path`` is a folder.
    """
    if path.is_dir():  # before the work that fills the file
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # what went wrong first is what matters
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            with contextlib.suppress(AttributeError):  # errors of FFmpeg cannot be changed
                error.filename = str(path)  # what the user knows
        raise
    flush_to_disk(path.parent)


def flush_to_disk(path: Path) -> None:
    """Flush a file or a folder to disk. Windows can flush files only, which are open to write."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_temporary(path: Path) -> bool:
    """Return whether a file is one of `whole_file` that a killed process may have left."""
    return path.match(".*.tmp")


def remove_temporary(folder: Path, older: float = 0.0) -> None:
    """Delete the temporary files that a killed process has left in a folder.

    Args:
        folder: that nobody else writes to, if ``older`` is 0. It need not exist.
        older: delete only what was not written to for so many seconds.
    """
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if not older or time.time() - path.stat().st_mtime >= older:  # clocks are set back
                path.unlink()


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading. A folder, a pipe or a device is an OSError and no endless wait."""
    not_waiting = getattr(os, "O_NONBLOCK", 0)  # for the writer of a pipe; Windows has none
    descriptor = os.open(path, os.O_RDONLY | not_waiting | BINARY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


class CannotRead(ColobusError):
    """A file that the disk does not give now; it may be sound."""

    exit_code = 1


def read_object(path: Path) -> dict[str, Any]:
    """Return the object of a file of JSON.

    Raises:
        FileNotFoundError: if there is no such file.
        CannotRead: if the disk does not give it, or it does not fit into the memory.
        ColobusError: if it is something else than JSON with one object. All say why, without the
            file's name.
    """
    try:
        with open_regular(path) as file:
            data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise ColobusError(f"longer than {LONGEST:,} bytes")
        value = json.loads(data)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CannotRead(error.strerror or str(error)) from None
    except MemoryError:
        raise CannotRead("not enough memory") from None
    except (ValueError, RecursionError):
        raise ColobusError("its JSON cannot be read") from None
    if not isinstance(value, dict):
        raise ColobusError("its JSON is no object with names and values")
    return value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines, such as ``metrics.jsonl``.

    A line that cannot be read is left out: a process that was killed may leave half a line.

    Raises:
        OSError: if the file cannot be read.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_LINES:
            raise OSError(errno.EFBIG, f"longer than {MOST_LINES:,} bytes", str(path))
        data = file.read()
    return parse_lines(data.decode(errors="replace"))


def parse_lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of a text of JSON lines, without the lines that cannot be read."""
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


LARGEST = 1e30
"""A number above this is no step, second or score."""


@dataclass(frozen=True)
class Events:
    """Appends one line of JSON for each event, with the seconds since the run began."""

    path: Path  # of the file
    began: float  # `time.monotonic` at the beginning

    def __call__(self, event: dict[str, Any]) -> None:
        """Append an event. A failure to write is ignored here: the tracker reports a full disk."""
        line = json.dumps({"seconds": round(now() - self.began, 3), **event})
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


LOCK = "lock"
"""Name of the file."""

ALONE = "make sure that no other process writes there"
"""What the user has to do without locks."""

UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL}
"""What ``flock`` answers on a file system without locks."""


@contextlib.contextmanager
def locked(folder: Path, what: str, log: Callable[[str], None] = print) -> Iterator[None]:
    """Keep other processes from writing into a folder until the block ends.

    The lock is an ``flock`` of the file ``lock``, which the kernel holds as long as the process
    lives, so nothing stays locked after a crash. Linux passes it on to the server of an NFS mount
    (version 4, or 3 with lockd; not with ``nolock`` or ``local_lock``), so there it also holds
    between hosts. On Windows, which has no ``flock``, a line says that nothing is locked.

    Args:
        folder: that exists.
        what: the folder as messages name it, such as "the run runs/pong-1".
        log: takes a line if there are no locks. The block runs all the same.

    Raises:
        ColobusError: if another process holds the lock; names its number and host. Or if the lock
            is a link.
        OSError: if the folder cannot be written to.
    """
    descriptor = _take(folder / LOCK, what, log)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder may be gone, or the disk full
            if os.path.samestat(os.fstat(descriptor), (folder / LOCK).stat()):
                (folder / LOCK).unlink()  # else the folder was renamed, and it is another's
        os.close(descriptor)


def _take(path: Path, what: str, log: Callable[[str], None]) -> int:
    """Return a locked descriptor of the file at ``path``, which says who holds it."""
    no_link = getattr(os, "O_NOFOLLOW", 0)  # what it leads to must not be overwritten
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | no_link, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise ColobusError(f"{path}: is a link, and no lock of Colobus's; delete it") from None
        try:
            _lock(descriptor, what, log)
        except BaseException:
            os.close(descriptor)
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                break
        os.close(descriptor)  # the holder before has deleted it: it is the lock no longer
    with contextlib.suppress(OSError):  # on a full disk the holder stays without a name
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return descriptor


def _lock(descriptor: int, what: str, log: Callable[[str], None]) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        log(f"{what}: this system has no locks; {ALONE}")
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 300).decode(errors="replace").strip()
        raise ColobusError(
            f"{what} is in use by {holder or 'another process'}; wait until it has ended, or stop "
            "it"
        ) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        log(f"{what}: its file system has no locks ({error.strerror}); {ALONE}")
