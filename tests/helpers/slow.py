"""A game for runs that only have to go on while a test does something to them."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np


class Idle(gymnasium.Env[Any, Any]):
    """Nothing to learn, and a step sleeps: processes that begin anew have the cores to themselves.

    An episode has ten steps. In each an action of three has a reward of 0.1.
    """

    action_space: Any = gymnasium.spaces.Discrete(3)
    observation_space: Any = gymnasium.spaces.Box(0, 255, (10, 10), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros((10, 10), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Sleep; the first action has the reward."""
        time.sleep(0.002)
        self.steps += 1
        seen = np.full((10, 10), self.steps, np.uint8)
        return seen, 0.1 * (action == 0), self.steps == 10, False, {}
