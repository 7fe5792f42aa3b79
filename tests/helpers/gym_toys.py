"""Small environments of Gymnasium that several tests play."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

LIMIT = 5
"""Steps after which a walk is cut off."""


class Walk(gymnasium.Env[Any, Any]):
    """A walk of 2 to 8 steps, of which action 1 is worth a point. It sees steps and length."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as in Gymnasium
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(2, 9))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._seen(), float(action), self.steps == self.length, False, {}

    def render(self) -> Any:
        picture = np.zeros((31, 40, 3), dtype=np.uint8)
        picture[:, : self.steps] = 200
        return picture

    def _seen(self) -> Any:
        return np.array([self.steps, self.length], dtype=np.float32)


def walk(render_mode: str | None = None) -> Any:
    """Return a walk that is cut off after `LIMIT` steps."""
    return TimeLimit(Walk(render_mode), LIMIT)


def silent_walk() -> Any:
    """Return a walk that cannot be shown."""
    return walk()


def same_step(num_envs: int) -> Any:
    return SyncVectorEnv([walk] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


class Shaped(gymnasium.Env[Any, Any]):
    """An environment of any spaces, whose games last three steps."""

    def __init__(self, observations: Any, actions: Any | None = None) -> None:
        self.observation_space = observations
        self.action_space = actions or spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.steps += 1
        return self._seen(), 1.0, self.steps == 3, False, {}

    def _seen(self) -> Any:
        return self.observation_space.sample()


def grid() -> Any:
    """Return an environment that sees a small picture and a number."""
    picture = spaces.Box(0, 255, (7, 6, 3), np.uint8)
    return Shaped(spaces.Dict({"image": picture, "direction": spaces.Discrete(4)}))


def shifted() -> Any:
    """Return an environment whose actions are 5, 6 and 7."""
    return Shaped(spaces.Box(-1, 1, (4,)), spaces.Discrete(3, start=5))
