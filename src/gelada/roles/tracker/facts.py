"""What a tracker is told about a run, and what it tells about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gelada.core.types import State
from gelada.roles.tracker.going_on import GoingOn
from gelada.roles.tracker.reports import Workers


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
    going_on: GoingOn = field(default_factory=GoingOn)
    """What actors go on with, and how a deterministic run counts."""
    settings: dict[str, Any] = field(default_factory=dict)
    """All settings by name, for TensorBoard."""
    about: State | None = None
    """What checkpoints say about the run (`gelada.core.checkpoint.Checkpoint.run`)."""


NEW_RUN = RunFacts()
"""Of a run that begins now, with one learner."""


class Begun(NamedTuple):
    """What the tracker tells a role that begins in a process."""

    life: int  # how many times this role had begun before; 0 the first time
    steps: int  # environment steps of the run behind it
    saved: State | None = None  # an actor goes on from this, if it can


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
    workers: Workers | None = None
    evaluated: float | None = None  # mean of the evaluator's last 50 full games
    curve: list[tuple[int, float, float]] = field(default_factory=list)  # steps, seconds, score
