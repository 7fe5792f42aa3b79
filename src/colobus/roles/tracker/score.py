"""The score of a run, and what it needs to resume as if it had never stopped.

That is the states of the actors, and what was counted. Actors hand over their states between two
rollouts, and are up to a version ahead of the learner. So the states of some rounds are kept, and
what the tracker had counted at some versions. A checkpoint takes those that belong to its version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch

from colobus.core.arrays import split
from colobus.core.types import START, Episode, Origin, State, Version
from colobus.roles.update_schedule import ONE_EACH, UpdateSchedule, is_kept

NEWEST = 4
"""How many of the newest versions are kept, and of the newest rounds with which a version begins.
Actors are at most two versions ahead of the newest checkpoint that the learner may write."""

MARKED = 2
"""Newest versions that servers keep copies of, of which everything is kept too."""


@dataclass(frozen=True)
class Exactly:
    """How a deterministic run counts."""

    origin: Origin = START
    update_schedule: UpdateSchedule = ONE_EACH


@dataclass(frozen=True)
class Resume:
    """What a run begins with, and who hands over states."""

    actors: int = 0
    """Actors of the run."""
    saved: dict[str, State] = field(default_factory=dict)
    """States of actors in the checkpoint that a resumed run starts from, by name."""
    exactly: Exactly | None = None
    """In deterministic runs."""


class Moment(NamedTuple):
    """What was counted when a version had been learned."""

    steps: int
    counters: dict[str, Any]


class Keeper:
    """Keeps states of actors, and moments: of marked versions, of all in a deterministic run.

    Args:
        begin: what the run begins with.
        marked: servers keep copies at versions divisible by this (0: never).
    """

    def __init__(self, begin: Resume, marked: int) -> None:
        self._begin, self._marked = begin, marked
        self._states: dict[str, dict[int, State]] = {}  # by actor and round
        self._moments: dict[int, Moment] = {}  # by version

    def keep(self, name: str, state: State) -> None:
        """Keep the state of an actor; forget those that no checkpoint can need any more.

        A run that is not deterministic goes on from the newest. With a replay buffer a version may
        take many rounds; a checkpoint needs the state of its first one only.
        """
        states = self._states.setdefault(name, {})
        for round in [round for round in states if not self._begins_a_version(round)]:
            del states[round]  # it was the newest
        states[state["round"]] = state
        _forget(states, lambda round: self._is_marked(self._version(round)))

    def newest(self, name: str) -> State | None:
        """Return an actor's newest state; None if it never handed one over."""
        if states := self._states.get(name):
            return next(reversed(states.values()))
        return self._begin.saved.get(name)

    def add(self, version: int, moment: Moment) -> None:
        """Keep what was counted when a version had been learned."""
        self._moments[version] = moment
        _forget(self._moments, self._is_marked)

    def at(self, version: int) -> Moment | None:
        """Return what was counted at a version; None if it is not kept."""
        return self._moments.get(version)

    def saved(self, version: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the tensors and counters with which a run goes on from a version.

        Without the states of all actors a resumed run begins new games.
        """
        exactly, counters = self._begin.exactly, {}
        states = {name: self.newest(name) for name in {*self._begin.saved, *self._states}}
        if exactly:
            round = exactly.update_schedule.rounds(version - exactly.origin.version)
            states = {name: self._at(name, round) for name in states}
            if moment := self.at(version):
                counters = {**moment.counters, "origin": list(exactly.origin)}
        found = {name: state for name, state in sorted(states.items()) if state is not None}
        if len(found) < self._begin.actors:
            return {}, counters
        arrays, counters["play"] = split(found, "play")
        return {name: torch.from_numpy(array) for name, array in arrays.items()}, counters

    def _at(self, name: str, round: int) -> State | None:
        """Return the state with which an actor's round begins."""
        state = self._begin.saved.get(name)
        before = {} if state is None else {state["round"]: state}
        return (before | self._states.get(name, {})).get(round)

    def _begins_a_version(self, round: int) -> bool:
        """Return whether a round is the first that is played with some version."""
        if self._begin.exactly is None:
            return False
        update_schedule = self._begin.exactly.update_schedule
        return update_schedule.rounds(update_schedule.versions(round)) == round

    def _version(self, round: int) -> int:
        """Return the version that is made of the rounds before this one."""
        exactly = self._begin.exactly or Exactly()
        return exactly.origin.version + exactly.update_schedule.versions(round)

    def _is_marked(self, version: int) -> bool:
        return is_kept(version, self._marked)


def _forget(kept: dict[int, Any], is_marked: Any) -> None:
    """Delete all but the `NEWEST` numbers and the `MARKED` newest marked ones."""
    older = sorted(kept)[:-NEWEST]
    marked = [number for number in older if is_marked(number)]
    for number in set(older).difference(marked[-MARKED:]):
        del kept[number]


WINDOW = 50
"""Full episodes in the running mean score."""

APART = WINDOW // 10
"""Episodes between two checkpoints whose score is measured, so that few of them wait for it."""


class Score:
    """Counts episodes and averages the newest `WINDOW` raw returns.

    Episodes are played by many versions, and end late. So the score of a checkpoint is the mean of
    as many episodes that ended after it as before it, `WINDOW` in all.

    Args:
        counters: of the checkpoint that a resumed run starts from; {} for a new run.
        exactly: in a deterministic run take episodes in only when the round they ended in was
            learned from, and order them by round and actor. The score at a version does not depend
            on who is faster then.
    """

    def __init__(self, counters: Mapping[str, Any], exactly: Exactly | None = None) -> None:
        self.episodes = int(counters.get("games", 0))
        self.best: float | None = counters.get("best")
        self.best_episode: float | None = counters.get("best_game")
        self._recent: deque[float] = deque(counters.get("recent_scores", []), maxlen=WINDOW)
        self.peak: list[float] | None = counters.get("peak")
        # of checkpoints that wait: the episodes before each, and its version
        self.marks: deque[tuple[int, ...]] = deque(map(tuple, counters.get("marks", [])))
        self._pending: list[Episode] = []
        self._exactly = exactly

    @property
    def mean(self) -> float | None:
        """Mean return of the newest episodes, at most `WINDOW`; None before the first."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    @property
    def full_mean(self) -> float | None:
        """Mean return of the newest `WINDOW` episodes; None as long as there are fewer."""
        return self.mean if len(self._recent) == WINDOW else None

    def add(self, episodes: Sequence[Episode]) -> None:
        """Keep episodes until `take`."""
        self._pending += episodes

    def take(self, version: int) -> list[Episode]:
        """Take in the episodes that belong to the versions up to this one; return them."""
        taken, self._pending = self._pending, []
        if self._exactly:
            rounds = self._exactly.update_schedule.rounds(version - self._exactly.origin.version)
            self._pending = [episode for episode in taken if episode.round >= rounds]
            taken = sorted((e for e in taken if e.round < rounds), key=lambda e: (e.round, e.actor))
        for episode in taken:
            self._recent.append(episode.score)
            self.episodes += 1
            self.best_episode = _larger(self.best_episode, episode.score)
            if len(self._recent) == WINDOW:
                self.best = _larger(self.best, sum(self._recent) / WINDOW)
            while self.marks and self.marks[0][0] + WINDOW // 2 <= self.episodes:
                self._measure(*self.marks.popleft()[1:])
        return taken

    def mark(self, version: Version) -> None:
        """Measure the score of a checkpoint of a version as soon as enough episodes have ended."""
        if not self.marks or self.episodes - self.marks[-1][0] >= APART:
            self.marks.append((self.episodes, *version))

    def marked(self) -> set[int]:
        """Return the versions of the checkpoint with the best score, and of those that wait."""
        return {mark[2] for mark in self.marks} | ({int(self.peak[1])} if self.peak else set())

    def _measure(self, *version: int) -> None:
        """Keep the score of a version's checkpoint if it is the best: ties are of the earlier."""
        mean, best = fmean(self._recent), self.peak[2] if self.peak else -inf
        if len(self._recent) == WINDOW and best < mean < inf:  # not nan
            self.peak = [*version, mean, stdev(self._recent) / WINDOW**0.5]

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
