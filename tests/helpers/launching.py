"""The command line in this process, or as a process of its own; calls that have to wait."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from colobus.cli import main as cli
from colobus.core.errors import Closed

T = TypeVar("T")

LONG = 300.0
"""Seconds: a bound for waiting, on a slow machine too."""

CATCH = ("train", "catch", "--no-finish", "--no-tensorboard")

QUIET: dict[str, Any] = {"tensorboard": False, "log": lambda _line: None}
"""How `colobus.train` says nothing."""


def start(*args: object, script: Path | None = None) -> subprocess.Popen[str]:
    """Start ``colobus ARGS``, or a driver script in its place."""
    command = [str(script)] if script else ["-m", "colobus.cli.main"]
    return subprocess.Popen(
        [sys.executable, *command, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a process that ends by itself."""
    try:
        out, err = process.communicate(timeout=LONG)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it never ended; it said: {process.communicate()}")
    return process.returncode, out, err


def colobus(*args: object) -> tuple[int, str, str]:
    """Run ``colobus ARGS`` in this process; return exit code, stdout and stderr.

    A process of its own would import everything anew, which takes longer than most of what is
    asked for. Minutes of training would count from the start of the tests.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(list(map(str, args)))
    return code, out.getvalue(), err.getvalue()


def printed(*args: object) -> str:
    """Return what ``colobus ARGS`` prints, which must succeed."""
    code, out, err = colobus(*args)
    assert code == 0, err
    return out


ONE_OF_EACH = ("pong", "dba3c-pong", "gorila-pong", "iqn-pong", "pqn-pong")
"""A preset of each algorithm: their settings are flags, too."""


@cache
def flags_of(command: str) -> frozenset[str]:
    """Return the flags in a command's help."""
    runs = command in ("eval", "record", "follow", "play", "export")
    flags: set[str] = set()
    for subject in ("runs/pong-1",) if runs else ONE_OF_EACH:
        flags |= set(re.findall(r"--[a-z][\w-]*", printed(command, subject, "--help-all")))
    return frozenset(flags)


def told(*args: object) -> Any:
    """Return the object that ``colobus ARGS --json`` prints."""
    return json.loads(printed(*args, "--json"))


def refused(*args: object) -> str:
    """Return the line with which ``colobus ARGS`` says that it cannot be, and nothing else."""
    code, out, err = colobus(*args)
    assert (code, out) == (2, ""), err
    assert re.fullmatch(r"colobus: [^\n]+\n", err)
    return err


def python(*words: object, folder: Path | None = None, **environment: str) -> str:
    """Run Python with words in a new process, which must succeed; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", *map(str, words)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_until(holds: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for something, which a process does if one is given."""
    until = time.monotonic() + LONG
    while not holds():
        if process is not None and (process.poll() is not None or time.monotonic() > until):
            process.kill()
            pytest.fail(f"it never came; stderr: {process.communicate()[1]}")
        assert time.monotonic() < until, "it never came"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Say whether a process ended; one that nobody waits for stays a zombie."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def complete(run: Path) -> list[dict[str, Any]]:
    """Return what the JSONs of a run's checkpoints say, oldest first."""
    found = []
    for path in sorted((run / "checkpoints").glob("[0-9]*.json")):
        with contextlib.suppress(FileNotFoundError):  # old ones are deleted while a run goes on
            found.append(json.loads(path.read_text()))
    return found


def on_a_thread(call: Callable[[], T]) -> Future[T]:
    """Begin a call; what it returns or raises is that of the future."""
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found


def assert_closed(*calls: Callable[[], object]) -> None:
    """Each of these calls is refused, or ended, since the run stops."""
    for call in calls:
        with pytest.raises(Closed):
            call()
