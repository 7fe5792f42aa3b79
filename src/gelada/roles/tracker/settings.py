"""Settings of the tracker: when a run ends, and what is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from gelada.core.settings import NUMBER, Range


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

    def holds(self, steps: int, seconds: float, score: float | None) -> bool:
        """Return whether the run is over.

        Args:
            steps: environment steps so far.
            seconds: of training so far.
            score: mean return of the last 50 episodes; None as long as there are fewer.
        """
        if self.steps is not None and steps >= self.steps:
            return True
        if self.minutes is not None and seconds >= 60 * self.minutes:
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
    """Write a checkpoint this often; the newest complete one is always loadable."""
    keep_checkpoints: Annotated[int, Range(0)] = 5
    """Keep the newest checkpoints (0: all of them)."""
    disk_patience: Annotated[float, Range(0, 86_400)] = 600.0
    """Seconds for which a run goes on when its folder cannot be written to; it tries again every
    second, and ends after that."""
    tensorboard: bool = True
    """Write TensorBoard events."""
