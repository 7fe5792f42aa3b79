"""What a tracker is told (settings, facts of the run, reports of learners), and what it tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from colobus.core.fields import NUMBER, Range
from colobus.core.timing import now
from colobus.core.types import State, Traffic, Update
from colobus.roles.tracker.score import Resume

ACTIVE_SECONDS = 10.0
"""A learner that reported within this time is active."""


class WorkersStatus(NamedTuple):
    """How several learners around parameter servers are doing."""

    active: int  # learners that reported within `ACTIVE_SECONDS`
    all: int
    traffic: Traffic  # summed over them, since the start
    updates: int  # batches of all of them since the start
    queue: float  # trajectories that waited for a learner: mean over the newest update of each
    waited: float  # seconds a learner waited for others before an update: likewise
    outliers: int = 0  # gradients that learners dropped for their loss, since the start

    def values(self, timed: bool) -> dict[str, float]:
        """Return what a line of metrics says about them; ``timed``: with what depends on time."""
        values: dict[str, float] = {
            "gradients_counted": self.traffic.counted,
            "gradients_dropped": self.traffic.dropped,
            "gradients_partial": self.traffic.partial,
            "gradients_outliers": self.outliers,
        }
        if not timed:
            return values
        return values | {
            "updates": self.updates,
            "moved_bytes": self.traffic.moved,
            "active_workers": self.active,
            "queue_depth": self.queue,
            "waited_seconds": self.waited,
        }


class LearnerReports:
    """The newest update of each learner.

    Args:
        learners: that report.
        before: `totals` of the run that this one goes on with exactly.
    """

    def __init__(self, learners: int, before: dict[str, int] | None = None) -> None:
        self._learners, self._before = learners, before or {}
        self._newest: dict[int, Update] = {}  # by learner
        self._heard: dict[int, float] = {}  # when, by learner
        self._updates = 0

    def add(self, update: Update) -> None:
        """Take an update in.

        One that counts less than the one before is of a learner that has taken the place of a lost
        one, and what the lost one counted stays.
        """
        before = self._newest.get(update.learner)
        earlier = before.traffic if before else None
        if before and earlier and update.traffic and update.traffic.moved < earlier.moved:
            lost = earlier._asdict() | {"outliers": before.outliers}
            self._before = {name: self._before.get(name, 0) + n for name, n in lost.items()}
        self._newest[update.learner] = update
        self._heard[update.learner] = now()
        self._updates += 1

    def values(self) -> dict[str, float]:
        """Return the mean of each named value over the learners that have it."""
        every = [update.values for update in self._in_order()]
        names = dict.fromkeys(name for values in every for name in values)
        having = {name: [values[name] for values in every if name in values] for name in names}
        return {name: sum(values) / len(values) for name, values in having.items()}

    def lag(self) -> tuple[float, float, float]:
        """Return the smallest, mean and largest lag of all learners, in versions."""
        least, mean, most = zip(*(update.lag for update in self._in_order()), strict=True)
        return (min(least), sum(mean) / len(mean), max(most))

    def outliers(self) -> int:
        """Return how many gradients learners dropped for their loss."""
        before = self._before.get("outliers", 0)
        return before + sum(update.outliers for update in self._newest.values())

    def totals(self) -> dict[str, int]:
        """Return what a run that goes on exactly from the newest version has to add.

        There the gradients of that version count too, which learners push after they report.
        """
        totals = {"outliers": self.outliers()}
        if workers := self.workers():
            totals |= workers.traffic._replace(moved=0)._asdict()
            totals["counted"] += self._learners
        return totals

    def workers(self) -> WorkersStatus | None:
        """Return how several learners are doing; None if the servers step a learner's memory."""
        newest = self._in_order()
        traffics = [update.traffic for update in newest if update.traffic is not None]
        if not traffics:
            return None
        before = Traffic(*(self._before.get(name, 0) for name in Traffic._fields))
        moment = now()
        return WorkersStatus(
            active=sum(moment - heard < ACTIVE_SECONDS for heard in self._heard.values()),
            all=self._learners,
            traffic=Traffic(*map(sum, zip(before, *traffics, strict=True))),
            updates=self._updates,
            queue=sum(update.queue for update in newest) / len(newest),
            waited=sum(update.waited for update in newest) / len(newest),
            outliers=self.outliers(),
        )

    def _in_order(self) -> list[Update]:
        return [self._newest[i] for i in sorted(self._newest)]


class TrackerFiles(NamedTuple):
    """Where a tracker writes."""

    metrics: Path
    episodes: Path
    checkpoints: Path  # folder
    tensorboard: Path  # folder
    reconstruction: Path  # picture


@dataclass(frozen=True)
class RunFacts:
    """What the tracker has to know about a run."""

    began: float | None = None
    """`time.monotonic` at the run's beginning (None: now)."""
    counters: dict[str, Any] = field(default_factory=dict)
    """Counters of the checkpoint that a resumed run starts from."""
    version: int = 0
    """Number of the version that this process begins with."""
    steps: int = 0
    """Environment steps behind that version."""
    learners: int = 1
    """Learners that report."""
    every: int | None = None
    """Write a line of metrics every so many versions (deterministic runs); None: once a second."""
    marked: int = 0
    """Remember the steps behind versions divisible by this, for checkpoints of them (0: none)."""
    resume: Resume = field(default_factory=Resume)
    """What actors go on with, and how a deterministic run counts."""
    settings: dict[str, Any] = field(default_factory=dict)
    """All settings by name, for TensorBoard."""
    about: State | None = None
    """What checkpoints say about the run (`colobus.core.checkpoint.Checkpoint.run`)."""


class ResumePoint(NamedTuple):
    """What the tracker tells a role that begins in a process."""

    life: int  # how many times this role had begun before; 0 the first time
    steps: int  # environment steps of the run behind it
    saved: State | None = None  # an actor goes on from this, if it can
    seconds: float = 0.0  # of training so far


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
    unsaved: float = 0.0  # seconds since the newest checkpoint; 0 if nothing was learned since
    trouble: str = ""  # why nothing is written at the moment
    no_events: str = ""  # why there are no TensorBoard events any more
    values: dict[str, float] = field(default_factory=dict)
    lag: tuple[float, float, float] = (0.0, 0.0, 0.0)
    workers: WorkersStatus | None = None
    evaluated: float | None = None  # mean of the evaluator's last 50 full games
    cores: float | None = None  # that the run keeps busy; None if it is in several processes


@dataclass(frozen=True)
class StopRule:
    """When a run ends: at the first of these that holds."""

    steps: Annotated[int, Range(1, 10**15)] | None = None
    """Stop after this many environment steps."""
    minutes: Annotated[float, Range(above=0, high=10_000_000)] | None = None
    """Stop after this many minutes."""
    until_score: Annotated[float, NUMBER] | None = None
    """Stop when the mean raw return of the last 50 full games reaches this."""
    until_evaluated: Annotated[float, NUMBER] | Literal["auto"] | None = None
    """Stop when the evaluator's mean of 50 full games reaches this; auto is DBA3C's target for the
    game."""

    @property
    def ends(self) -> bool:
        """Whether steps or minutes end the run at the latest."""
        return bool(self.steps or self.minutes)

    def used(self, steps: int, seconds: float) -> float:
        """Return the share of the steps or minutes that is over; 0 if neither is limited."""
        of_steps = steps / self.steps if self.steps else 0.0
        return max(of_steps, seconds / (60 * self.minutes) if self.minutes else 0.0)

    def holds(self, steps: int, seconds: float, score: float | None) -> bool:
        """Return whether the run is over.

        Args:
            steps: environment steps so far.
            seconds: of training so far.
            score: mean return of the last 50 episodes; None as long as there are fewer.
        """
        if self.used(steps, seconds) >= 1.0:
            return True
        return self.until_score is not None and score is not None and score >= self.until_score

    def is_met_by(self, evaluated: float) -> bool:
        """Return whether this mean return of an evaluation ends the run."""
        goal = self.until_evaluated
        return isinstance(goal, float | int) and evaluated >= goal


@dataclass(frozen=True)
class TrackerSettings:
    """What is written, and how often."""

    checkpoint_seconds: Annotated[float, Range(above=0, high=10**12)] = 60.0
    """Write a checkpoint this often, sooner in the first minutes; the newest complete one is always
    loadable."""
    keep_checkpoints: Annotated[int, Range(0)] = 5
    """Keep so many of the newest checkpoints, beside the first, one near each quarter and the best
    (0: all of them)."""
    disk_patience: Annotated[float, Range(0, 86_400)] = 600.0
    """Seconds for which a run goes on when its folder cannot be written to; it tries again every
    second, and ends after that."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    probe_every: Annotated[int, Range(0)] = 0
    """Versions between two looks of the first learner into its network: active and dormant units,
    churn of the greedy action, norms of each parameter, written as metrics (0: none)."""
    pulse_seconds: Annotated[float, Range(0)] = 0.0
    """Write what each role does into pulse.jsonl this often (0: never)."""
    tags: str = ""
    """Words by which colobus runs finds the run, with commas between them."""
