"""The arrays of a trajectory while an actor plays it."""

from __future__ import annotations

import numpy as np

from gelada.algorithms.exploration import Explored
from gelada.core.types import Bools, Floats, Frames, Ints, Trajectory, Version
from gelada.envs.api import Step


class Rollout:
    """``T`` steps of ``B`` games, filled one step after the other.

    Args:
        frames: [B, K, H, W], the observation before the first step.
        ages: int64[B], steps since each game's first observation.
        length: T.
    """

    def __init__(self, frames: Frames, ages: Ints, length: int) -> None:
        count, self._depth = frames.shape[:2]
        self.frames: Frames = np.empty(
            (count, length + self._depth, *frames.shape[2:]), frames.dtype
        )
        self.frames[:, : self._depth] = frames
        self.ages: Ints = np.empty((count, length + 1), dtype=np.int64)
        self.ages[:, 0] = ages
        self.actions: Ints = np.empty((count, length), dtype=np.int64)
        self.rewards: Floats = np.empty((count, length), dtype=np.float32)
        self._terminated: Bools = np.empty((count, length), dtype=np.bool_)
        self._truncated, self._forced = (np.empty_like(self._terminated) for _ in range(2))

    def add(self, t: int, actions: Ints, step: Step) -> None:
        """Write down step ``t``: the actions that were chosen int64[B], and what came of them."""
        self.frames[:, t + self._depth] = step.frames
        self.actions[:, t], self.rewards[:, t] = actions, step.rewards
        self._terminated[:, t], self._truncated[:, t] = step.terminated, step.truncated
        self._forced[:, t] = step.forced
        self.ages[:, t + 1] = np.where(step.over, 0, self.ages[:, t] + 1)

    def trajectory(
        self, actor: int, round: int, version: Version, explored: Explored, state: Floats
    ) -> Trajectory:
        """Return the trajectory; the arrays are not copied.

        Args:
            actor: index of the actor.
            round: trajectories that it had sent before.
            version: of the parameters that chose the actions.
            explored: what the exploration says about the actions.
            state: float32[B, S], recurrent state before the first step.
        """
        return Trajectory(
            actor=actor,
            round=round,
            version=version,
            frames=self.frames,
            ages=self.ages,
            actions=self.actions,
            rewards=self.rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            mask=~(self._forced | self._truncated),
            log_probs=explored.log_probs.numpy(),
            independent=explored.independent,
            state=state,
        )
