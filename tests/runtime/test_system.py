"""What a system says of memory and cores, and who goes first.

What needs calls that others lack is left out there. Priorities are of threads, as the kernel has
them.
"""

from __future__ import annotations

import ast
import os
import platform
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from colobus.core.timing import Clock
from colobus.roles.actor import Actor
from colobus.roles.learner import Learner
from colobus.runs.curves import read_metrics
from colobus.runtime.system import (
    ACTORS,
    available_memory,
    describe_machine,
    lower_priority,
    peak_memory,
    process_limit,
    system_value,
    usable_cores,
)
from colobus.runtime.threads import Threads
from colobus.training.start import open_games
from conftest import short_pong
from helpers.launching import finish, python, start

SOURCE = Path(__file__).resolve().parents[2] / "src" / "colobus"

MODULES = {"fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios", "tty"}
"""Of the standard library, and not on Windows."""

NAMES = {
    "os": {
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "PRIO_PROCESS"),
        *("WNOHANG", "chown", "fchmod", "fchown", "fork", "getegid", "geteuid", "getgid"),
        *("getloadavg", "getpgid", "getpriority", "getuid", "killpg", "mkfifo", "nice"),
        *("posix_fadvise", "posix_fallocate", "pread", "pwrite", "register_at_fork"),
        *("sched_getaffinity", "sched_setaffinity", "sendfile", "setpriority", "setsid"),
        *("statvfs", "sysconf", "uname", "wait", "wait4", "waitid"),
    },
    "signal": {
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP"),
        *("SIGUSR1", "SIGUSR2", "alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer"),
    },
    "time": {"CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime", "pthread_getcpuclockid"},
}
"""Names that Windows lacks, by module (CLOCK_BOOTTIME: macOS too)."""

GUARDED = {
    "cli/train.py": {"os.sysconf", "time.CLOCK_BOOTTIME", "time.clock_gettime"},
    "core/files.py": {"import fcntl"},
    "runtime/ray/own_cluster.py": {"signal.SIGKILL"},  # to processes that /proc lists
    "runtime/ray/process.py": {"signal.SIGKILL"},  # of a process to itself
    "training/sidecars.py": {"os.killpg", "signal.SIGKILL"},  # AttributeError is suppressed
    "runtime/ray/session.py": {"signal.pthread_sigmask"},  # if there is a SIGHUP to be blocked
    "runtime/system.py": {"os.nice", "os.sched_getaffinity", "os.sysconf", "import resource"},
}
"""Where they are used all the same: behind checks that the tests below go through, and by Ray for
what does not exist on Windows."""


def used(path: Path) -> set[str]:
    """Return the names and modules in a file that Windows lacks."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                found |= {f"{module}.{name}"} if name in NAMES.get(module, ()) else set()
            case ast.Import(names=names):
                found |= {f"import {one.name}" for one in names if one.name in MODULES}
            case ast.ImportFrom(module=str(module), names=names):
                found |= {f"import {module}"} if module in MODULES else set()
                known = NAMES.get(module, set())
                found |= {f"{module}.{one.name}" for one in names if one.name in known}
    return found


@pytest.mark.slow
def test_calls_that_windows_lacks_are_used_behind_checks_only() -> None:
    files = {path: used(path) for path in sorted(SOURCE.rglob("*.py"))}
    found = {str(path.relative_to(SOURCE)): names for path, names in files.items() if names}
    assert found == GUARDED


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what Windows lacks, for code that is imported already."""
    for module in ("fcntl", "resource"):
        monkeypatch.setitem(sys.modules, module, None)
    names = "getpriority nice pread pwrite sched_getaffinity setpriority sysconf"
    for name in names.split():
        monkeypatch.delattr(os, name)


def test_what_cannot_be_asked_is_unknown_or_stays_as_it_is(bare: None, tmp_path: Path) -> None:
    assert system_value("SC_PAGE_SIZE") is None
    assert process_limit("NOFILE") is None
    assert peak_memory() is None
    assert describe_machine()["memory_gib"] is None
    free = available_memory()  # this machine has /proc
    assert free is None or free > 2**20
    assert available_memory(tmp_path) is None
    lower_priority(19)


def test_what_can_be_asked_is_known() -> None:
    assert system_value("SC_PAGE_SIZE") == os.sysconf("SC_PAGE_SIZE")
    assert system_value("SC_NO_SUCH_NAME") is None
    assert 2**20 < (peak_memory() or 0) < 2**40
    assert describe_machine()["memory_gib"] > 0
    assert 2**20 < (available_memory() or 0) < 2**50


WITHOUT = """
import os, signal, sys, time
import ale_py, av, cv2, gymnasium, matplotlib.pyplot, numpy, pydantic, rich.live, safetensors.torch
import tensorboardX, torch, tyro  # they and the standard library may have what Linux has

for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("O_CLOEXEC", "O_NONBLOCK", "PRIO_PROCESS", "getloadavg", "getpriority", "nice",
             "pread", "pwrite", "sched_getaffinity", "setpriority", "sysconf"):
    delattr(os, name)
for name in ("SIGALRM", "SIGCONT", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP", "SIGUSR1"):
    delattr(signal, name)
del time.CLOCK_BOOTTIME

from colobus.cli.main import run
from colobus.cli.interrupts import NAMES

folder = sys.argv[1]
codes = [
    run(["train", "catch", "--out", folder, "--steps", "4096", "--no-finish", "--no-tensorboard"]),
    run(["train", "--resume", folder, "--steps", "6144", "--no-finish"]),
    run(["eval", folder, "--episodes", "3"]),
    run(["show", "catch"]),
]
print(codes, list(NAMES.values()))
"""
"""Trains, resumes and evaluates in a process in which all of that is gone; Windows has the rest."""


@pytest.mark.processes
def test_a_run_is_made_without_the_calls_that_windows_lacks(tmp_path: Path) -> None:
    script, run = tmp_path / "without.py", tmp_path / "run"
    script.write_text(WITHOUT)
    code, out, err = finish(start(run, script=script))
    assert code == 0, err
    assert out.splitlines()[-1] == "[0, 0, 0, 0] ['Ctrl-C', 'SIGTERM']"
    assert "this system has no locks; make sure that no other process" in out
    assert "Traceback" not in err
    assert read_metrics(run)[-1]["steps"] >= 6144
    assert len(list((run / "eval").glob("*.json"))) == 1


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


def old_group(most: str, stat: str) -> dict[str, str]:
    """Return the files of a control group, version 1, that uses 1000 bytes."""
    return {
        "proc/self/cgroup": "12:cpu:/x\n7:memory:/x\n0::/x\n",
        "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{most}\n",
        "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/x/memory.stat": stat,
    }


INNER = {"proc/self/cgroup": "0::/a/b\n"}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, FREE),
        ({"proc/self/cgroup": "0::/\n"}, FREE),  # the first group has no such files
        ({"proc/self/cgroup": "0::/\n"} | group("", "5000", 3000, 700), 2700),
        ({"proc/self/cgroup": "0::/\n"} | group("", "5000", 8000, 700), 0),
        (INNER | group("a/b", "max", 10, 0), FREE),
        (INNER | group("a/b", "9000", 10, 0) | group("a", "7000", 20, 5), 6985),
        (old_group("6000", "cache 3\ntotal_inactive_file 30\n"), 5030),
        (old_group("9223372036854771712", "cache 3\n"), FREE),  # without a limit
        ({"proc/meminfo": "MemTotal: 5 kB\n"}, None),
    ],
)
def test_what_is_available_is_the_least_of_machine_and_groups(
    tmp_path: Path, files: dict[str, str], left: int | None
) -> None:
    assert available_memory(write(tmp_path, {"proc/meminfo": MEMINFO} | files)) == left


def limit(text: str, folder: str = "") -> dict[str, str]:
    """Return the file of a control group, version 2, that says what it may use of the cores."""
    return {f"sys/fs/cgroup/{folder}cpu.max": f"{text}\n"}


def quota(microseconds: int) -> dict[str, str]:
    """Return the files of a control group, version 1, whose periods are 0.1 s."""
    return {
        "proc/self/cgroup": "4:cpu,cpuacct:/x\n",
        "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": f"{microseconds}\n",
        "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
    }


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({}, 12),
        (limit("max 100000"), 12),
        (limit("400000 100000"), 4),
        (limit("350000 100000"), 3),
        (limit("50000 100000"), 1),
        (limit("9000000 100000"), 12),
        (INNER | limit("max 100000", "a/b/") | limit("500000 100000", "a/"), 5),
        (quota(200_000), 2),
        (quota(-1), 12),
    ],
)
def test_affinity_and_control_groups_limit_the_cores(
    files: dict[str, str], want: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert usable_cores(write(tmp_path, {"proc/self/cgroup": "0::/\n"} | files)) == want


FAULTS = """
import ctypes, resource, sys, threading
import numpy as np
from colobus.runtime.system import keep_freed_memory

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: each page has a fault of its own

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


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="threads have no own priority")


def niceness(thread: int = 0) -> int:
    """Return that of a thread (0: this one), from the kernel's own file."""
    stat = Path(f"/proc/self/task/{thread or threading.get_native_id()}/stat")
    return int(stat.read_text(encoding="ascii").rsplit(")", 1)[1].split()[16])


def threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def as_nice_as_actors(before: int) -> int:
    """Return the niceness of actors; that of the tests themselves may be high already."""
    return min(before + ACTORS, 19)


class Looking:
    def __init__(self, name: str) -> None:
        self.name, self.clock, self.finished = name, Clock(), False

    def step(self) -> None:
        self.seen, self.finished = niceness(), True


class Nice(Looking):
    niceness = Actor.niceness


@on_linux
def test_actors_let_learners_go_first_and_nobody_else_is_nice() -> None:
    assert Actor.niceness == ACTORS > 0
    assert not hasattr(Learner, "niceness")
    before = niceness()
    actor, learner = Nice("actor-0"), Looking("learner-0")
    place = Threads({role.name: role for role in (actor, learner)})
    place.start()
    while not (actor.finished and learner.finished):
        place.wait(0.01)
    assert not place.stop()
    assert (actor.seen, learner.seen) == (as_nice_as_actors(before), before)
    assert niceness() == before


@pytest.mark.slow
@on_linux
def test_the_emulators_threads_are_nicer_and_the_caller_is_not() -> None:
    before, known = niceness(), threads()
    games = open_games(short_pong(1))
    for one in games:
        one.reset()
    emulators = []
    for thread in threads() - known:
        # the thread that opened them may just be going
        with suppress(FileNotFoundError, ProcessLookupError):
            emulators.append(niceness(thread))
    assert len(emulators) >= len(games) > 0
    assert set(emulators) == {as_nice_as_actors(before)}
    assert niceness() == before
