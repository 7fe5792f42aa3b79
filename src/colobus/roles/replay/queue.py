"""TrajectoryQueue: keeps trajectories until a batch of them is complete, and hands each out once.

A selector decides which trajectories make the next batch. A `ReplayMix` may add windows that were
handed out before, as the replay of IMPALA (Espeholt et al. 2018, section 5.2.2) and RLlib's
aggregators do. Importance ratios, as of V-trace, allow for the older policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from colobus.core.errors import Closed
from colobus.core.seeding import sequence
from colobus.core.timing import Closable
from colobus.core.types import PER_GAME, Batch, Trajectory
from colobus.roles.replay.api import ReplayReader


@dataclass(eq=False)
class ReplayMix:
    """Keeps the newest windows, and draws old ones for each batch.

    A window is one game of a trajectory. Each fresh window brings ``floor(proportion)`` old ones,
    and one more with the probability of the fraction that is left. They are drawn uniformly, with
    replacement, from the windows of earlier batches. None is drawn before more than a batch is
    kept. An old window is not kept a second time.

    Where the agents of a game have policies of their own, what they played side by side stays
    together, and counts as one window here.
    """

    kept: int  # windows kept, more than ``batch``
    proportion: float  # old windows for each fresh one
    batch: int  # fresh windows of a batch
    seeds: Sequence[int]  # seed of the run, and numbers that tell this mix from others
    agents: int = 1  # whose windows stay together, which are neighbours in a trajectory

    def __post_init__(self) -> None:
        self._kept: deque[tuple[Trajectory, int]] = deque(maxlen=self.kept)  # with the first row
        self._batches = 0

    def take(self, fresh: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the old windows for a batch of fresh trajectories, and keep the fresh ones.

        Returns:
            Trajectories of one game each.
        """
        rows = [range(0, len(trajectory.actions), self.agents) for trajectory in fresh]
        old = self._draw(sum(map(len, rows))) if len(self._kept) > self.batch else []
        for trajectory, own in zip(map(with_own_memory, fresh), rows, strict=True):
            self._kept.extend((trajectory, row) for row in own)
        self._batches += 1
        return old

    def _draw(self, fresh: int) -> list[Trajectory]:
        """Return old windows for so many fresh ones; the seed and the batch's number decide."""
        seed, *numbers = self.seeds
        random = np.random.default_rng(sequence(seed, "mix", *numbers, self._batches))
        whole = int(self.proportion)
        count = fresh * whole + int((random.random(fresh) < self.proportion - whole).sum())
        drawn = (self._kept[i] for i in random.integers(len(self._kept), size=count))
        return [games_of(trajectory, slice(row, row + self.agents)) for trajectory, row in drawn]


def games_of(trajectory: Trajectory, part: slice) -> Trajectory:
    """Return some games of a trajectory, as views."""
    return trajectory._replace(**{name: getattr(trajectory, name)[part] for name in PER_GAME})


def with_own_memory(trajectory: Trajectory) -> Trajectory:
    """Return a trajectory whose arrays are not views; what is not is not copied.

    An array that came from another process may lie in memory of all processes, which is small.
    """
    return trajectory._replace(
        **{name: np.require(getattr(trajectory, name), requirements="O") for name in PER_GAME}
    )


class Fifo:
    """The ``count`` oldest windows, in order of arrival.

    A window is one game of a trajectory, so a batch may be smaller or larger than a trajectory.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def take(self, stored: deque[Trajectory]) -> list[Trajectory] | None:
        """Remove and return the oldest windows, or None while there are too few."""
        if sum(len(t.actions) for t in stored) < self.count:
            return None
        taken: list[Trajectory] = []
        missing = self.count
        while missing:
            first = stored.popleft()
            if len(first.actions) > missing:
                stored.appendleft(games_of(first, slice(missing, None)))
                first = games_of(first, slice(missing))
            taken.append(first)
            missing -= len(first.actions)
        return taken


class Rounds:
    """One trajectory of every actor, of the same round, in the order of the actors.

    Used in deterministic runs. The actors are ``first``, ``first + 1`` … ``first + actors - 1``,
    the first batch is that of ``round``.
    """

    def __init__(self, actors: int, first: int = 0, round: int = 0) -> None:
        self.actors = range(first, first + actors)
        self._round = round

    def take(self, stored: deque[Trajectory]) -> list[Trajectory] | None:
        """Remove and return the trajectories of a round, or None until all have arrived."""
        due = sorted((t for t in stored if t.round == self._round), key=lambda t: t.actor)
        if [t.actor for t in due] != list(self.actors):
            return None
        others = [t for t in stored if t.round != self._round]
        stored.clear()
        stored.extend(others)
        self._round += 1
        return due


Selector = Fifo | Rounds
"""Which of the stored trajectories make the next batch."""


@dataclass(eq=False)
class TrajectoryQueue(Closable, ReplayReader):
    """A queue of trajectories (a `colobus.roles.replay.api.Replay`)."""

    selector: Selector  # which trajectories make a batch
    capacity: int  # trajectories kept at most; beyond, the oldest is dropped
    patience: float = 600.0  # seconds; see `colobus.roles.replay.api`
    full: int | None = None
    """Trajectories at which `wait_for_room` makes actors wait (default: the capacity)."""
    in_flight: int = 0
    """Instead, trajectories of one actor at which it waits (0: ``full`` counts)."""
    replay_mix: ReplayMix | None = None  # adds old windows to each batch

    def __post_init__(self) -> None:
        super().__init__(self.patience)
        self._full = self.capacity if self.full is None else self.full
        self._stored: deque[Trajectory] = deque()
        self._added = 0

    @property
    def depth(self) -> int:
        """Trajectories kept now."""
        return len(self._stored)

    def wait_for_room(self, actor: int = 0) -> None:
        """Wait while many trajectories are kept (``in_flight``: of this actor): none gets old."""
        with self._changed:
            self.wait_until(
                lambda: self._has_room(actor), "room", lambda: ": the learner takes nothing"
            )

    def add(self, trajectory: Trajectory) -> None:
        """Keep a trajectory; drop the oldest if there are too many."""
        with self._changed:
            if self._closed:
                raise Closed
            self._stored.append(trajectory)
            self._added += 1
            if len(self._stored) > self.capacity:
                self._stored.popleft()
            self._changed.notify_all()

    def sample(self, patience: float | None = None) -> Batch:
        """Return the next batch; wait until its trajectories have arrived.

        Weights are 1, and keys count the windows: nobody sets priorities here. All windows are
        fresh but those of the mix, which come last.

        Args:
            patience: seconds to wait at most, instead of the queue's own.
        """
        with self._changed:
            chosen: list[Trajectory] | None = None

            def ready() -> bool:
                nonlocal chosen
                chosen = self.selector.take(self._stored)
                return chosen is not None

            self.wait_until(
                ready,
                "batch",
                lambda: ": the actors send nothing",
                patience,
                lambda: self._added,  # slowly, but it comes
            )
            assert chosen is not None
            old = self.replay_mix.take(chosen) if self.replay_mix else []
            self._changed.notify_all()  # there may be room now
        return self.assemble(chosen, old)

    def assemble(self, chosen: Sequence[Trajectory], old: Sequence[Trajectory]) -> Batch:
        """Join trajectories into a batch, without the lock; see `as_batch`."""
        return as_batch(chosen, old)

    def _has_room(self, actor: int) -> bool:
        """Say whether an actor may add another trajectory; the one that it then plays counts."""
        if self.in_flight:
            return sum(t.actor == actor for t in self._stored) < self.in_flight
        return len(self._stored) < self._full


def as_batch(trajectories: Sequence[Trajectory], old: Sequence[Trajectory] = ()) -> Batch:
    """Join trajectories into a batch: each game of a trajectory is one window.

    Args:
        trajectories: of the same number of steps.
        old: trajectories that were learned from before; they come last, and are not ``fresh``.
    """
    both = [*trajectories, *old]

    def join(field: str) -> torch.Tensor:
        parts = [getattr(t, field) for t in both]
        return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))

    sizes = [len(t.actions) for t in both]
    numbers = np.repeat([t.version.number for t in both], sizes)
    windows = sum(sizes)
    replayed = np.zeros(windows, dtype=np.bool_)
    replayed[windows - sum(len(t.actions) for t in old) :] = True
    return Batch(
        **{name: join(name) for name in PER_GAME},
        versions=torch.from_numpy(numbers),
        keys=torch.arange(windows),
        generations=torch.zeros(windows, dtype=torch.int64),
        weights=torch.ones(windows),
        replayed=torch.from_numpy(replayed),
        fresh=torch.tensor(sum(t.actions.size for t in trajectories)),
    )
