"""Tracker: keeps the score, writes metrics and checkpoints, and says when to stop. Passive.

It is the only writer of a run's folder while the run lasts. Files are written by a thread of its
own, so nobody who reports ever waits for a disk.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch

from gelada.checkpoint import Checkpoint, forget_old, write_checkpoint
from gelada.ops.flat import Layout
from gelada.types import Aux, Game, Params, Update

WINDOW = 50
"""Full games in the running mean score."""


@dataclass(frozen=True)
class StopRule:
    """When a run ends: at the first of these that holds."""

    steps: int | None = None
    """Stop after this many environment steps."""
    minutes: float | None = None
    """Stop after this many minutes."""
    until_score: float | None = None
    """Stop when the mean raw return of the last 50 full games reaches this."""


@dataclass(frozen=True)
class TrackerSettings:
    """What is written, and how often."""

    checkpoint_seconds: float = 60.0
    """Write a checkpoint this often; the newest complete one is always loadable."""
    keep_checkpoints: int = 5
    """Keep the newest checkpoints (0: all of them)."""
    tensorboard: bool = True
    """Write TensorBoard events."""


@dataclass
class Status:
    """What a display shows. Steps are agent decisions, scores raw returns of full games."""

    steps: int = 0
    seconds: float = 0.0
    version: int = 0
    games: int = 0
    score: float | None = None  # mean of the last 50 games
    best: float | None = None  # best such mean of 50
    best_game: float | None = None
    last_checkpoint: str = ""
    values: dict[str, float] = field(default_factory=dict)
    lag: tuple[float, float, float] = (0.0, 0.0, 0.0)
    curve: list[tuple[int, float, float]] = field(default_factory=list)  # steps, seconds, score


class Tracker:
    """Scores, metrics, checkpoints, stop rule of one run.

    Args:
        folder: of the run; None writes nothing (tests).
        settings: what is written.
        stop: when the run ends.
        layout: names the parameters in checkpoints.
        fixed: tensors stored in every checkpoint as they are (the input statistics).
        began: `time.monotonic` at the run's beginning.
        counters: of the checkpoint a resumed run starts from.
        every: write a metrics line every so many versions (deterministic mode) instead of once
            a second.
        first_version: count of the version this process began with.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: TrackerSettings,
        stop: StopRule,
        layout: Layout,
        fixed: dict[str, torch.Tensor],
        began: float | None = None,
        counters: dict[str, Any] | None = None,
        every: int | None = None,
        first_version: int = 0,
    ) -> None:
        counters = counters or {}
        self._first_version = first_version
        self._folder, self._settings, self._stop = folder, settings, stop
        self._layout, self._fixed = layout, fixed
        self._began = time.monotonic() if began is None else began
        self._earlier = float(counters.get("seconds", 0.0))
        self._every = every
        self._lock = threading.Lock()
        self._pending: list[Game] = []
        self._recent: deque[float] = deque(counters.get("recent_scores", []), maxlen=WINDOW)
        self._status = Status(
            games=int(counters.get("games", 0)),
            best=counters.get("best"),
            best_game=counters.get("best_game"),
        )
        if self._recent:
            self._status.score = sum(self._recent) / len(self._recent)
        self._last_line = 0.0
        self._last_checkpoint = time.monotonic()
        self._writer = _Writer(folder, settings) if folder else None

    def seconds(self) -> float:
        """Return the seconds of training so far, earlier parts of a resumed run included."""
        return self._earlier + time.monotonic() - self._began

    def game(self, game: Game) -> None:
        """Take a finished full game."""
        with self._lock:
            self._pending.append(game)

    def report(self, update: Update) -> bool:
        """Take a learner's round; return whether the run should end now."""
        with self._lock:
            self._count_games(update.version.number)
            status = self._status
            status.steps, status.version = update.steps, update.version.number
            status.seconds = self.seconds()
            status.values, status.lag = update.values, update.lag
            if status.score is not None:
                status.curve.append((status.steps, status.seconds, status.score))
            self._write_line(update)
            return self._is_over()

    def wants_checkpoint(self) -> bool:
        """Say whether a checkpoint is due."""
        if self._writer is None:
            return False
        return time.monotonic() - self._last_checkpoint >= self._settings.checkpoint_seconds

    def checkpoint(
        self,
        slices: Sequence[Params],
        optimizers: Sequence[dict[str, torch.Tensor]],
        aux: Aux,
        steps: int,
    ) -> None:
        """Write a checkpoint of slices of one version with their optimizer states."""
        if self._writer is None:
            return
        versions = {params.version for params in slices}
        if len(versions) != 1:
            raise ValueError(f"a checkpoint needs slices of one version, got {sorted(versions)}")
        self._last_checkpoint = time.monotonic()
        with self._lock:
            counters = {
                "seconds": round(self.seconds(), 3),
                "games": self._status.games,
                "score": self._status.score,
                "best": self._status.best,
                "best_game": self._status.best_game,
                "recent_scores": list(self._recent),
            }
        tensors = {f"aux/{name}": tensor for name, tensor in aux.items()} | self._fixed
        tensors |= self._name("parameter", torch.cat([params.values for params in slices]))
        for name, first in optimizers[0].items():
            if first.dim() == 0:
                tensors[f"optimizer/{name}"] = first
            else:
                whole = torch.cat([state[name] for state in optimizers])
                tensors |= self._name(f"optimizer/{name}", whole)
        checkpoint = Checkpoint(slices[0].version, steps, tensors, counters)
        self._writer.put(lambda: self._save(checkpoint))

    def status(self) -> Status:
        """Return a copy of what a display shows."""
        with self._lock:
            copy = Status(**vars(self._status))
            copy.curve = list(self._status.curve)
            return copy

    def finish(self) -> None:
        """Wait until everything is written. (Not `close`: nobody ever waits for a tracker.)

        Raises:
            OSError: what went wrong with the last write, such as a full disk.
        """
        if self._writer:
            self._writer.close()

    def failure(self) -> OSError | None:
        """Return what went wrong with writing, if anything did."""
        return self._writer.failure if self._writer else None

    def _name(self, prefix: str, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"{prefix}/{k}": v for k, v in self._layout.named(vector.cpu()).items()}

    def _save(self, checkpoint: Checkpoint) -> None:
        assert self._folder is not None
        folder = self._folder / "checkpoints"
        path = write_checkpoint(folder, checkpoint)
        forget_old(folder, self._settings.keep_checkpoints)
        with self._lock:
            self._status.last_checkpoint = path.name

    def _count_games(self, version: int) -> None:
        """Take in the games that have come.

        In the deterministic mode only those of rounds that were learned from, ordered by actor,
        so that the score at a version does not depend on who was faster.
        """
        taken = self._pending
        if self._every:
            taken = sorted(g for g in self._pending if g.round < version - self._first_version)
        self._pending = [] if not self._every else [g for g in self._pending if g not in taken]
        status = self._status
        for game in taken:
            self._recent.append(game.score)
            status.games += 1
            best_game = status.best_game
            status.best_game = game.score if best_game is None else max(game.score, best_game)
            status.score = sum(self._recent) / len(self._recent)
            if len(self._recent) == WINDOW:
                best = status.best
                status.best = status.score if best is None else max(best, status.score)

    def _is_over(self) -> bool:
        rule, status = self._stop, self._status
        if rule.steps is not None and status.steps >= rule.steps:
            return True
        if rule.minutes is not None and status.seconds >= 60 * rule.minutes:
            return True
        full = len(self._recent) == WINDOW and status.score is not None
        return full and rule.until_score is not None and (status.score or 0.0) >= rule.until_score

    def _write_line(self, update: Update) -> None:
        if self._writer is None:
            return
        now = time.monotonic()
        due = (
            update.version.number % self._every == 0 if self._every else now - self._last_line >= 1
        )
        if not due:
            return
        self._last_line = now
        status = self._status
        line = {
            "steps": status.steps,
            "seconds": round(status.seconds, 3),
            "version": status.version,
            "games": status.games,
            "score": status.score,
            "best": status.best,
            "lag_min": update.lag[0],
            "lag_mean": update.lag[1],
            "lag_max": update.lag[2],
            **update.values,
        }
        writer = self._writer
        writer.put(lambda: writer.line(line))


class _Writer:
    """A thread that writes; an error is kept and writing goes on with the next thing."""

    def __init__(self, folder: Path, settings: TrackerSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._metrics: TextIO | None = None
        self._events: Any = None
        self.failure: OSError | None = None
        self._todo: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def put(self, write: Callable[[], None]) -> None:
        self._todo.put(write)

    def close(self) -> None:
        self._todo.put(None)
        self._thread.join()
        if self._metrics:
            self._metrics.close()
        if self._events:
            self._events.close()
        if self.failure:
            raise self.failure

    def line(self, line: dict[str, Any]) -> None:
        if self._metrics is None:
            path = self._folder / "metrics.jsonl"
            torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
            self._metrics = path.open("a", encoding="utf-8")
            if torn:  # a killed run's last line must not swallow our first
                self._metrics.write("\n")
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()
        if not self._settings.tensorboard:
            return
        if self._events is None:
            from tensorboardX import SummaryWriter

            self._events = SummaryWriter(str(self._folder / "tensorboard"))
        for name, value in line.items():
            if name not in ("steps", "version") and value is not None:
                self._events.add_scalar(name, value, line["steps"])

    def _run(self) -> None:
        torch.set_num_threads(1)
        while (write := self._todo.get()) is not None:
            try:
                write()
            except OSError as error:
                self.failure = error
