"""Sidecars, processes of low priority beside a run: start them, take their results, end them.

A sidecar evaluates or films the run's checkpoints, by `gelada.evaluation.watcher.follow`.
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

END_SECONDS = 5.0
"""Seconds that a sidecar gets to end by itself after SIGTERM."""

Heard = Callable[[dict[str, Any]], None]
"""Takes one result of `gelada.evaluation.watcher.follow`, as a dict of JSON values."""


class Followers:
    """The evaluator's and the recorder's process, which run while the context is entered.

    Each is ``gelada follow RUN`` in a process group of its own, so Ctrl-C in a terminal reaches
    the training alone, which then ends them. They end by themselves if this process is gone.
    What they write on stderr goes to ``eval/follow.log`` and ``videos/follow.log`` of the run.

    Args:
        run: folder of the run; enter this after the run's folder was made, as it writes there.
        evaluate: start an evaluator.
        record: start a recorder.
        record_seconds: length of each film.
        heard: takes each result (see `evaluation.watcher.follow`) on a thread for each child.
    """

    def __init__(
        self,
        run: Path,
        evaluate: bool,
        record: bool,
        record_seconds: float,
        heard: Heard,
    ) -> None:
        length = ["--record-length", str(record_seconds)]
        self._run, self._heard = run, heard
        self._wanted: list[tuple[str, list[str], Path]] = []
        if evaluate:
            self._wanted.append(("evaluator", ["--no-record"], run / "eval"))
        if record:
            self._wanted.append(("recorder", ["--no-evaluate", *length], run / "videos"))
        self._children: list[_Child] = []

    def __enter__(self) -> Followers:
        try:
            for name, words, folder in self._wanted:
                command = [str(self._run), *words, "--json", "--parent", str(os.getpid())]
                self._children.append(_Child(name, command, folder / "follow.log", self._heard))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        children, self._children = self._children, []
        for child in children:
            child.process.terminate()
        end = time.monotonic() + END_SECONDS
        for child in children:
            child.end(max(end - time.monotonic(), 0.0))

    def dead(self) -> str:
        """Return a line that names a child that ended by itself, once for each, or ""."""
        return next((line for child in self._children if (line := child.dead())), "")


class _Child:
    """One process, and the thread that reads what it finds."""

    def __init__(self, name: str, words: Sequence[str], log: Path, heard: Heard) -> None:
        self.name, self._log, self._heard, self._told = name, log, heard, False
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._log_began = errors.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gelada.cli.main", "follow", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, name=f"hears the {name}", daemon=True)
        self._reader.start()

    def dead(self) -> str:
        """Return a line about how the process ended; "" while it runs, and the second time."""
        code = self.process.poll()
        if code is None or self._told:
            return ""
        self._told = True
        with self._log.open("rb") as log:
            log.seek(self._log_began)
            said = log.read().decode(errors="replace").strip().splitlines()
        last = f"it said: {said[-1]}" if said else "it said nothing"
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
                except ValueError:  # torn when the process was killed
                    continue
                self._heard(result)
