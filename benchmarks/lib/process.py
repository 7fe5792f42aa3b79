"""Runs the command line as a user does, in a process of its own, and watches its memory."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

COLOBUS = str(Path(sys.executable).with_name("colobus"))

FAULTY = (sys.executable, str(Path(__file__).with_name("faults.py")))
"""``colobus`` with ``--faults``."""

LONGEST = 7200.0
"""Seconds after which a process is ended and its cell has failed."""

SAMPLE_EVERY = 0.5
"""Seconds between looks at the memory; one look takes about a millisecond."""


class Outcome(NamedTuple):
    """How a process went. Memory is summed over it and all its descendants, in bytes."""

    began: float  # `time.time` just before it was started
    seconds: float
    peak_rss: int  # pages shared with other processes count fully


def run(words: Sequence[str], output: Path) -> Outcome:
    """Run ``colobus WORDS``, its output appended to a file, and return how it went.

    Raises:
        RuntimeError: if its exit code is not 0.
        TimeoutError: if it takes longer than `LONGEST`.
    """
    program = FAULTY if "--faults" in words else (COLOBUS,)
    rss = 0
    with output.open("ab") as file:
        began, clock = time.time(), time.monotonic()
        process = subprocess.Popen(
            [*program, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            root = psutil.Process(process.pid)
            while process.poll() is None:
                rss = max(rss, memory(root))
                if time.monotonic() - clock > LONGEST:
                    raise TimeoutError(f"colobus {words[0]} took more than {LONGEST:g} s")
                try:
                    process.wait(SAMPLE_EVERY)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        tail = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"colobus {words[0]}: exit code {process.returncode}: {''.join(tail)}")
    return Outcome(began, time.monotonic() - clock, rss)


def memory(root: psutil.Process) -> int:
    """Return the resident bytes of a process and its descendants; 0 for those that ended."""
    rss = 0
    try:
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            rss += process.memory_info().rss
    return rss


def bench(game: str, seconds: float, *more: str) -> dict[str, Any]:
    """Return what the command `bench` prints about a game."""
    done = subprocess.run(
        [COLOBUS, "bench", game, "--seconds", f"{seconds:g}", "--json", *more],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"bench: exit code {done.returncode}: {done.stderr.strip()}")
    rates: dict[str, Any] = json.loads(done.stdout)
    return rates


def clean(words: Sequence[str], scratch: Path) -> str:
    """Return a command as it goes on record: the folder for the run has no meaning later."""
    return " ".join(["colobus", *(word.replace(str(scratch), "RUNS") for word in words)])
