"""Sidecars: processes of low priority that evaluate or film the checkpoints of a run.

This module starts and ends them and reads their results. They run
`colobus.evaluation.sidecar.Sidecar`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colobus.core.checkpoint import by_age, is_there, list_checkpoints, read_about
from colobus.core.errors import Closed, ColobusError, Lost, program, quoted
from colobus.core.files import parse_lines, write_whole
from colobus.experiment.settings import Sidecars
from colobus.runs.folder import CHECKPOINTS, CONFIG, EVALUATIONS, VIDEOS, film_file
from colobus.runtime.api import Done, Errand

LOOK_SECONDS, LONGEST_WAIT = 1.0, 600.0
"""Seconds between two looks for checkpoints that are sent to another host; after each loss in a row
twice as many, up to the second."""

END_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL to a sidecar."""

ONLY = {"evaluator": "--no-record", "recorder": "--no-evaluate"}
"""What makes ``colobus follow`` the one or the other."""

Heard = Callable[[dict[str, Any]], None]
"""Takes one result of `colobus.evaluation.sidecar.Sidecar`, as a dict of JSON values."""


@dataclass(eq=False)
class SidecarProcesses:
    """A context manager in which the processes of the evaluator and the recorder run.

    Each is ``colobus follow RUN`` in a process group of its own, so Ctrl-C in a terminal interrupts
    only the training, which then ends them. They also end if this process ends. Their stderr goes
    to ``eval/follow.log`` and ``videos/follow.log`` of the run.
    """

    run: Path  # folder of the run, which must exist
    wanted: Sidecars  # which of them, and the length of films
    heard: Heard  # called with each result, on a thread of each process
    elsewhere: Callable[[str], Errand | None] = lambda _: None
    """Returns what sends the errands of one of them to another host; None: it is a process here."""

    def __post_init__(self) -> None:
        self._children: list[_Child | _Away] = []
        self._ended: list[_Child | _Away] = []

    def __enter__(self) -> SidecarProcesses:
        try:
            for name, folder in (("evaluator", EVALUATIONS), ("recorder", VIDEOS)):
                if getattr(self.wanted, name):
                    words = [ONLY[name], "--json", "--trust"]
                    if name == "recorder":
                        words += ["--record-length", str(self.wanted.record_length)]
                    else:
                        words += ["--evaluate-minutes", str(self.wanted.evaluate_minutes)]
                    log = self.run / folder / "follow.log"
                    if errand := self.elsewhere(name):
                        given = (self.run, words, log, self.wanted.every, errand, self.heard)
                        self._children.append(_Away(name, *given))
                        continue
                    run = str(self.run.absolute())  # its name may begin with a dash
                    words += ["--every"] * self.wanted.every + ["--parent", str(os.getpid())]
                    self._children.append(_Child(name, [run, *words], log, self.heard))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ended, self._children = self._children, []
        for child in self._ended:
            child.stop()
        end = time.monotonic() + END_SECONDS
        for child in self._ended:
            child.end(max(end - time.monotonic(), 0.0))

    def dead(self) -> str:
        """Return a line about a process that ended too early, once for each process, or ""."""
        return next((line for child in self._children if (line := child.dead())), "")

    def idle(self) -> list[str]:
        """Return a line about each process that ended without a result, after the run's end."""
        if not list_checkpoints(self.run / CHECKPOINTS):
            return []
        if self.wanted.every and self._ended:
            again = f"{program()} follow {quoted(str(self.run))} --once --every"
            only = "" if len(self._ended) > 1 else f" {ONLY[self._ended[0].name]}"
            return [f"checkpoints that were not evaluated or filmed yet are by: {again}{only}"]
        return [
            f"the {child.name} has nothing to show: it was not done with a checkpoint before the "
            f"end of the run; for the last one: {program()} follow {quoted(str(self.run))} --once "
            f"{ONLY[child.name]}"
            for child in self._ended
            if not (child.results or child.told)
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

    def stop(self) -> None:
        """Ask the process to end."""
        self.process.terminate()

    def dead(self) -> str:
        """Return a line about the end of the process, once; "" before and afterwards."""
        code = self.process.poll()
        if code is None or self.told:
            return ""
        self.told = True
        written = self._log.read_bytes()[self._log_began :]
        said = written.decode(errors="replace").strip().splitlines()
        last = f"its last message: {said[-1]}" if said else "it wrote no message"
        return f"the {self.name} (process {self.process.pid}) ended with exit code {code}; {last}"

    def end(self, patience: float) -> None:
        """Wait ``patience`` seconds for the process to end, then kill it."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with suppress(AttributeError, OSError):  # what its games have started; not on Windows
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.join(END_SECONDS)  # one that left the group may still hold the pipe

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                for result in parse_lines(line):  # none of half a line, as the process was killed
                    self.results += result.get("kind") != "passed over"
                    self._heard(result)


@dataclass(eq=False)
class _Away:
    """A sidecar on another host, and the thread that sends it one checkpoint after the other."""

    name: str
    run: Path
    words: Sequence[str]
    log: Path
    every: bool
    errand: Errand
    heard: Heard

    def __post_init__(self) -> None:
        self.told, self.results = False, 0
        self._known: set[tuple[str, int]] = set()  # checkpoints, by name and time
        self._lines: list[str] = []  # that `dead` has not returned yet
        self._over = threading.Event()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        name = f"sends the {self.name}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end."""
        self._over.set()
        self.errand.close()

    def end(self, patience: float) -> None:
        """Wait at most ``patience`` seconds for it to end."""
        self._thread.join(patience)

    def dead(self) -> str:
        """Return a line about what went wrong there, once; "" if nothing did."""
        return self._lines.pop(0) if self._lines else ""

    def _work(self) -> None:
        wait = LOOK_SECONDS
        while not self._over.wait(wait):
            try:
                self._send_next()
                wait = LOOK_SECONDS
            except Closed:
                return
            except Lost as error:
                wait = min(2 * wait, LONGEST_WAIT)
                self._lines.append(f"the {self.name} was lost ({error}); begun again in {wait:g} s")
            except FileNotFoundError:
                continue  # it was deleted meanwhile
            except (ColobusError, OSError) as error:
                self._lines.append(f"the {self.name} passes over a checkpoint: {error}")

    def _send_next(self) -> None:
        """Have the next checkpoint evaluated or filmed, if there is one."""
        before = set(self._known)
        if not (found := self._next()):
            return
        path, skipped = found
        words, files = self._packed(path)
        try:
            done = self.errand(words, files)
        except Lost:
            self._known = before  # it is sent again
            raise
        if not is_there(path):  # deleted, and may be the best
            done.files.update({name: files[name] for name in files if CHECKPOINTS in name})
        self._take(path, skipped, done)

    def _next(self) -> tuple[Path, int] | None:
        """Return a checkpoint for it, and how many are skipped."""
        paths = filter(is_there, by_age(self.run / CHECKPOINTS))
        new = [path for path in paths if _stamp(path) not in self._known]
        if not new:
            return None
        if self.every:
            self._known.add(_stamp(new[-1]))
            return new[-1], 0
        self._known |= set(map(_stamp, new))
        return new[0], len(new) - 1

    def _packed(self, path: Path) -> tuple[list[str], dict[str, bytes]]:
        """Return the words and files of an errand: the checkpoint, and what there is of it."""
        steps = read_about(path).steps
        wanted = [self.run / CONFIG, path, path.with_suffix(".json")]
        wanted += (self.run / EVALUATIONS).glob(f"{steps}-*.json")
        files = {one.relative_to(self.run).as_posix(): one.read_bytes() for one in wanted}
        if (film := film_file(self.run, steps)).exists():
            files[film.relative_to(self.run).as_posix()] = b""
        return ["follow", ".", "--once", *self.words], files

    def _take(self, path: Path, skipped: int, done: Done) -> None:
        """Take what an errand has made and said."""
        for file, data in done.files.items():
            (self.run / file).parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.run / file, data)
        for result in parse_lines(done.out):
            self.results += result.get("kind") != "passed over"
            where = {"file": str(self.run / result["file"]), "skipped": skipped}
            self.heard(result | where)
        if done.code:
            self.told = True
            last = (done.err.strip().splitlines() or ["it wrote no message"])[-1]
            self._lines.append(f"the {self.name} could not use {path.name}: {last}")
        with self.log.open("a", encoding="utf-8") as log:
            log.write(done.err)


def _stamp(path: Path) -> tuple[str, int]:
    """Return what tells a checkpoint from one of the same version that was written before."""
    return path.name, path.with_suffix(".json").stat().st_mtime_ns
