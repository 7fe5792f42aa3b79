"""TrajectoryQueue: keeps trajectories and hands out batches. A queue is a replay that forgets.

Small policies make the difference: which trajectories are selected, and how many are kept. The
first-in-first-out policies hand each trajectory out once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from gelada.core.errors import Closed, Deadline
from gelada.core.types import Batch, Trajectory


class Select(Protocol):
    """Which of the stored trajectories make the next batch."""

    def take(self, stored: deque[Trajectory]) -> list[Trajectory] | None:
        """Remove and return the next batch's trajectories, or None if they are not all there."""


class Fifo:
    """The ``count`` oldest, in order of arrival."""

    def __init__(self, count: int) -> None:
        self.count = count

    def take(self, stored: deque[Trajectory]) -> list[Trajectory] | None:
        """Remove and return the oldest, or None while there are too few."""
        if len(stored) < self.count:
            return None
        return [stored.popleft() for _ in range(self.count)]


class FifoWindows:
    """The ``count`` oldest windows, whatever trajectories they came in.

    So a batch may be smaller or larger than a trajectory; windows stay whole.
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
                stored.appendleft(_games(first, slice(missing, None)))
                first = _games(first, slice(missing))
            taken.append(first)
            missing -= len(first.actions)
        return taken


class Rounds:
    """One trajectory of every actor, of the same round, in the actors' order (deterministic).

    The actors are ``first``, ``first + 1`` … ``first + actors - 1``.
    """

    def __init__(self, actors: int, first: int = 0) -> None:
        self.actors = range(first, first + actors)
        self._round = 0

    def take(self, stored: deque[Trajectory]) -> list[Trajectory] | None:
        """Remove and return the round's trajectories, or None until all have come."""
        due = sorted((t for t in stored if t.round == self._round), key=lambda t: t.actor)
        if [t.actor for t in due] != list(self.actors):
            return None
        for trajectory in due:
            _remove(stored, trajectory)
        self._round += 1
        return due


class TrajectoryQueue:
    """A store of trajectories. Actors add, learners sample; passive.

    Args:
        select: which trajectories make a batch.
        capacity: trajectories kept at most; the oldest goes out and is mask in ``dropped``.
        patience: seconds that `sample` and `room` wait before they give up (0: never wait).
        full: trajectories at which `room` makes actors wait (default: the capacity).
    """

    def __init__(
        self, select: Select, capacity: int, patience: float = 600.0, full: int | None = None
    ) -> None:
        self._select = select
        self._capacity = capacity
        self._full = capacity if full is None else full
        self._patience = patience
        self._stored: deque[Trajectory] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._handed_out = 0
        self.dropped = 0

    @property
    def depth(self) -> int:
        """Trajectories that wait now."""
        return len(self._stored)

    def wait_for_room(self) -> None:
        """Wait until another trajectory is wanted, so that none gets old here.

        Raises:
            Deadline: if none was within the patience.
            Closed: if the run stops.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._closed or len(self._stored) < self._full, self._patience
            ):
                raise Deadline(f"no room for {self._patience:g} s: the learner takes nothing")
            if self._closed:
                raise Closed

    def add(self, trajectory: Trajectory) -> None:
        """Keep a trajectory. Never waits."""
        with self._changed:
            if self._closed:
                raise Closed
            self._stored.append(trajectory)
            if len(self._stored) > self._capacity:
                self._stored.popleft()
                self.dropped += 1
            self._changed.notify_all()

    def sample(self) -> Batch:
        """Return the next batch, waiting for it if need be.

        Raises:
            Deadline: if none came within the patience.
            Closed: if the run stops.
        """
        with self._changed:
            chosen: list[Trajectory] | None = None

            def ready() -> bool:
                nonlocal chosen
                if not self._closed:
                    chosen = self._select.take(self._stored)
                return self._closed or chosen is not None

            if not self._changed.wait_for(ready, self._patience):
                raise Deadline(f"no batch for {self._patience:g} s: the actors send nothing")
            if chosen is None:
                raise Closed
            first = self._handed_out
            self._handed_out += sum(len(t.actions) for t in chosen)
            self._changed.notify_all()  # there may be room now
        return self._assemble(chosen, first)

    def close(self) -> None:
        """Wake everybody who waits; from now on all calls raise `Closed`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _assemble(self, chosen: Sequence[Trajectory], first: int) -> Batch:
        return as_batch(chosen, first)


def as_batch(trajectories: Sequence[Trajectory], first_key: int = 0) -> Batch:
    """Join whole trajectories into a batch; each environment's stream is one window, all fresh."""

    def join(field: str) -> torch.Tensor:
        parts = [getattr(t, field) for t in trajectories]
        return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))

    sizes = [len(t.actions) for t in trajectories]
    numbers = np.repeat([t.version.number for t in trajectories], sizes)
    windows = sum(sizes)
    return Batch(
        frames=join("frames"),
        ages=join("ages"),
        actions=join("actions"),
        rewards=join("rewards"),
        terminated=join("terminated"),
        truncated=join("truncated"),
        mask=join("mask"),
        log_probs=join("log_probs"),
        state=join("state"),
        versions=torch.from_numpy(numbers),
        keys=torch.arange(first_key, first_key + windows),
        generations=torch.zeros(windows, dtype=torch.int64),
        weights=torch.ones(windows),
        fresh=torch.tensor(sum(t.actions.size for t in trajectories)),
    )


def _games(trajectory: Trajectory, part: slice) -> Trajectory:
    """Return some games of a trajectory (views, no copies)."""
    return trajectory._replace(
        frames=trajectory.frames[part],
        ages=trajectory.ages[part],
        actions=trajectory.actions[part],
        rewards=trajectory.rewards[part],
        terminated=trajectory.terminated[part],
        truncated=trajectory.truncated[part],
        mask=trajectory.mask[part],
        log_probs=trajectory.log_probs[part],
        state=trajectory.state[part],
    )


def _remove(stored: deque[Trajectory], trajectory: Trajectory) -> None:
    """Remove by identity (tuples of arrays cannot be compared)."""
    for i, kept in enumerate(stored):
        if kept is trajectory:
            del stored[i]
            return
