"""Thousands of actors around one centre, simulated: ``python -m benchmarks.lib.swarm actors=4096``.

An actor pulls the parameters, plays a rollout and sends it, again and again, over a line of its own
speed; now and then it leaves, and comes back later. The centre has a link in each direction and
room for some rollouts; a learner makes a version of each batch. Nothing is learned here, and no
clock is read: the simulation says which versions the rollouts of a batch are of, and which rollouts
are lost (docs/internet.md). ``--out FILE`` writes the lags for ``--faults delay=FILE``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections import Counter, deque
from dataclasses import asdict, dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LEARNED, LEFT, FULL, OLD = "learned", "left", "full", "old"
"""What becomes of a rollout: learned from; lost as its actor left, as there was no room in the
queue and it was the oldest, or as it was older than ``oldest`` when its turn came."""


@dataclass(frozen=True)
class Swarm:
    """Actors, their lines and the centre: bytes, seconds, bytes a second.

    Those of actors are medians over actors, whose logarithms have a standard deviation of
    ``spread`` (0: all are alike).
    """

    actors: int = 1024
    spread: float = 0.5
    parameters: float = 1.33e6  # float32, of the network of dba3c-breakout-paper
    rollout: float = 3.3e5  # 160 steps of 42x42 pixels
    play: float = 0.5
    down: float = 6e6
    up: float = 1.5e6
    latency: float = 0.04  # one way
    out: float = 1.25e9  # of the centre, to all actors together
    into: float = 1.25e9
    relays: int = 0  # that hand the newest parameters on, each with a link like the centre's
    every: int = 1  # rollouts that are played with the parameters of one pull
    batch: int = 32  # rollouts of a version
    learn: float = 0.02  # seconds of a version
    room: int = 128  # rollouts that may wait
    oldest: int = 10**9  # versions; older rollouts are dropped
    stay: float = 0.0  # mean seconds until an actor leaves (0: never)
    away: float = 60.0  # mean seconds until it is back
    begin: float = 2.0  # seconds from joining to the first pull


class Rollout(NamedTuple):
    """A rollout that has met its end."""

    actor: int
    lag: int  # versions made since its parameters were, when it was learned from or lost
    fate: str


class Line:
    """One direction of the centre's link; what it carries goes one after the other."""

    def __init__(self, rate: float) -> None:
        self.rate, self.free, self.busy = rate, 0.0, 0.0

    def carry(self, now: float, size: float) -> tuple[float, float]:
        """Return when a message begins to move that is ready now, and when its last byte is out."""
        begin = max(now, self.free)
        self.free = begin + size / self.rate
        self.busy += size / self.rate
        return begin, self.free


class Simulation:
    """Runs a swarm; the same seed gives the same rollouts.

    Args:
        swarm: what is simulated.
        seed: of the speeds of actors and of when they leave.
    """

    def __init__(self, swarm: Swarm, seed: int = 1) -> None:
        self.swarm, self.ended = swarm, list[Rollout]()
        self.version, self.now = 0, 0.0
        self.first: dict[int, float] = {}  # seconds from joining to an actor's first sent rollout
        self._random = np.random.default_rng(seed)
        speeds = np.exp(self._random.normal(0.0, swarm.spread, (3, swarm.actors)))
        self._play, self._down, self._up = (
            usual * own
            for usual, own in zip((swarm.play, swarm.down, swarm.up), speeds, strict=True)
        )
        self.out, self.into = Line(swarm.out), Line(swarm.into)
        self._relays = [Line(swarm.out) for _ in range(swarm.relays)]
        self._copies, self._fetching = [0] * swarm.relays, [False] * swarm.relays
        self._life = [0] * swarm.actors  # a number for each stay; what an earlier one began is lost
        self._joined, self._held = [0.0] * swarm.actors, [0] * swarm.actors
        self._waiting: deque[tuple[int, int]] = deque()  # (actor, version)
        self._learning = False
        self._events: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self._order = count()
        for actor in range(swarm.actors):
            self._at(0.0, self._join, actor)

    def run(self, seconds: float) -> Simulation:
        """Go on until so many seconds have passed since the beginning; return itself."""
        while self._events and self._events[0][0] <= seconds:
            self.now, _, call, args = heapq.heappop(self._events)
            call(*args)
        self.now = seconds
        return self

    def _at(self, when: float, call: Any, *args: Any) -> None:
        heapq.heappush(self._events, (when, next(self._order), call, args))

    def _join(self, actor: int) -> None:
        self._life[actor] += 1
        life, self._joined[actor] = self._life[actor], self.now
        if self.swarm.stay:
            self._at(self.now + self._random.exponential(self.swarm.stay), self._leave, actor)
        self._at(self.now + self.swarm.begin + self.swarm.latency, self._pull, actor, life)

    def _leave(self, actor: int) -> None:
        self._life[actor] += 1
        self._at(self.now + self._random.exponential(self.swarm.away), self._join, actor)

    def _pull(self, actor: int, life: int) -> None:
        """Answer an actor's pull at the centre, or at its relay."""
        if life != self._life[actor]:
            return
        swarm, line, self._held[actor] = self.swarm, self.out, self.version
        if self._relays:
            relay = actor % swarm.relays
            line, self._held[actor] = self._relays[relay], self._copies[relay]
            if self._copies[relay] < self.version and not self._fetching[relay]:
                self._fetching[relay] = True
                _, sent = self.out.carry(self.now, swarm.parameters)
                self._at(sent + swarm.latency, self._fetched, relay, self.version)
        begin, sent = line.carry(self.now, swarm.parameters)
        there = max(sent, begin + swarm.parameters / self._down[actor]) + swarm.latency
        self._at(there, self._begin, actor, life, swarm.every)

    def _fetched(self, relay: int, version: int) -> None:
        self._copies[relay], self._fetching[relay] = version, False

    def _begin(self, actor: int, life: int, left: int) -> None:
        """Play a rollout and send it; then play on with the same parameters, or pull others."""
        if life != self._life[actor]:
            self._lose(actor, self._held[actor], LEFT)
            return
        swarm = self.swarm
        sent = self.now + self._play[actor] + swarm.rollout / self._up[actor]
        self._at(sent + swarm.latency, self._arrive, actor, life, self._held[actor], left)
        if left > 1:
            self._at(sent, self._begin, actor, life, left - 1)

    def _arrive(self, actor: int, life: int, version: int, left: int) -> None:
        """Take a rollout in; the pull after the last one of a version comes behind it."""
        if life != self._life[actor]:
            self._lose(actor, version, LEFT)
            return
        self.first.setdefault(life * self.swarm.actors + actor, self.now - self._joined[actor])
        _, there = self.into.carry(self.now, self.swarm.rollout)
        if left == 1:
            self._at(there, self._pull, actor, life)
        self._at(there, self._add, actor, version)

    def _add(self, actor: int, version: int) -> None:
        self._waiting.append((actor, version))
        if len(self._waiting) > self.swarm.room:
            self._lose(*self._waiting.popleft(), FULL)
        self._learn()

    def _learn(self) -> None:
        """Begin a version, if there is a batch for it."""
        swarm = self.swarm
        if self._learning or len(self._waiting) < swarm.batch:
            return
        for one in [one for one in self._waiting if self.version - one[1] > swarm.oldest]:
            self._waiting.remove(one)
            self._lose(*one, OLD)
        if len(self._waiting) < swarm.batch:
            return
        for _ in range(swarm.batch):
            self._lose(*self._waiting.popleft(), LEARNED)
        self._learning = True
        self._at(self.now + swarm.learn, self._learned)

    def _learned(self) -> None:
        self.version, self._learning = self.version + 1, False
        self._learn()

    def _lose(self, actor: int, version: int, fate: str) -> None:
        self.ended.append(Rollout(actor, self.version - version, fate))


LAGS = (0.05, 0.5, 0.95, 1.0)
"""Quantiles of the lags that are reported."""


def summary(swarm: Swarm, seconds: float, warm: float, seed: int) -> dict[str, Any]:
    """Simulate, and return what happened after ``warm`` seconds.

    ``lags`` are the shares of learned rollouts by their lag. ``joint`` has, by quarters of the
    actors from the least to the most lag, their median lag and which share of their rollouts was
    lost.
    """
    simulation = Simulation(swarm, seed).run(warm)
    before = (simulation.version, len(simulation.ended), simulation.out.busy, simulation.into.busy)
    simulation.run(seconds)
    ended, took = simulation.ended[before[1] :], seconds - warm
    learned = np.array([one.lag for one in ended if one.fate == LEARNED])
    fates = Counter(one.fate for one in ended)
    return {
        "swarm": asdict(swarm),
        "seconds": took,
        "seed": seed,
        "versions_per_s": round((simulation.version - before[0]) / took, 3),
        "rollouts_per_s": round(len(learned) / took, 2),
        "lost": {k: round(fates[k] / max(len(ended), 1), 4) for k in (LEFT, FULL, OLD)},
        "lag": dict(zip(("5 %", "median", "95 %", "most"), quantiles(learned), strict=True)),
        "joint": joint(ended),
        "busy_out": round((simulation.out.busy - before[2]) / took, 4),
        "busy_into": round((simulation.into.busy - before[3]) / took, 4),
        "first_rollout_s": round(float(np.median([*simulation.first.values()] or [0.0])), 3),
        "lags": [
            [int(lag), round(int(n) / len(learned), 6)]
            for lag, n in zip(*np.unique(learned, return_counts=True), strict=True)
        ],
    }


def quantiles(lags: Any) -> list[int]:
    """Return those of `LAGS`; 0 if nothing was learned."""
    return [int(np.quantile(lags, share, method="lower")) if len(lags) else 0 for share in LAGS]


def joint(ended: list[Rollout]) -> list[dict[str, float]]:
    """Return median lag and share of lost rollouts of each quarter of the actors, by their lag."""
    by_actor: dict[int, list[Rollout]] = {}
    for one in ended:
        by_actor.setdefault(one.actor, []).append(one)
    actors = sorted(by_actor.values(), key=lambda own: np.median([one.lag for one in own]))
    rows = []
    for quarter in np.array_split(np.arange(len(actors)), 4):
        own = [one for index in quarter for one in actors[index]]
        lost = sum(one.fate != LEARNED for one in own) / max(len(own), 1)
        lag = float(np.median([one.lag for one in own])) if own else 0.0
        rows.append({"lag": lag, "lost": round(lost, 4)})
    return rows


def main(words: list[str]) -> int:
    """Simulate what the words say; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known: dict[str, Any] = {field.name: type(field.default) for field in fields(Swarm)}
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help=", ".join(known))
    parser.add_argument("--seconds", type=float, default=180.0, help="simulated (default: 180)")
    parser.add_argument("--warm", type=float, default=60.0, help="of them left out (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write all that was found into this file")
    flags = parser.parse_args(words)
    given = dict(word.partition("=")[::2] for word in flags.settings)
    if unknown := sorted(set(given) - set(known)):
        parser.error(f"{unknown[0]}: no such setting; known: {', '.join(known)}")
    try:
        values = {name: known[name](float(value)) for name, value in given.items()}
    except ValueError as error:
        parser.error(str(error))
    found = summary(replace(Swarm(), **values), flags.seconds, flags.warm, flags.seed)
    if flags.out:
        flags.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    found.pop("lags")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
