"""One step as a store keeps it: a record of 32 bytes, so a window's steps are one copy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gelada.types import Trajectory

STEP = np.dtype(
    [
        ("version", np.int64),
        ("age", np.int32),
        ("action", np.int32),
        ("reward", np.float32),
        ("log_prob", np.float32),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("counted", np.bool_),
    ],
    align=True,
)
"""The fields of a `Trajectory`; ``age`` is that of the observation before the step."""

Steps = NDArray[np.void]


def as_steps(trajectory: Trajectory) -> Steps:
    """Return a trajectory's steps as STEP[B, T + 1]; the last ones have only an age."""
    steps: Steps = np.zeros(trajectory.ages.shape, dtype=STEP)
    steps["age"] = trajectory.ages
    taken = steps[:, :-1]
    taken["version"] = trajectory.version.number
    taken["action"], taken["reward"] = trajectory.actions, trajectory.rewards
    taken["log_prob"], taken["counted"] = trajectory.log_probs, trajectory.counted
    taken["terminated"], taken["truncated"] = trajectory.terminated, trajectory.truncated
    return steps
