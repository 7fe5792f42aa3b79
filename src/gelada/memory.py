"""How much memory can be taken, asked before much of it is; and keeping what was taken."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from gelada.errors import GeladaError

GROUPS = (
    ("0::", "", "memory.max", "memory.current", "inactive_file"),
    (":memory:", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Control groups of version 2 and 1: mark of the line in /proc/self/cgroup, folder below
/sys/fs/cgroup, files with limit and use, and what of the use can be given back at once."""

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Numbers of glibc's options, from its malloc.h."""

KEPT = ((M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 << 20), (M_MMAP_THRESHOLD, 32 << 20))
"""Give back neither the free end of a heap nor whole heaps (a thread's has 64 MiB), and take only
what is larger than 32 MiB, the most that can be set, from the system piece by piece."""


def keep_freed_memory() -> None:
    """Keep what this process frees for its next use.

    A learner takes and frees the same megabytes for every minibatch. Where they go back to the
    system in between, each page of them costs a fault (docs/speed.md). Other C libraries than
    glibc have no such options: nothing happens.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        for option, value in KEPT:
            mallopt(option, value)


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that can be taken now, None where the system does not tell (not Linux).

    The least of what the machine has available and what this process's control groups leave.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        return None
    return min(free + _left_by_groups(root)) if free else None


def check_memory(needed: int, available: int | None) -> None:
    """Raise GeladaError if ``needed`` bytes are more than ``available`` ones (None: not known)."""
    if available is not None and needed > available:
        raise GeladaError(
            f"the store needs {needed / 2**30:,.1f} GiB, and {available / 2**30:,.1f} GiB of "
            "memory are available; lower --capacity"
        )


def _left_by_groups(root: Path) -> list[int]:
    """Return what each control group with a limit leaves, from this process's up to the first."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left = []
    for mark, below, limit, use, cache in GROUPS:
        top = root / "sys/fs/cgroup" / below
        for line in lines:
            if mark in line:
                group = top / line.partition(mark)[2].strip("/")
                for folder in (group, *group.parents):
                    if folder.is_relative_to(top):
                        left += _left(folder / limit, folder / use, folder / "memory.stat", cache)
    return left


def _left(limit: Path, use: Path, stat: Path, cache: str) -> list[int]:
    """Return limit less use of one group in a list, an empty one if it has no limit."""
    try:
        used, most = int(use.read_text()), int(limit.read_text())
        fields = dict(line.split() for line in stat.read_text().splitlines())
        return [max(most - used + int(fields.get(cache, 0)), 0)]
    except (OSError, ValueError):  # not there, or "max"
        return []
