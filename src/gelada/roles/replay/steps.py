"""Steps as a replay buffer keeps them: one array for each field of a trajectory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gelada.core.types import Bools, Floats, Ints, Trajectory


class Steps(NamedTuple):
    """Steps [M] of several streams, in the types of a `Trajectory`.

    One array for each field: a window's part of it is one call, and needs no conversion.
    """

    generations: Ints  # how often the step's place was overwritten, -1 where no step is kept
    versions: Ints  # number of the version of the parameters that chose the action
    ages: Ints  # of the observation before the step
    actions: Ints
    rewards: Floats
    log_probs: Floats
    terminated: Bools
    truncated: Bools
    mask: Bools

    @property
    def nbytes(self) -> int:
        """Bytes of all fields."""
        return sum(field.nbytes for field in self)

    def write(self, trajectory: Trajectory, places: Ints, generations: Ints) -> None:
        """Write a trajectory's steps at ``places`` int64[B, T + 1], the last age at the last."""
        self.ages[places] = trajectory.ages
        places = places[:, :-1]
        self.generations[places] = generations[:, :-1]
        self.versions[places] = trajectory.version.number
        for name in ("actions", "rewards", "log_probs", "terminated", "truncated", "mask"):
            getattr(self, name)[places] = getattr(trajectory, name)


def no_steps(count: int) -> Steps:
    """Return ``count`` places without steps."""
    return Steps(
        generations=np.full(count, -1),
        versions=np.zeros(count, dtype=np.int64),
        ages=np.zeros(count, dtype=np.int64),
        actions=np.zeros(count, dtype=np.int64),
        rewards=np.zeros(count, dtype=np.float32),
        log_probs=np.zeros(count, dtype=np.float32),
        terminated=np.zeros(count, dtype=np.bool_),
        truncated=np.zeros(count, dtype=np.bool_),
        mask=np.zeros(count, dtype=np.bool_),
    )


STEP_BYTES = no_steps(1).nbytes
"""Bytes of one step."""
