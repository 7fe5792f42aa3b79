"""The score of a run: episodes, and the running mean of their returns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from gelada.core.origin import Origin
from gelada.core.types import Episode
from gelada.roles.tracker.going_on import Exactly

WINDOW = 50
"""Full episodes in the running mean score."""


class Score:
    """Counts episodes and averages the newest `WINDOW` raw returns.

    Args:
        counters: of the checkpoint that a resumed run starts from; {} for a new run.
        first_version: number of the version that this process began with.
        by_round: take an episode in only when the round it ended in was learned from, and order
            episodes by actor. The score at a version does not depend on who is faster then.
        exactly: how a deterministic run counts (None: a version of each round, from the first).
    """

    def __init__(
        self,
        counters: Mapping[str, Any],
        first_version: int,
        by_round: bool,
        exactly: Exactly | None = None,
    ) -> None:
        self.episodes = int(counters.get("games", 0))
        self.best: float | None = counters.get("best")
        self.best_episode: float | None = counters.get("best_game")
        self._recent: deque[float] = deque(counters.get("recent_scores", []), maxlen=WINDOW)
        self._pending: list[Episode] = []
        self._by_round, self._exactly = by_round, exactly or Exactly(Origin(0, first_version))

    @property
    def mean(self) -> float | None:
        """Mean return of the newest episodes, at most `WINDOW`; None before the first."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    @property
    def full_mean(self) -> float | None:
        """Mean return of the newest `WINDOW` episodes; None as long as there are fewer."""
        return self.mean if len(self._recent) == WINDOW else None

    def add(self, episode: Episode) -> None:
        """Keep an episode until `take`."""
        self._pending.append(episode)

    def take(self, version: int) -> list[Episode]:
        """Take in the episodes that belong to the versions up to this one; return them."""
        taken, self._pending = self._pending, []
        if self._by_round:
            exactly = self._exactly
            rounds = exactly.rhythm.rounds(version - exactly.origin.version)
            self._pending = [episode for episode in taken if episode.round >= rounds]
            taken = sorted(episode for episode in taken if episode.round < rounds)
        for episode in taken:
            self._recent.append(episode.score)
            self.episodes += 1
            self.best_episode = _larger(self.best_episode, episode.score)
            if len(self._recent) == WINDOW:
                self.best = _larger(self.best, sum(self._recent) / WINDOW)
        return taken

    def counters(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {
            "games": self.episodes,
            "score": self.mean,
            "best": self.best,
            "best_game": self.best_episode,
            "recent_scores": list(self._recent),
        }


def _larger(best: float | None, value: float) -> float:
    return value if best is None else max(best, value)
