"""A sidecar of a training: it evaluates or films checkpoints, in a process of low priority.

It takes the newest complete checkpoint (or with ``every`` the oldest that is not done), plays full
games with it by `PROTOCOL` or films it, counts the checkpoints that it skipped, and begins again.
It only reads checkpoints, so training never waits for it. ``colobus follow`` is its command,
`colobus.training.sidecars` starts it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colobus.core.checkpoint import (
    by_age,
    file_of,
    is_there,
    list_checkpoints,
    read_about,
    write_checkpoint,
)
from colobus.core.errors import ColobusError
from colobus.core.functions import NoPictures
from colobus.evaluation.agent import Agent, load
from colobus.evaluation.evaluator import evaluate as play_games
from colobus.evaluation.films.player import record as film_games
from colobus.evaluation.protocols import find_protocol
from colobus.runs.folder import CHECKPOINTS, film_file
from colobus.runs.read import has_evaluation

POLL_SECONDS = 1.0
"""Seconds between two listings of a run's checkpoints."""

PROTOCOL = find_protocol("dba3c")
"""Of the evaluations; films use its policy and stuck guard."""

SEED = 0
"""Of the games and of sampled actions. No other evaluation has it by default: checkpoints are
chosen by these games, in which the best of many is better than it is in others."""


class RunEnded(Exception):
    """The run has ended: drop the work in progress."""


@dataclass(eq=False)
class Sidecar:
    """Evaluates and films complete checkpoints of a run, until the run is over.

    ``say`` takes a dict for each result:

    - evaluation: kind, steps, version, mean, max, standard_error, games, asked, skipped, file
    - film: kind, steps, version, score, games, seconds, skipped, file
    - passed over: kind, file, why; a checkpoint that is damaged, or the films of an environment
      without pictures if checkpoints are evaluated, too; told once

    ``skipped`` counts the checkpoints between the last two that were evaluated or filmed. A
    checkpoint that has its evaluation or its film is never evaluated or filmed again.

    Raises:
        ColobusError: while it works, if the protocol does not suit the game, or a film cannot be
            written.
        OSError: while it works, if an evaluation cannot be written.
    """

    run: Path  # folder of the run; it may have no checkpoints yet
    evaluate: bool  # play the protocol's games, and save the evaluation in the folder
    record: bool  # film, into the folder
    say: Callable[[dict[str, Any]], None]  # called with each result, on this thread
    until: Callable[[], bool]
    """Called about five times a second; once it returns True, work in progress is dropped without a
    trace."""
    record_seconds: float = 120.0  # length of each film; it shows one game after another
    evaluate_minutes: float = 0.0
    """After so many an evaluation begins no further game (0: it plays all)."""
    every: bool = False  # do each checkpoint, the oldest first, and not only the newest

    def __post_init__(self) -> None:
        self._folder = self.run / CHECKPOINTS
        self._seen: set[str] = set()
        self._listed_at = 0.0
        self._damaged: set[tuple[str, int]] = set()
        self._last = ""  # name of the newest that is done
        for path in list_checkpoints(self._folder):
            with suppress(ColobusError):
                if not self._todo(path):
                    self._last = path.name

    def work(self) -> None:
        """Do each checkpoint that is next until the run is over."""
        try:
            while not self.until():
                end = time.monotonic() if self.do_next() else time.monotonic() + POLL_SECONDS
                while not self.until() and time.monotonic() < end:
                    time.sleep(POLL_SECONDS / 5)
        except RunEnded:
            return

    def do_next(self) -> bool:
        """Do the missing jobs of the checkpoint that is next; return whether there were any.

        Raises:
            RunEnded: if the run ends meanwhile.
        """
        newest_first = by_age(self._folder)
        self._list_checkpoints()  # after it, so that all which are older than the newest are seen
        for path in reversed(newest_first) if self.every else newest_first:
            stamp = _completed_at(path)
            if stamp is None or (path.name, stamp) in self._damaged:
                continue
            try:
                todo = self._todo(path)
                if not todo and self.every:
                    continue
                if not todo:
                    return False
                agent = load(path)
            except ColobusError as error:
                self._pass_over(path, stamp, str(error))
                continue
            self._do(todo, agent, path.name)
            return True
        return False

    def has_usable(self) -> bool:
        """Return whether there is a complete checkpoint that was not passed over."""
        stamps = [(path.name, _completed_at(path)) for path in by_age(self._folder)]
        return any(stamp and (name, stamp) not in self._damaged for name, stamp in stamps)

    def _do(self, todo: Sequence[str], agent: Agent, name: str) -> None:
        """Do the jobs of a checkpoint and report them."""
        about = {"steps": agent.checkpoint.steps, "version": agent.checkpoint.version.number}
        skipped = sum(self._last < seen < name for seen in self._seen)
        for kind in todo:
            self._check_run()
            try:
                found, file = self._film(agent) if kind == "film" else self._evaluation(agent)
            except NoPictures as error:
                if not self.evaluate:
                    raise
                self.record = False  # evaluations go on
                self.say({"kind": "passed over", "file": name, "why": str(error)})
                continue
            self.say({"kind": kind, **about, **found, "skipped": skipped, "file": str(file)})
        self._last = name
        self._seen = {seen for seen in self._seen if seen > name}

    def _todo(self, path: Path) -> list[str]:
        """Return the jobs of a checkpoint, "evaluation" and "film", that have no file yet.

        Raises:
            ColobusError: if the checkpoint's JSON is gone or cannot be read.
        """
        todo: list[str] = []
        steps = read_about(path).steps
        own = (PROTOCOL.name, str(PROTOCOL.policy), PROTOCOL.episodes, SEED)
        if self.evaluate and not has_evaluation(self.run, steps, *own):
            todo.append("evaluation")
        if self.record and not film_file(self.run, steps).exists():
            todo.append("film")
        return todo

    def _evaluation(self, agent: Agent) -> tuple[dict[str, Any], Path]:
        """Play the protocol's games and save them; return their results and the file."""
        evaluation = play_games(
            agent,
            PROTOCOL.name,
            seed=SEED,
            progress=lambda _done, _all: self._check_run(),
            minutes=self.evaluate_minutes or None,
        )
        if evaluation.interrupted:
            raise RunEnded
        file = evaluation.save(self.run)
        if not is_there(file_of(self._folder, agent.checkpoint.version.number)):
            write_checkpoint(self._folder, agent.checkpoint)  # deleted, and may be the best
        names = ("mean", "max", "standard_error")
        found = {name: getattr(evaluation, name) for name in names}
        return found | {"games": len(evaluation.games), "asked": evaluation.episodes}, file

    def _film(self, agent: Agent) -> tuple[dict[str, Any], Path]:
        """Film games; return their results and the file."""
        film = film_games(
            agent,
            film_file(self.run, agent.checkpoint.steps),
            self.record_seconds,
            policy=PROTOCOL.policy,
            progress=lambda _done, _all: self._check_run(),
            several=True,
            stuck=PROTOCOL.stuck,
        )
        return {"score": film.score, "games": film.games, "seconds": film.seconds}, film.path

    def _list_checkpoints(self) -> None:
        """Remember the present checkpoints."""
        self._listed_at = time.monotonic()
        self._seen |= {path.name for path in list_checkpoints(self._folder)}

    def _check_run(self) -> None:
        """Raise if the run has ended; list the checkpoints, since training deletes old ones."""
        if self.until():
            raise RunEnded
        if time.monotonic() - self._listed_at > POLL_SECONDS:
            self._list_checkpoints()

    def _pass_over(self, path: Path, stamp: int, why: str) -> None:
        """Report a damaged checkpoint once; one that is gone by now was only deleted."""
        if _completed_at(path) == stamp and path.exists():
            self._damaged.add((path.name, stamp))
            self.say({"kind": "passed over", "file": str(path), "why": why})


def _completed_at(path: Path) -> int | None:
    """Return the time of a checkpoint's completion in ns; None if it is not complete."""
    try:
        return path.with_suffix(".json").stat().st_mtime_ns
    except FileNotFoundError:
        return None
