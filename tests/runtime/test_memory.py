"""How much memory and how many cores there are, read from files as Linux writes them."""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path

import pytest

from colobus.runtime.system import available_memory, usable_cores
from helpers.launching import python

MEMINFO = "MemTotal:       24684956 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n"
FREE = 20_000_000 * 1024


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def group(folder: str, most: str, used: int, cache: int) -> dict[str, str]:
    """Return the files of a control group, version 2."""
    top = f"sys/fs/cgroup/{folder}".rstrip("/")
    return {
        f"{top}/memory.max": f"{most}\n",
        f"{top}/memory.current": f"{used}\n",
        f"{top}/memory.stat": f"anon 5\ninactive_file {cache}\nactive_file 9\n",
    }


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ({}, FREE),
        ({"proc/self/cgroup": "0::/\n"}, FREE),  # the first group has no such files
        ({"proc/self/cgroup": "0::/\n"} | group("", "5000", 3000, 700), 2700),
        ({"proc/self/cgroup": "0::/\n"} | group("", "5000", 8000, 700), 0),
        ({"proc/self/cgroup": "0::/a/b\n"} | group("a/b", "max", 10, 0), FREE),
        (
            {"proc/self/cgroup": "0::/a/b\n"}
            | group("a/b", "9000", 10, 0)
            | group("a", "7000", 20, 5),
            6985,
        ),
        (
            {
                "proc/self/cgroup": "12:cpu:/x\n7:memory:/x\n0::/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "6000\n",
                "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/x/memory.stat": "cache 3\ntotal_inactive_file 30\n",
            },
            5030,
        ),
        (  # version 1 without a limit
            {
                "proc/self/cgroup": "7:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/memory.stat": "cache 3\n",
            },
            FREE,
        ),
    ],
)
def test_what_is_available_is_the_least_of_machine_and_groups(
    tmp_path: Path, groups: dict[str, str], left: int
) -> None:
    assert available_memory(write(tmp_path, {"proc/meminfo": MEMINFO} | groups)) == left


def test_where_the_system_does_not_tell_nothing_is_refused(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    assert available_memory(write(tmp_path, {"proc/meminfo": "MemTotal: 5 kB\n"})) is None


def test_this_machine_tells() -> None:
    free = available_memory()
    assert free is not None
    assert 2**20 < free < 2**50


V1 = "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs"


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({}, 12),
        ({"proc/self/cgroup": "0::/\n"}, 12),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 12),
        ({"sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        ({"sys/fs/cgroup/cpu.max": "350000 100000\n"}, 3),
        ({"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "9000000 100000\n"}, 12),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "500000 100000\n",
            },
            5,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/x\n",
                f"{V1}_quota_us": "200000\n",
                f"{V1}_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/x\n",
                f"{V1}_quota_us": "-1\n",
                f"{V1}_period_us": "100000\n",
            },
            12,
        ),
    ],
)
def test_affinity_and_control_groups_limit_the_cores(
    files: dict[str, str], want: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert usable_cores(write(tmp_path, {"proc/self/cgroup": "0::/\n"} | files)) == want


FAULTS = """
import resource, sys, threading
import numpy as np
from colobus.runtime.system import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def pieces():
    return [np.ones(3 << 20, dtype=np.uint8) for _ in range(30)]

def work():
    pieces()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(4):
        pieces()
    print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
"""Takes and frees 90 MiB on a thread again and again; prints the page faults of that."""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="glibc's")
def test_what_a_thread_frees_is_kept_for_its_next_use() -> None:
    faults = {how: int(python("-c", FAULTS, how)) for how in ("kept", "given back")}
    pages = 4 * 30 * (3 << 20) // resource.getpagesize()
    assert faults["given back"] > pages / 4  # else there is no need of it
    assert faults["kept"] < pages / 50
