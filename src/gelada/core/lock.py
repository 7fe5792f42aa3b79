"""The lock of a folder: one process at a time writes into it.

The kernel holds the lock as long as the process lives, so nothing stays locked after a crash. It is
an ``flock`` of the file ``lock``. Linux passes it on to the server of an NFS mount (version 4, or 3
with lockd; not with ``nolock`` or ``local_lock``), so there it also holds between hosts. On
Windows, which has no ``flock``, a line says that nothing is locked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from gelada.core.errors import GeladaError

LOCK = "lock"
"""Name of the file."""

ALONE = "make sure that no other process writes there"
"""What the user has to do without locks."""

UNLINKED: int = getattr(os, "O_NOFOLLOW", 0)
"""Flag of ``os.open`` that refuses a link: what it leads to must not be overwritten."""

UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL}
"""What ``flock`` answers on a file system without locks."""


@contextlib.contextmanager
def locked(folder: Path, what: str, log: Callable[[str], None] = print) -> Iterator[None]:
    """Keep other processes from writing into a folder until the block ends.

    Args:
        folder: that exists.
        what: the folder as messages name it, such as "the run runs/pong-1".
        log: takes a line if there are no locks. The block runs all the same.

    Raises:
        GeladaError: if another process holds the lock; names its number and host. Or if the lock
            is a link.
        OSError: if the folder cannot be written to.
    """
    descriptor = _take(folder / LOCK, what, log)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder may be gone, or the disk full
            (folder / LOCK).unlink()
        os.close(descriptor)


def _take(path: Path, what: str, log: Callable[[str], None]) -> int:
    """Return a locked descriptor of the file at ``path``, which says who holds it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | UNLINKED, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise GeladaError(f"{path}: is a link, and no lock of Gelada's; delete it") from None
        try:
            _lock(descriptor, what, log)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(path, descriptor):
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
        raise GeladaError(
            f"{what} is in use by {holder or 'another process'}; wait until it has ended, or stop "
            "it"
        ) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        log(f"{what}: its file system has no locks ({error.strerror}); {ALONE}")


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
