"""Fifo of windows: whole, in order, each once; against a plain list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from conftest import random_trajectory
from gelada.core.errors import Deadline
from gelada.core.types import Trajectory
from gelada.roles.replay.queue import FifoWindows, TrajectoryQueue

PLAYED = (
    "frames",
    "ages",
    "actions",
    "rewards",
    "terminated",
    "truncated",
    "mask",
    "log_probs",
)


def windows(first: int, games: int) -> Trajectory:
    """Return a trajectory of so many games, whose actions are the windows' numbers."""
    rng = np.random.default_rng(first)
    trajectory = random_trajectory(rng, games=games, length=2, stack=1, frame_shape=(1, 1))
    numbered = np.arange(first, first + games)
    for name in PLAYED:  # all fields but the empty state say which window they are of
        field = getattr(trajectory, name)
        field[:] = numbered.reshape(-1, *[1] * (field.ndim - 1)) % (2 if field.dtype == bool else 9)
    return trajectory._replace(actions=np.repeat(numbered[:, None], 2, axis=1))


class WindowsAgainstAList(RuleBasedStateMachine):
    """Fifo of windows does what a list of windows does, with room as in a worker."""

    count, full = 5, 3

    def __init__(self) -> None:
        super().__init__()
        select = FifoWindows(self.count)
        self.replay = TrajectoryQueue(select, capacity=100, patience=0, full=self.full)
        self.model: list[int] = []
        self.added = self.taken = 0
        self.sizes: list[int] = []  # windows left of each trajectory that waits

    @rule(games=st.integers(1, 12))
    def add(self, games: int) -> None:
        self.replay.add(windows(self.added, games))
        self.model += range(self.added, self.added + games)
        self.added += games
        self.sizes.append(games)

    @rule()
    def sample(self) -> None:
        if len(self.model) < self.count:
            with pytest.raises(Deadline):
                self.replay.sample()
            return
        batch = self.replay.sample()
        want, self.model = self.model[: self.count], self.model[self.count :]
        assert batch.actions[:, 0].tolist() == want  # in order, whole, each once
        assert batch.keys.tolist() == list(range(self.taken, self.taken + self.count))
        for name in PLAYED:
            field, marks = getattr(batch, name).flatten(1), torch.tensor(want)[:, None]
            if name != "actions":
                marks = marks % (2 if field.dtype == torch.bool else 9)
            assert (field.long() == marks).all(), name
        self.taken += self.count
        missing = self.count
        while missing:
            first = min(self.sizes[0], missing)
            self.sizes[0] -= first
            missing -= first
            if not self.sizes[0]:
                self.sizes.pop(0)

    @invariant()
    def there_is_room_while_few_wait(self) -> None:
        assert self.replay.depth == len(self.sizes)
        if len(self.sizes) < self.full:
            self.replay.wait_for_room()
        else:
            with pytest.raises(Deadline, match="no room for 0 s: the learner takes nothing"):
                self.replay.wait_for_room()


TestWindowsAgainstAList: Any = WindowsAgainstAList.TestCase
