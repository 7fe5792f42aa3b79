"""What the operating system offers: free memory, priorities of threads, facts of the machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import socket
import subprocess
import sys
import time
from collections import deque
from importlib import metadata
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

GROUPS = (
    ("0::", "", "memory.max", "memory.current", "inactive_file"),
    (":memory:", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Control groups of version 2 and 1: mark of the line in /proc/self/cgroup, folder below
/sys/fs/cgroup, files with limit and use, and name of the share that can be freed at once."""

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Numbers of glibc's options, from its malloc.h."""

KEPT = ((M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 << 20), (M_MMAP_THRESHOLD, 32 << 20))
"""glibc returns neither the free end of a heap nor whole heaps (64 MiB for each thread), and maps
only pieces above 32 MiB, the largest value that can be set, one by one."""


def keep_freed_memory() -> None:
    """Keep the memory that this process frees for its next use.

    A learner allocates and frees the same megabytes for every minibatch. If they went back to the
    system in between, each page would cost a fault (docs/speed.md). C libraries other than glibc
    have no such options, and nothing happens.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        for option, value in KEPT:
            mallopt(option, value)


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that are free now, or None where that is unknown (not Linux).

    It is the least of what the machine has and what the control groups and limits (ulimit) of this
    process leave.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        return None
    return min(free + _left_by_groups(root) + _left_by_limits(root)) if free else None


def available_threads(root: Path = Path("/")) -> int | None:
    """Return how many more threads the control groups allow, or None where nothing limits them."""
    names = ("pids.max", "pids.current")
    pairs = _pairs(root, "0::", "", *names) + _pairs(root, ":pids:", "pids", *names)
    return min((max(most - now, 0) for _, most, now in pairs), default=None)


def usable_cores(root: Path = Path("/")) -> int:
    """Return the processors that this process may use, at least 1.

    It is the least of those that it may run on (its affinity) and the whole processors that the
    quotas of its control groups come to.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quotas = _pairs(root, "0::", "", "cpu.max")  # version 2
    for controllers in ("cpu", "cpu,cpuacct"):  # version 1
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quotas += _pairs(root, f":{controllers}:", controllers, *names)
    whole = [quota // period for _, quota, period in quotas if quota > 0 and period > 0]
    return max(min([cores, *whole]), 1)


class BusyCores:
    """How many cores this process has kept busy in about the last ten seconds."""

    def __init__(self) -> None:
        self._looks = deque([(time.monotonic(), time.process_time())], maxlen=20)

    def look(self) -> float:
        """Return the number; to be called about twice a second."""
        self._looks.append((time.monotonic(), time.process_time()))
        (begin, before), (end, after) = self._looks[0], self._looks[-1]
        return (after - before) / max(end - begin, 1e-9)


def own_address() -> str:
    """Return the address of this host in its network; that of the host itself if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))  # sends nothing, but chooses an interface
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def process_limit(name: str) -> int | None:
    """Return a limit of this process, such as "NOFILE", or None where nothing limits it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    return None if most == resource.RLIM_INFINITY else most


def peak_memory() -> int | None:
    """Return the most bytes of memory that this process has held, or None where that is unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def system_value(name: str) -> int | None:
    """Return a value of ``os.sysconf``, such as "SC_PHYS_PAGES", or None where it has none."""
    try:
        return os.sysconf(name)
    except (AttributeError, ValueError, OSError):  # Windows; a name that this system lacks
        return None


def _left_by_limits(root: Path) -> list[int]:
    """Return the bytes that the limits of this process leave."""
    try:
        size, _, _, _, _, data, _ = (root / "proc/self/statm").read_text().split()
    except (OSError, ValueError):
        return []
    limits = ((process_limit("AS"), size), (process_limit("DATA"), data))
    return [max(most - int(used) * PAGESIZE, 0) for most, used in limits if most is not None]


def _left_by_groups(root: Path) -> list[int]:
    """Return the bytes that each limited control group leaves, from this process's to the root."""
    left = []
    for mark, below, limit, use, cache in GROUPS:
        for folder, most, used in _pairs(root, mark, below, limit, use):
            with contextlib.suppress(OSError, ValueError):  # not there, or no numbers
                lines = (folder / "memory.stat").read_text().splitlines()
                fields = dict(line.split() for line in lines)
                left.append(max(most - used + int(fields.get(cache, 0)), 0))
    return left


def _pairs(root: Path, mark: str, below: str, *names: str) -> list[tuple[Path, int, int]]:
    """Return each control group whose files with these names hold two numbers, with those.

    Args:
        root: of the file system.
        mark: of the groups' line in /proc/self/cgroup.
        below: their folder below /sys/fs/cgroup.
        names: of the files.

    Returns:
        The folders of this process's groups and the numbers, its own first.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    top, found = root / "sys/fs/cgroup" / below, []
    for own in (top / line.partition(mark)[2].strip("/") for line in lines if mark in line):
        for group in (own, *own.parents):
            if not group.is_relative_to(top):
                break
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                words = [word for name in names for word in (group / name).read_text().split()]
                first, second = map(int, words)
                found.append((group, first, second))
    return found


ACTORS = 10
"""Niceness of actors and their emulators. All roles wait for the next version in the end, so a
learner that has work must not wait for a core (docs/speed.md)."""


def be_nicer(by: int) -> None:
    """Lower the priority of this thread, and of those that it starts from now on.

    Only Linux has a priority for each thread; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        lower_priority(by)


def lower_priority(by: int) -> None:
    """Lower the priority of this process (its niceness rises); Windows has no such call.

    On Linux it is that of the calling thread, which those that it starts later inherit.
    """
    if hasattr(os, "nice"):
        os.nice(by)


def describe_machine() -> dict[str, Any]:
    """Return processor, usable cores, memory (None where it is unknown), versions and commit."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    pages = system_value("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": usable_cores(),
        "memory_gib": round(PAGESIZE * pages / 2**30, 1) if pages else None,
        **versions(),
        "commit": _commit(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that all hosts of a run must share."""
    packages = ("colobus", "torch", "ale-py", "numpy")
    return {"python": platform.python_version()} | {name: version_of(name) for name in packages}


def version_of(package: str) -> str:
    """Return the installed version of a package, "unknown" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    """Return the commit of the source tree, with + if it has changes, or ''."""
    git = ["git", "-C", str(Path(__file__).resolve().parents[1])]
    asked = ("rev-parse --short=12 HEAD", "status --porcelain -- .", "ls-files --error-unmatch .")
    try:
        commit, changed, known = (
            subprocess.run([*git, *words.split()], capture_output=True, text=True, timeout=5)
            for words in asked
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if commit.returncode or known.returncode:  # no repository, or somebody else's
        return ""
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")
