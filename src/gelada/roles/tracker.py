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
from typing import Annotated, Any, Literal, NamedTuple, TextIO

import torch

from gelada.core.checkpoint import Checkpoint, forget_old, write_checkpoint
from gelada.core.settings import NUMBER, POSITIVE, Range
from gelada.core.types import Aux, Episode, Params, Traffic, Update
from gelada.ops.flat import Layout

WINDOW = 50
"""Full games in the running mean score."""

ACTIVE_SECONDS = 10.0
"""A learner that reported within this time is active."""


@dataclass(frozen=True)
class StopRule:
    """When a run ends: at the first of these that holds."""

    steps: Annotated[int, Range(1)] | None = None
    """Stop after this many environment steps."""
    minutes: Annotated[float, POSITIVE] | None = None
    """Stop after this many minutes."""
    until_score: Annotated[float, NUMBER] | None = None
    """Stop when the mean raw return of the last 50 full games reaches this."""
    until_evaluated: Annotated[float, NUMBER] | Literal["auto"] | None = None
    """Stop when the evaluator's mean of 50 full games reaches this; auto is DBA3C's target for the
    game."""


@dataclass(frozen=True)
class TrackerSettings:
    """What is written, and how often."""

    checkpoint_seconds: Annotated[float, POSITIVE] = 60.0
    """Write a checkpoint this often; the newest complete one is always loadable."""
    keep_checkpoints: Annotated[int, Range(0)] = 5
    """Keep the newest checkpoints (0: all of them)."""
    tensorboard: bool = True
    """Write TensorBoard events."""


class Begun(NamedTuple):
    """What the tracker tells a role that begins in a process."""

    life: int  # how many times this role had begun before; 0 the first time
    steps: int  # environment steps of the run behind it


class Workers(NamedTuple):
    """How the learners of several workers are doing together."""

    active: int  # that reported of late
    all: int
    traffic: Traffic  # summed over them, since the start
    updates: int  # batches of all of them since the start
    queue: float  # trajectories that waited for a learner: mean of the newest updates
    waited: float  # seconds a learner waited for others before an update: likewise
    outliers: int = 0  # gradients that learners dropped for their loss, since the start


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
    workers: Workers | None = None
    evaluated: float | None = None  # mean of the evaluator's last 50 full games
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
        steps: environment steps behind it.
        learners: that report.
        marked: remember the steps behind versions divisible by this (0: none), for checkpoints
            of those versions.
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
        steps: int = 0,
        learners: int = 1,
        marked: int = 0,
    ) -> None:
        counters = counters or {}
        self._first_version = first_version
        self._folder, self._settings, self._stop = folder, settings, stop
        self._layout, self._fixed = layout, fixed
        self._began = time.monotonic() if began is None else began
        self._earlier = float(counters.get("seconds", 0.0))
        self._every = every
        self._lock = threading.Lock()
        self._pending: list[Episode] = []
        self._recent: deque[float] = deque(counters.get("recent_scores", []), maxlen=WINDOW)
        self._status = Status(
            steps=steps,
            seconds=self.seconds(),
            games=int(counters.get("games", 0)),
            best=counters.get("best"),
            best_game=counters.get("best_game"),
        )
        if self._recent:
            self._status.score = sum(self._recent) / len(self._recent)
        self._first_steps = steps
        self._lives: dict[str, int] = {}  # how often each role has begun, by name
        self._learners = learners
        self._newest: dict[int, Update] = {}  # by learner
        self._heard: dict[int, float] = {}  # when, by learner
        self._updates = 0
        self._round: dict[int, dict[int, Update]] = {}  # deterministic: by version and learner
        self._marked = marked
        self._steps_at: dict[int, int] = {}
        self._last_line = 0.0
        self._over = False  # the stop rule holds
        self._last_checkpoint = time.monotonic()
        self._writer = _Writer(folder, settings) if folder else None

    def seconds(self) -> float:
        """Return the seconds of training so far, earlier parts of a resumed run included."""
        return self._earlier + time.monotonic() - self._began

    def begin(self, name: str) -> Begun:
        """Count that a role begins; return what it needs to go on where it died.

        A role calls this before its first step in a process, and again after a restart inside of
        the process. The first time it gets the steps that the run began with, whatever others
        have reported meanwhile, so that a run without restarts does not depend on who is faster.

        Args:
            name: of the role, such as ``learner-0``.
        """
        with self._lock:
            life = self._lives.get(name, 0)
            self._lives[name] = life + 1
            return Begun(life, self._status.steps if life else self._first_steps)

    def episode(self, episode: Episode) -> None:
        """Take a finished full game."""
        with self._lock:
            self._pending.append(episode)

    def report(self, update: Update) -> bool:
        """Take a learner's batch; return whether the run should end now.

        Learners report before they push. So in the deterministic mode, where a version is made
        of one batch of each, all of them have reported before the next version is there; what
        they said is taken in at once, in their order.
        """
        with self._lock:
            if self._over:  # what others learned until they heard of it does not count
                return True
            number = update.version.number
            if not self._every:
                self._over = self._take(number, [update])
                return self._over
            told = self._round.setdefault(number, {})
            told[update.learner] = update
            if len(told) < self._learners:
                return False
            self._over = self._take(number, [told[i] for i in sorted(self._round.pop(number))])
            return self._over

    def _take(self, number: int, updates: list[Update]) -> bool:
        """Take in what was learned for version ``number``; return whether the run is over."""
        self._count_games(number)
        status = self._status
        grown = number > status.version
        for update in updates:
            self._newest[update.learner] = update
            self._heard[update.learner] = time.monotonic()
            self._updates += 1
            status.steps += update.steps
        status.version = max(number, status.version)
        if self._marked and number % self._marked == 0:
            self._steps_at[number] = status.steps
        status.seconds = self.seconds()
        newest = [self._newest[i] for i in sorted(self._newest)]
        status.values = _mean_values([update.values for update in newest])
        least, mean, most = zip(*(update.lag for update in newest), strict=True)
        status.lag = (min(least), sum(mean) / len(mean), max(most))
        status.workers = self._together(newest)
        if status.score is not None and grown:
            status.curve.append((status.steps, status.seconds, status.score))
        over = self._is_over()
        self._write_line(last=over)
        return over

    def _together(self, newest: list[Update]) -> Workers | None:
        """Return how several workers are doing; None where servers step a learner's memory."""
        traffics = [update.traffic for update in newest if update.traffic is not None]
        if not traffics:
            return None
        now = time.monotonic()
        return Workers(
            active=sum(now - heard < ACTIVE_SECONDS for heard in self._heard.values()),
            all=self._learners,
            traffic=Traffic(*(sum(counts) for counts in zip(*traffics, strict=True))),
            outliers=sum(update.outliers for update in newest),
            updates=self._updates,
            queue=sum(update.queue for update in newest) / len(newest),
            waited=sum(update.waited for update in newest) / len(newest),
        )

    def evaluated(self, mean: float) -> bool:
        """Take the mean score of an evaluation beside the run; return whether it ends the run."""
        with self._lock:
            self._status.evaluated = mean
            goal = self._stop.until_evaluated
            return isinstance(goal, float | int) and mean >= goal

    def steps_at(self, version: int) -> int | None:
        """Return the environment steps behind a marked version; None if nobody reported it."""
        with self._lock:
            return self._steps_at.get(version)

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
        mixed: bool = False,
    ) -> None:
        """Write a checkpoint of slices of one version with their optimizer states.

        Args:
            slices: of all servers.
            optimizers: their states, in the same order.
            aux: the algorithm's own state.
            steps: environment steps behind them.
            mixed: allow slices of several versions (asynchronous runs); their numbers are kept.

        Raises:
            ValueError: if a slice is missing or of another version.
        """
        if self._writer is None:
            return
        versions = [params.version for params in slices]
        if len(set(versions)) != 1 and not mixed:
            raise ValueError(f"a checkpoint needs slices of one version, got {sorted(versions)}")
        size = sum(params.values.numel() for params in slices)
        if size != self._layout.size:
            raise ValueError(f"a checkpoint needs all {self._layout.size} parameters, got {size}")
        self._last_checkpoint = time.monotonic()
        with self._lock:
            counters = {
                "seconds": round(self.seconds(), 3),
                "games": self._status.games,
                "score": self._status.score,
                "best": self._status.best,
                "best_game": self._status.best_game,
                "recent_scores": list(self._recent),
                "parameters": self._layout.count,
            }
        if mixed:
            counters["server_versions"] = [version.number for version in versions]
        tensors = {f"aux/{name}": tensor for name, tensor in aux.items()} | self._fixed
        tensors |= self._name("parameter", torch.cat([params.values for params in slices]))
        for name, first in optimizers[0].items():
            if first.dim() == 0:
                tensors[f"optimizer/{name}"] = first
            else:
                whole = torch.cat([state[name] for state in optimizers])
                tensors |= self._name(f"optimizer/{name}", whole)
        checkpoint = Checkpoint(max(versions), steps, tensors, counters)
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

    def _worker_values(self) -> dict[str, float]:
        """Return what a metrics line says about workers; nothing timed in deterministic runs."""
        workers = self._status.workers
        if workers is None:
            outliers = sum(update.outliers for update in self._newest.values())
            return {"gradients_outliers": outliers} if outliers else {}
        traffic = workers.traffic
        values: dict[str, float] = {
            "gradients_counted": traffic.counted,
            "gradients_dropped": traffic.dropped,
            "gradients_partial": traffic.partial,
            "gradients_outliers": workers.outliers,
        }
        if self._every:
            return values
        return values | {
            "updates": workers.updates,
            "moved_bytes": traffic.moved,
            "active_workers": workers.active,
            "queue_depth": workers.queue,
            "waited_seconds": workers.waited,
        }

    def _is_over(self) -> bool:
        rule, status = self._stop, self._status
        if rule.steps is not None and status.steps >= rule.steps:
            return True
        if rule.minutes is not None and status.seconds >= 60 * rule.minutes:
            return True
        full = len(self._recent) == WINDOW and status.score is not None
        return full and rule.until_score is not None and (status.score or 0.0) >= rule.until_score

    def _write_line(self, last: bool) -> None:
        if self._writer is None:
            return
        status, now = self._status, time.monotonic()
        due = status.version % self._every == 0 if self._every else now - self._last_line >= 1
        if not (due or last):
            return
        self._last_line = now
        line = {
            "steps": status.steps,
            "seconds": round(status.seconds, 3),
            "version": status.version,
            "games": status.games,
            "score": status.score,
            "best": status.best,
            "lag_min": status.lag[0],
            "lag_mean": status.lag[1],
            "lag_max": status.lag[2],
            **status.values,
            **self._worker_values(),
        }
        writer = self._writer
        writer.put(lambda: writer.line(line))


def _mean_values(all_values: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each named value over those that have it."""
    if len(all_values) == 1:
        return all_values[0]
    names = dict.fromkeys(name for values in all_values for name in values)
    having = {name: [v[name] for v in all_values if name in v] for name in names}
    return {name: sum(values) / len(values) for name, values in having.items()}


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
