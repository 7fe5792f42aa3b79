"""What the learners of a run report, put together."""

from __future__ import annotations

import time
from typing import NamedTuple

from gelada.core.types import Traffic, Update

ACTIVE_SECONDS = 10.0
"""A learner that reported within this time is active."""


class Workers(NamedTuple):
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


class Reports:
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
        self._heard[update.learner] = time.monotonic()
        self._updates += 1

    def values(self) -> dict[str, float]:
        """Return the mean of each named value over the learners that have it."""
        every = [update.values for update in self._in_order()]
        if len(every) == 1:
            return every[0]
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

    def workers(self) -> Workers | None:
        """Return how several learners are doing; None if the servers step a learner's memory."""
        newest = self._in_order()
        traffics = [update.traffic for update in newest if update.traffic is not None]
        if not traffics:
            return None
        now = time.monotonic()
        return Workers(
            active=sum(now - heard < ACTIVE_SECONDS for heard in self._heard.values()),
            all=self._learners,
            traffic=self._traffic(traffics),
            updates=self._updates,
            queue=sum(update.queue for update in newest) / len(newest),
            waited=sum(update.waited for update in newest) / len(newest),
            outliers=self.outliers(),
        )

    def _traffic(self, traffics: list[Traffic]) -> Traffic:
        before = Traffic(*(self._before.get(name, 0) for name in Traffic._fields))
        return Traffic(*(sum(counts) for counts in zip(before, *traffics, strict=True)))

    def _in_order(self) -> list[Update]:
        return [self._newest[i] for i in sorted(self._newest)]
