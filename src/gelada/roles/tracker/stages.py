"""Where the time of actors and learners goes, as shares between two lines of metrics."""

from __future__ import annotations

from collections.abc import Mapping

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
