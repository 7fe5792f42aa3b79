"""Runs commands in processes of their own, among them the command line as a user does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
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

LATE = 124
"""The exit code of a process that was ended."""

SAMPLE_EVERY = 0.5
"""Seconds between looks at the memory; one look takes about a millisecond."""


class Outcome(NamedTuple):
    """How a command went. Memory is summed over it and all its descendants, in bytes."""

    code: int
    said: str  # on its standard output
    errors: str
    began: float  # `time.time` just before it was started
    seconds: float
    peak_rss: int  # pages shared with other processes count fully; 0 if nobody looked

    @property
    def failure(self) -> str:
        """Why it failed, in a line; nothing if its exit code is 0."""
        if self.code == LATE:
            return f"not over after {self.seconds:.0f} s; ended"
        told = last_line(self.errors if self.errors.strip() else self.said)
        return f"exit code {self.code}: {told}" if self.code else ""


def last_line(text: str) -> str:
    """Return the last line that is not empty, cut to a length for a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def execute(
    command: Sequence[str],
    longest: float = LONGEST,
    log: Path | None = None,
    watch: bool = False,
    **where: Any,
) -> Outcome:
    """Run a command and return how it went; at its end, end everything that it started.

    Args:
        command: its words.
        longest: seconds after which it is ended.
        log: file to which all that it says is appended, errors too.
        watch: look at its memory.
        where: its ``cwd`` and ``env``.
    """
    rss = 0
    with tempfile.TemporaryDirectory() as folder:
        said, errors = (log or Path(folder) / name for name in ("said", "errors"))
        with said.open("ab") as out, errors.open("ab") as err:
            began, clock = time.time(), time.monotonic()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                **where,
            )
            try:
                root = psutil.Process(process.pid)
                while process.poll() is None and (left := clock + longest - time.monotonic()) > 0:
                    rss = max(rss, memory(root)) if watch else 0
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(min(SAMPLE_EVERY, left))
                code, seconds = process.poll(), time.monotonic() - clock
            finally:
                with contextlib.suppress(ProcessLookupError):  # the next one has the machine alone
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in (said, errors)]
    return Outcome(LATE if code is None else code, texts[0], texts[1], began, seconds, rss)


def run(words: Sequence[str], output: Path) -> Outcome:
    """Run ``colobus WORDS``, its output appended to a file, and return how it went.

    Raises:
        RuntimeError: if its exit code is not 0, or it takes longer than `LONGEST`.
    """
    program = FAULTY if "--faults" in words else (COLOBUS,)
    done = execute([*program, *words], log=output, watch=True)
    if done.failure:
        raise RuntimeError(f"colobus {words[0]}: {done.failure}")
    return done


def memory(root: psutil.Process) -> int:
    """Return the resident bytes of a process and its descendants; 0 for those that ended."""
    ended, rss = contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied), 0
    with ended:
        for process in (root, *root.children(recursive=True)):
            with ended:
                rss += process.memory_info().rss
    return rss


def bench(game: str, seconds: float, *more: str) -> dict[str, Any]:
    """Return what the command `bench` measures of a game.

    Raises:
        RuntimeError: if its exit code is not 0.
    """
    done = execute([COLOBUS, "bench", game, "--seconds", f"{seconds:g}", "--json", *more])
    if done.failure:
        raise RuntimeError(f"bench: {done.failure}")
    rates: dict[str, Any] = json.loads(done.said)
    machine = rates.pop("machine", {})  # stands in the ledger, but for its GPU
    return rates | ({"gpu": machine["gpu"]} if machine.get("gpu") else {})


def clean(words: Sequence[str], scratch: Path) -> str:
    """Return a command as it goes on record: the folder for the run has no meaning later."""
    return " ".join(["colobus", *(word.replace(str(scratch), "RUNS") for word in words)])
