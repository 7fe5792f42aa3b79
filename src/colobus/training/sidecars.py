"""Sidecars: processes of low priority that evaluate or film the checkpoints of a run.

This module starts and ends them and reads their results. They run
`colobus.evaluation.sidecar.Sidecar`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from colobus.core.checkpoint import list_checkpoints
from colobus.core.program import program
from colobus.experiment.settings import Sidecars
from colobus.runs.folder import CHECKPOINTS, EVALUATIONS, VIDEOS

END_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL to a sidecar."""

ONLY = {"evaluator": "--no-record", "recorder": "--no-evaluate"}
"""What makes ``colobus follow`` the one or the other."""

Heard = Callable[[dict[str, Any]], None]
"""Takes one result of `colobus.evaluation.sidecar.Sidecar`, as a dict of JSON values."""


class SidecarProcesses:
    """A context manager in which the processes of the evaluator and the recorder run.

    Each is ``colobus follow RUN`` in a process group of its own, so Ctrl-C in a terminal interrupts
    only the training, which then ends them. They also end if this process ends. Their stderr goes
    to ``eval/follow.log`` and ``videos/follow.log`` of the run.

    Args:
        run: folder of the run, which must exist.
        wanted: which of them, and the length of films.
        heard: called with each result of `colobus.evaluation.sidecar.Sidecar`, on a thread of each
            process.
    """

    def __init__(self, run: Path, wanted: Sidecars, heard: Heard) -> None:
        self._run, self._wanted, self._heard = run, wanted, heard
        self._children: list[_Child] = []
        self._idle: list[str] = []  # names of those that ended without a result
        self._none = True  # there was no checkpoint for them

    def __enter__(self) -> SidecarProcesses:
        try:
            for name, folder in (("evaluator", EVALUATIONS), ("recorder", VIDEOS)):
                if getattr(self._wanted, name):
                    run = str(self._run.absolute())  # its name may begin with a dash
                    words = [run, ONLY[name], "--json", "--trust", "--parent", str(os.getpid())]
                    if name == "recorder":
                        words += ["--record-length", str(self._wanted.record_length)]
                    else:
                        words += ["--evaluate-minutes", str(self._wanted.evaluate_minutes)]
                    log = self._run / folder / "follow.log"
                    self._children.append(_Child(name, words, log, self._heard))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        children, self._children = self._children, []
        self._none = not list_checkpoints(self._run / CHECKPOINTS)
        for child in children:
            child.process.terminate()
        end = time.monotonic() + END_SECONDS
        for child in children:
            child.end(max(end - time.monotonic(), 0.0))
        self._idle = [child.name for child in children if not (child.results or child.told)]

    def dead(self) -> str:
        """Return a line about a process that ended too early, once for each process, or ""."""
        return next((line for child in self._children if (line := child.dead())), "")

    def idle(self) -> list[str]:
        """Return a line about each process that ended without a result, after the run's end."""
        if not list_checkpoints(self._run / CHECKPOINTS):
            return []
        why = "there was no checkpoint" if self._none else "it was not done with one"
        return [
            f"the {name} has nothing to show: {why} before the end of the run; for the last "
            f"checkpoint: {program()} follow {self._run} --once {ONLY[name]}"
            for name in self._idle
        ]


class _Child:
    """One process, and the thread that reads its results."""

    def __init__(self, name: str, words: Sequence[str], log: Path, heard: Heard) -> None:
        self.name, self._log, self._heard, self.told = name, log, heard, False
        self.results = 0
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._log_began = errors.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "colobus.cli.main", "follow", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, name=f"hears the {name}", daemon=True)
        self._reader.start()

    def dead(self) -> str:
        """Return a line about the end of the process, once; "" before and afterwards."""
        code = self.process.poll()
        if code is None or self.told:
            return ""
        self.told = True
        with self._log.open("rb") as log:
            log.seek(self._log_began)
            said = log.read().decode(errors="replace").strip().splitlines()
        last = f"its last message: {said[-1]}" if said else "it wrote no message"
        return f"the {self.name} (process {self.process.pid}) ended with exit code {code}; {last}"

    def end(self, patience: float) -> None:
        """Wait ``patience`` seconds for the process to end, then kill it."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                try:
                    result = json.loads(line)
                except ValueError:  # incomplete, as the process was killed
                    continue
                self.results += result.get("kind") != "passed over"
                self._heard(result)
