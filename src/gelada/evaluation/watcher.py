"""Evaluator and recorder beside a training: processes of their own, at low priority.

`follow` is what such a process does: it takes the newest complete checkpoint again and again,
plays full games with it by a named protocol, films it, and counts the checkpoints it skipped
meanwhile. It only reads ``checkpoints/``, so training never waits for it.
`gelada.training.sidecars.Followers` starts such processes for a training.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from gelada.core.checkpoint import list_checkpoints
from gelada.core.errors import GeladaError
from gelada.evaluation.agent import Agent, load
from gelada.evaluation.evaluator import evaluate as play_games
from gelada.evaluation.protocols import evaluation_file, find_protocol
from gelada.evaluation.video import record as film_games

LOOK_SECONDS = 1.0
"""Between two looks at a run's checkpoints."""

Say = Callable[[dict[str, Any]], None]
"""Takes one result: a dict of JSON values, its ``kind`` first (see `follow`)."""


class Over(Exception):
    """The run is over: what was being done is dropped."""


def follow(
    run: Path,
    evaluate: bool,
    record: bool,
    say: Say,
    until: Callable[[], bool],
    record_seconds: float = 120.0,
    protocol: str = "dba3c",
) -> None:
    """Evaluate and film each newest complete checkpoint of a run until the run is over.

    ``say`` takes a dict for each result:

    - evaluation: kind, steps, version, mean, max, standard_error, games, skipped, file
    - film: kind, steps, version, score, games, seconds, skipped, file
    - passed over: kind, file, why; a checkpoint that is damaged, told once

    ``skipped`` counts the checkpoints that were there since the one done before and were not
    done. What already has its file in ``eval/`` or ``videos/`` is never done again.

    Args:
        run: folder of the run; may still be without checkpoints.
        evaluate: play the protocol's games; saved as ``eval/<steps>-<protocol>.json``.
        record: film; saved as ``videos/<steps>.mp4``.
        say: takes the results, on this thread.
        until: says whether the run is over, about five times a second; work in progress is then
            dropped without a trace.
        record_seconds: length of each film, one game after the other.
        protocol: name in `protocols.PROTOCOLS`; films take its policy and stuck guard.

    Raises:
        GeladaError: if there is no such protocol, it does not suit the game, or a film cannot be
            written.
        OSError: if an evaluation cannot be written.
    """
    follower = Follower(run, evaluate, record, say, until, record_seconds, protocol)
    try:
        while not until():
            if not follower.do_newest():
                _wait(until)
    except Over:
        return


def _wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + LOOK_SECONDS
    while not until() and time.monotonic() < end:
        time.sleep(LOOK_SECONDS / 5)


class Follower:
    """Does what is wanted with a run's newest complete checkpoint; `follow` explains the rest."""

    def __init__(
        self,
        run: Path,
        evaluate: bool,
        record: bool,
        say: Say,
        until: Callable[[], bool],
        record_seconds: float = 120.0,
        protocol: str = "dba3c",
    ) -> None:
        find_protocol(protocol)
        self._folder = run / "checkpoints"
        self._say, self._until = say, until
        self._jobs: list[_Job] = []
        if evaluate:
            self._jobs.append(_Evaluation(run, protocol))
        if record:
            self._jobs.append(_Film(run, record_seconds, protocol))
        self._seen: set[str] = set()
        self._looked = 0.0
        self._damaged: set[tuple[str, int]] = set()
        done = [path.name for path in list_checkpoints(self._folder) if self._is_done(path)]
        self._last = max(done, default="")

    def do_newest(self) -> bool:
        """Do what is missing for the newest complete checkpoint; return whether anything was.

        Raises:
            Over: if the run ended meanwhile.
        """
        for path in reversed(self._look()):
            stamp = _stamp(path)
            if stamp is None or (path.name, stamp) in self._damaged:
                continue
            try:
                todo = self._todo(path)
                if not todo:
                    return False
                agent = load(path)
            except GeladaError as error:
                self._pass_over(path, stamp, str(error))
                continue
            self._do(todo, agent, path.name)
            return True
        return False

    def _do(self, todo: Sequence[_Job], agent: Agent, name: str) -> None:
        """Do the jobs; checkpoints seen between the last one done and this one were skipped."""
        about = {"steps": agent.checkpoint.steps, "version": agent.checkpoint.version.number}
        skipped = sum(self._last < seen < name for seen in self._seen)
        for job in todo:
            self._beat()
            found, file = job.do(agent, self._beat)
            self._say({"kind": job.kind, **about, **found, "skipped": skipped, "file": str(file)})
        self._last = name
        self._seen = {seen for seen in self._seen if seen > name}

    def _todo(self, path: Path) -> list[_Job]:
        """Return the jobs without a file yet.

        Raises:
            GeladaError: if the checkpoint's JSON is gone or cannot be read.
        """
        try:
            steps = int(json.loads(path.with_suffix(".json").read_bytes())["steps"])
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            raise GeladaError(f"checkpoint {path.name}: its JSON cannot be read") from None
        return [job for job in self._jobs if not job.file(steps).exists()]

    def _is_done(self, path: Path) -> bool:
        try:
            return not self._todo(path)
        except GeladaError:
            return False

    def _look(self) -> list[Path]:
        """Return the checkpoints that are there now, oldest first, and remember them."""
        self._looked = time.monotonic()
        paths = list_checkpoints(self._folder)
        self._seen |= {path.name for path in paths}
        return paths

    def _beat(self) -> None:
        """Called again and again during a job: the trainer deletes checkpoints meanwhile."""
        if self._until():
            raise Over
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._look()

    def _pass_over(self, path: Path, stamp: int, why: str) -> None:
        """Tell once of a checkpoint that is damaged; one that is gone by now was only deleted."""
        if _stamp(path) == stamp and path.exists():
            self._damaged.add((path.name, stamp))
            self._say({"kind": "passed over", "file": str(path), "why": why})


def _stamp(path: Path) -> int | None:
    """Return when a checkpoint was completed, in ns; None if it is not complete."""
    try:
        return path.with_suffix(".json").stat().st_mtime_ns
    except FileNotFoundError:
        return None


class _Job(Protocol):
    """Something to do with a checkpoint."""

    kind: str

    def file(self, steps: int) -> Path:
        """Return the file that is there when it is done."""

    def do(self, agent: Agent, beat: Callable[[], None]) -> tuple[dict[str, Any], Path]:
        """Do it, calling ``beat`` often; return what was found, and the file."""


class _Evaluation:
    kind = "evaluation"

    def __init__(self, run: Path, protocol: str) -> None:
        self._run, self._protocol = run, protocol

    def file(self, steps: int) -> Path:
        return evaluation_file(self._run, steps, self._protocol)

    def do(self, agent: Agent, beat: Callable[[], None]) -> tuple[dict[str, Any], Path]:
        evaluation = play_games(agent, self._protocol, progress=lambda _done, _all: beat())
        if evaluation.interrupted:
            raise Over
        names = ("mean", "max", "standard_error")
        found = {name: getattr(evaluation, name) for name in names}
        return found | {"games": len(evaluation.games)}, evaluation.save(self._run)


class _Film:
    kind = "film"

    def __init__(self, run: Path, seconds: float, protocol: str) -> None:
        self._run, self._seconds, self._protocol = run, seconds, find_protocol(protocol)

    def file(self, steps: int) -> Path:
        return self._run / "videos" / f"{steps}.mp4"

    def do(self, agent: Agent, beat: Callable[[], None]) -> tuple[dict[str, Any], Path]:
        film = film_games(
            agent,
            self.file(agent.checkpoint.steps),
            self._seconds,
            policy=self._protocol.policy,
            progress=lambda _done, _all: beat(),
            several=True,
            stuck=self._protocol.stuck,
        )
        found = {"score": film.score, "games": film.games, "seconds": film.seconds}
        return found, film.path
