"""A plugin: tests that start processes are marked so; those that need a second try are named.

Files whose tests take longest come first.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Generator, Sequence
from multiprocessing import process
from typing import Any

import pytest

MARKS = {"processes", "cluster", "browser", "package", "gpu"}
"""One of these tells that a test may start processes."""

QUESTIONS = {"git", "fc-list"}
"""Each run asks git for the commit, matplotlib on a new machine for fonts; neither stays."""

LONGEST = ("ray_restored", "slurm", "ray_runs", "ray_failures", "ray_errors")
"""Of tests on clusters: tests/runtime/test_*.py that take minutes each, the longest first."""

_started: list[str] = []
"""What this process has started since the test began."""


def _heard(event: str, args: Sequence[Any]) -> None:
    if event == "subprocess.Popen":
        words = args[1] if isinstance(args[1], list | tuple) else [args[1]]
        if os.path.basename(os.fsdecode(words[0])) not in QUESTIONS:
            _started.append(" ".join(map(str, words)))
    elif event in ("os.fork", "os.forkpty", "os.posix_spawn"):
        _started.append(event)


_start = process.BaseProcess.start


def _note_and_start(self: process.BaseProcess) -> None:
    """Take the place of multiprocessing's start, of which no audit event tells."""
    _started.append(self.name)
    _start(self)


def pytest_configure() -> None:
    """Listen from now on; nothing takes an audit hook away again."""
    platform.processor()  # asks another program, once in a process; else a test would
    sys.addaudithook(_heard)
    process.BaseProcess.start = _note_and_start  # type: ignore[method-assign]  # as said there


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag with which a second try tells what it is."""
    parser.addoption(
        "--second-try", action="store_true", help="say of each test that passes: it is flaky"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first: of several workers none goes on alone with one at the end."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Forget what the tests before have started."""
    _started.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that has started processes and has no mark that tells it."""
    done = yield
    if _started and MARKS.isdisjoint(mark.name for mark in item.iter_markers()):
        pytest.fail(f"starts processes: mark it `processes`; {_started[:3]}")
    return done


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the tests that passed at the second try only."""
    if config.getoption("--second-try"):
        for report in terminalreporter.getreports("passed"):
            if report.when == "call":
                terminalreporter.write_line(f"FLAKY: passed at the second try: {report.nodeid}")
