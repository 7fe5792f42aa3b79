"""Tracker: the score, the metrics and the checkpoints of a run, and when it stops. Passive.

It writes metrics, episodes, TensorBoard events and checkpoints; others write beside it only what is
theirs (a deterministic run's replay buffer, events, evaluations, films). A thread of its own writes
the files, so nobody who reports waits for a disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from colobus.core.timing import now
from colobus.core.types import AlgorithmState, Bytes, Episode, Params, State, Update
from colobus.ops.flat import Layout
from colobus.roles.tracker.checkpoints import Checkpoints
from colobus.roles.tracker.picture import Picture
from colobus.roles.tracker.reports import (
    LearnerReports,
    ResumePoint,
    RunFacts,
    Status,
    StopRule,
    TrackerFiles,
    TrackerSettings,
)
from colobus.roles.tracker.score import Keeper, Moment, Score
from colobus.roles.tracker.tensorboard import EVALUATED, TensorBoard, tagged
from colobus.roles.tracker.writer import Metrics, Work, Writer
from colobus.roles.update_schedule import is_kept

Stages = Mapping[str, Mapping[str, float]]
"""Seconds since a role began, by role and stage."""


class StageShares:
    """The share of their time that the roles of a kind spent in each stage of late."""

    def __init__(self) -> None:
        self._newest: Stages = {}
        self._before: Stages = {}
        self._shares: dict[str, dict[str, float]] = {}  # by kind of role and stage

    def take(self, stages: Stages) -> None:
        """Take the seconds of all active roles, such as ``actor-0``."""
        self._newest = stages

    def values(self) -> dict[str, float]:
        """Return such as ``time_actor_emulate``: shares since the last call, 1 for each kind.

        A stage counts when a role leaves it. A role that began again counts from its beginning. A
        kind of role that has left no stage since then has its shares of before.
        """
        spent: dict[str, dict[str, float]] = {}
        for role, stages in self._newest.items():
            kind = spent.setdefault(role.partition("-")[0], {})
            before = self._before.get(role, {})
            for stage, seconds in stages.items():
                since = seconds - before.get(stage, 0.0)
                kind[stage] = kind.get(stage, 0.0) + (since if since >= 0 else seconds)
        self._before = self._newest
        for kind_of, stages in spent.items():
            if total := sum(stages.values()):
                self._shares[kind_of] = {stage: s / total for stage, s in stages.items()}
        return {
            f"time_{kind_of}_{stage.replace(' ', '_')}": round(share, 4)
            for kind_of, shares in self._shares.items()
            for stage, share in shares.items()
        }


KEPT_EPISODES = 65_536
"""Newest episodes that `Tracker.episodes_since` can return."""

GAMES_WITH_LINES = 2**18
"""The first games of a run, of which each has a line: 24 MB."""


def games_of_a_line(number: int) -> int:
    """Return for how many games the line of the ``number``-th game of a run stands.

    Games of some steps end a thousand times a second, and a line for each would fill a disk in
    weeks. After `GAMES_WITH_LINES` only every second game has a line, after twice as many every
    fourth, and so on.
    """
    return 1 << ((number - 1) // GAMES_WITH_LINES).bit_length()


@dataclass(eq=False)
class Tracker:
    """Takes episodes from actors and updates from learners; passive."""

    files: TrackerFiles | None  # where it writes; None writes nothing (tests)
    settings: TrackerSettings  # what is written
    stop: StopRule  # when the run ends
    layout: Layout  # names the parameters in checkpoints
    fixed: dict[str, torch.Tensor]  # in every checkpoint as they are (the input statistics)
    run: RunFacts  # where the run begins, and who reports

    def __post_init__(self) -> None:
        files, settings, run = self.files, self.settings, self.run
        self._began = now() if run.began is None else run.began
        self._earlier = float(run.counters.get("seconds", 0.0))
        self._lock = threading.Lock()
        self._episodes: deque[Episode] = deque(maxlen=KEPT_EPISODES)
        self._heard = 0  # episodes in all
        self._keeper, exactly = Keeper(run.resume, run.marked), run.resume.exactly
        self._score = Score(run.counters, exactly)
        goes_on = exactly is not None and bool(run.resume.saved)
        self._reports = LearnerReports(
            run.learners, run.counters.get("reports") if goes_on else None
        )
        self._stages = StageShares()
        self._round: dict[int, dict[int, Update]] = {}  # deterministic: by version and learner
        self._lives: dict[str, int] = {}  # how often each role has begun, by name
        self._last_line = 0.0
        self._over = False  # the stop rule holds
        self._learned: float | None = None  # when the first batch was reported
        self._evaluated: list[float] | None = run.counters.get("evaluated")
        self._status = Status(steps=run.steps, seconds=self.seconds())
        self._show_score()
        self._writer: Writer | None = None
        self._tensorboard: TensorBoard | None = None
        self._lately: list[Episode] = []  # ended since the line of metrics before
        self._line = (run.steps, self._status.seconds)  # steps and seconds of that line
        self._rate = 0.0  # steps a second until then
        if files:
            if settings.tensorboard:
                self._tensorboard = TensorBoard(files.tensorboard, run.settings)
            self._metrics = Metrics(files.metrics)
            self._games = Metrics(files.episodes)
            facts = (self.layout, self.fixed, self._kept, run.about, run.version == 0)
            self._checkpoints = Checkpoints(files.checkpoints, settings, *facts)
            work: list[Work] = [self._metrics, self._games, self._checkpoints]
            self._writer = Writer(work, settings.disk_patience)
            self._picture = Picture(files.reconstruction, self._writer)

    def seconds(self) -> float:
        """Return the seconds of training so far, with those before a resumed run was stopped."""
        return self._earlier + now() - self._began

    def begin(self, name: str) -> ResumePoint:
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
            steps = self._status.steps if life else self.run.steps
            return ResumePoint(life, steps, self._keeper.newest(name), self.seconds())

    def keep(self, name: str, state: State) -> None:
        """Keep the state of an actor between two rollouts, for checkpoints and for its successor.

        An actor calls this before the trajectory that ends there can be sampled.

        Args:
            name: of the actor.
            state: ``round``, the number of its next rollout, and what it wants to be given again.
        """
        with self._lock:
            self._keeper.keep(name, state)

    def episodes(self, ended: Sequence[Episode]) -> None:
        """Take the full games that ended in a rollout."""
        with self._lock:
            self._score.add(ended)

    def episodes_since(self, number: int) -> tuple[list[Episode], int]:
        """Return the episodes after the first ``number`` of them, and how many there are now.

        They are those that the score counts. Only the newest `KEPT_EPISODES` are there.
        """
        with self._lock:
            number = number if number <= self._heard else 0  # of a tracker that was lost
            new = min(self._heard - number, len(self._episodes))
            return list(islice(self._episodes, len(self._episodes) - new, None)), self._heard

    def report(self, update: Update) -> tuple[bool, int]:
        """Take a learner's batch; return whether the run should end now, and its steps until now.

        Learners report before they push. In a deterministic run, where a version is made of one
        batch of each learner, all of them have reported before the next version can be pulled.
        Their updates are then taken in together, in the order of the learners.
        """
        if self._learned is None:
            self._learned = now()
        with self._lock:
            number, told = update.version.number, {update.learner: update}
            if self.run.every:
                told = self._round.setdefault(number, {})
                told[update.learner] = update
            # what others learned until they heard of the end does not count
            if not self._over and (not self.run.every or len(told) == self.run.learners):
                self._round.pop(number, None)
                self._over = self._take(number, [told[i] for i in sorted(told)])
            return self._over, self._status.steps

    def evaluated(self, mean: float, steps: int, version: int, whole: bool = True) -> None:
        """Take the mean score of an evaluation beside the run.

        Args:
            mean: raw return of its games.
            steps: environment steps behind the checkpoint that played.
            version: of that checkpoint, which is not deleted if it is the best until now.
            whole: whether all games were played; a mean of fewer is below those of all.
        """
        with self._lock:
            self._status.evaluated = mean
            best = self._evaluated  # before 2026-11-29 two numbers, of all games
            if best is None or (whole, mean) > (all(best[2:]), best[1]):
                self._evaluated = [version, mean, float(whole)]
            if self._tensorboard:
                self._tensorboard.put({"steps": steps, EVALUATED: mean})

    def spent(self, stages: Stages, cores: float | None = None) -> None:
        """Take the seconds that each active role has spent in each stage since it began.

        Args:
            stages: by role.
            cores: that the run keeps busy, if that is known.
        """
        with self._lock:
            self._stages.take(stages)
            self._status.cores = cores

    def steps_at(self, version: int) -> int | None:
        """Return the environment steps behind a marked version; None if not known (any more)."""
        with self._lock:
            moment = self._keeper.at(version)
            return moment.steps if moment else None

    def wants_checkpoint(self) -> bool:
        """Return whether a checkpoint is due."""
        return self._writer is not None and self._checkpoints.is_due()

    def checkpoint(
        self,
        slices: Sequence[Params],
        optimizers: Sequence[dict[str, torch.Tensor]],
        algorithm_state: AlgorithmState,
        steps: int,
        mixed: bool = False,
    ) -> None:
        """Write a checkpoint of slices of one version with their optimizer states.

        Args:
            slices: of all servers.
            optimizers: their states, in the same order.
            algorithm_state: the algorithm's own state.
            steps: environment steps behind them.
            mixed: allow slices of several versions (asynchronous runs); their numbers are kept.

        Raises:
            ValueError: if a slice is missing or of another version.
        """
        if self._writer is None:
            return
        with self._lock:
            counters = {"seconds": round(self.seconds(), 3), **self._score.counters()}
            newest = max(params.version for params in slices)
            tensors, more = self._keeper.saved(newest.number)
            self._score.mark(newest)
            counters |= more | {"peak": self._score.peak, "evaluated": self._evaluated}
            counters["marks"] = list(self._score.marks)  # that go on waiting after a resume
        self._checkpoints.put(slices, optimizers, algorithm_state, steps, counters, mixed, tensors)
        self._writer.wake()

    def _kept(self) -> set[int]:
        """Return versions that stay; asked when others go, as an evaluation may just have ended."""
        with self._lock:
            return self._score.marked() | {int(number) for number in (self._evaluated or [])[:1]}

    def beside(self, error: OSError | None) -> None:
        """Take how it went to write what belongs to a checkpoint, such as a replay buffer.

        After an error the run goes on for the patience, as after one of the tracker's own, and a
        checkpoint is wanted again soon.

        Args:
            error: why it could not be written, or None.
        """
        if self._writer is None or (error is None and self._writer.others is None):
            return
        self._writer.others = error
        if error is not None:
            self._checkpoints.put_off()
        self._writer.wake()

    def picture(self, frames: Bytes, reconstructions: Bytes, steps: int) -> None:
        """Draw what an autoencoder makes of frames, beside them; see `Picture`."""
        if self._writer is not None:
            self._picture.show(frames, reconstructions, steps)

    def status(self) -> Status:
        """Return a copy of what a display shows."""
        with self._lock:
            copy = Status(**vars(self._status))
            if self._writer is None:
                return copy
            written = self._checkpoints
            copy.last_checkpoint, copy.trouble = written.newest, self._writer.trouble()
            if self._learned is not None and copy.version > written.number:
                copy.unsaved = now() - max(written.written, self._learned)
            copy.no_events = self._tensorboard.trouble if self._tensorboard else ""
            return copy

    def finish(self) -> None:
        """Wait until everything is written. (Not `close`: nobody ever waits for a tracker.)

        Raises:
            OSError: if that is not possible within the patience, such as on a full disk.
        """
        if self._writer is None:
            return
        self._picture.finish()
        with self._lock:
            if not self._over and self._line[0] < self._status.steps:  # stopped between two lines
                self._write_line(last=True)
        if self._tensorboard:
            self._tensorboard.close()
        self._writer.close()
        self._metrics.close()
        self._games.close()

    def failure(self) -> OSError | None:
        """Return why nothing can be written any more, if so."""
        return self._writer.failure if self._writer else None

    def _take(self, number: int, updates: list[Update]) -> bool:
        """Take in what was learned for version ``number``; return whether the run is over."""
        status = self._status
        ended = self._score.take(number)
        self._show_score()
        for update in updates:
            self._reports.add(update)
            status.steps += update.steps
        status.version = max(number, status.version)
        status.seconds = self.seconds()
        self._episodes += ended
        self._heard += len(ended)
        self._log(ended)
        status.values, status.lag = self._reports.values(), self._reports.lag()
        status.workers = self._reports.workers()
        if self.run.every or is_kept(number, self.run.marked):
            counters = {**self._score.counters(), "reports": self._reports.totals()}
            self._keeper.add(number, Moment(status.steps, counters))
        over = self.stop.holds(status.steps, status.seconds, self._score.full_mean)
        self._write_line(last=over)
        return over

    def _show_score(self) -> None:
        status, score = self._status, self._score
        status.games, status.score = score.episodes, score.mean
        status.best, status.best_game = score.best, score.best_episode

    def _write_line(self, last: bool) -> None:
        """Write a line of metrics if one is due; the last one of a run always is."""
        if self._writer is None:
            return
        status, every, moment = self._status, self.run.every, now()
        due = status.version % every == 0 if every else moment - self._last_line >= 1
        if not (due or last):
            return
        self._last_line = moment
        steps, seconds = self._line
        self._line = (status.steps, status.seconds)
        since = status.seconds - seconds
        if not last or since >= 0.5 or not self._rate:  # a last line may come milliseconds later
            self._rate = (status.steps - steps) / max(since, 1e-9)
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
        }
        if not every:  # these depend on time
            line |= {"throughput": round(self._rate, 1), **self._stages.values()}
            if status.cores is not None:
                line["cores_busy"] = round(status.cores, 2)
        if status.workers is not None:
            line |= status.workers.values(timed=not every)
        elif outliers := self._reports.outliers():
            line["gradients_outliers"] = outliers
        self._metrics.put(line)
        self._writer.wake()
        if self._tensorboard:
            self._tensorboard.put(line | tagged(line, status.values, self._rate, self._lately))
        self._lately.clear()

    def _log(self, episodes: list[Episode]) -> None:
        """Write a line about each episode that has ended, or about some; see `games_of_a_line`."""
        if self._writer is None:
            return
        self._lately += episodes
        at = {"steps": self._status.steps, "seconds": round(self._status.seconds, 3)}
        for number, each in enumerate(episodes, self._score.episodes - len(episodes) + 1):
            line = at | {"score": each.score, "length": each.steps, "actor": each.actor}
            games = games_of_a_line(number)
            if number % games == 0:
                self._games.put(line | ({"games": games} if games > 1 else {}))
