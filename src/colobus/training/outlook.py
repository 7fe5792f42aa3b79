"""How a run goes of late, in a line: its speed, what bounds it, and when it will end."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from colobus.core.timing import bounding_stage
from colobus.roles.tracker import Status, StopRule
from colobus.runtime.api import RoleState
from colobus.training.words import (
    Ending,
    about_workers,
    doing,
    endings,
    number,
    progress,
    time_left,
    unit,
)

FIRST_SECONDS = 1.5
"""Until the first line where output is no terminal …"""

LINE_SECONDS = 10.0
"""… and between further ones."""

RECENT = 10.0
"""Seconds that rates are taken over."""

FINENESS = 500
"""Points of the curve are at least about 1 / `FINENESS` of the time so far apart."""


class Load(NamedTuple):
    """Seconds by stage of every active role at a moment."""

    seconds: float
    steps: int
    stages: dict[str, dict[str, float]]


@dataclass(eq=False)
class Outlook:
    """Looks at a run about twice a second and says how it goes."""

    stop: StopRule  # of the run
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    """(steps, seconds, score), oldest first; at the start that before the run was resumed."""

    def __post_init__(self) -> None:
        self._evaluations: list[tuple[float, float]] = []  # seconds, mean
        self._loads: deque[Load] = deque()
        self._due = time.monotonic() + FIRST_SECONDS

    def see(self, status: Status, roles: Sequence[RoleState]) -> None:
        """Take the status of the run and what its active roles do."""
        if self._loads and (not self._loads[-1].seconds or status.steps < self._loads[-1].steps):
            self._loads.clear()  # of a time when processes were started, or before a restore
        stages = {role.name: role.seconds for role in roles}
        self._loads.append(Load(status.seconds, status.steps, stages))
        while len(self._loads) > 2 and status.seconds - self._loads[1].seconds > RECENT:
            self._loads.popleft()
        told = self._evaluations[-1][1] if self._evaluations else None
        if status.evaluated is not None and status.evaluated != told:
            self._evaluations.append((status.seconds, status.evaluated))
        self._draw(status)

    def is_due(self) -> bool:
        """Return whether it is time for a line, and count it as written then."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + LINE_SECONDS
        return True

    def endings(self, status: Status) -> list[Ending]:
        """Return how near each rule of the run is; see `colobus.training.words.endings`."""
        scores = [(seconds, score) for _, seconds, score in self.curve]
        return endings(status, self.stop, self.rate(), self._evaluations, scores)

    def line(self, status: Status, roles: Sequence[RoleState] = ()) -> str:
        """Return the status in one line."""
        ends = self.endings(status)
        parts = [
            f"{status.steps:,} steps",
            f"{self.rate():,.0f} {unit(status)}/s",
            f"score {number(status.score)}",
            f"best {number(status.best)}",
            *([] if status.evaluated is None else [f"evaluated {number(status.evaluated)}"]),
            f"{status.games:,} games",
            *doing(status, roles, self.bound()),
            *(about_workers(status.workers) if status.workers else []),
            progress(ends),
            time_left(ends),
        ]
        return ", ".join(filter(None, parts))

    def rate(self) -> float:
        """Return steps per second of late."""
        first, last = self._loads[0], self._loads[-1]
        return (last.steps - first.steps) / max(last.seconds - first.seconds, 1e-9)

    def bound(self) -> str:
        """Return the stage that bounds the speed of late."""
        first, last = self._loads[0].stages, self._loads[-1].stages
        return bounding_stage(
            {
                role: {  # that of a replaced actor begins at 0
                    name: (s - before if s >= (before := first.get(role, {}).get(name, 0.0)) else s)
                    for name, s in stages.items()
                }
                for role, stages in last.items()
            }
        )

    def _draw(self, status: Status) -> None:
        """Put the score on the curve, in place of the newest point if that is near another."""
        curve, seconds = self.curve, status.seconds
        while curve and curve[-1][0] > status.steps:  # what a resume or a restore went back over
            curve.pop()
        if status.score is None or (curve and curve[-1][0] == status.steps):
            return
        if len(curve) > 1 and seconds - curve[-2][1] < seconds / FINENESS:
            curve.pop()
        curve.append((status.steps, seconds, status.score))


class ProgressLine:
    """Says how a run goes, for programs and notebooks; its `watch` is for `run.train`.

    On a terminal and in a notebook one line changes in place; elsewhere, and where the lines of a
    run are not printed, there is a line now and then.

    Args:
        stop: the run's stop rule.
        log: takes lines for the user.
    """

    def __init__(self, stop: StopRule, log: Callable[[str], None]) -> None:
        self._outlook, self._log = Outlook(stop), log
        notebook = "ipykernel" in sys.modules
        self._in_place = log is print and (notebook or sys.stdout.isatty())
        self._most = 10_000 if notebook else shutil.get_terminal_size().columns - 1
        self._shown = 0  # characters of the line in place

    def watch(self, status: Status, roles: Sequence[RoleState]) -> None:
        """Say how the run goes, if it is time."""
        self._outlook.see(status, roles)
        if self._in_place:
            self._show(self._outlook.line(status, roles)[: self._most])
        elif self._outlook.is_due():
            self._log(self._outlook.line(status, roles))

    def log(self, line: str) -> None:
        """Write a line that stays."""
        if self._shown:
            self._show("")
        self._log(line)

    def _show(self, text: str) -> None:
        """Put a text in place of the one before."""
        sys.stdout.write(f"\r{text:<{self._shown}}" + ("" if text else "\r"))
        sys.stdout.flush()
        self._shown = len(text)
