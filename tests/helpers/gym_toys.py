"""Small environments of Gymnasium that several tests play."""

from __future__ import annotations

import time
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

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
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

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
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


def versatile() -> Any:
    """Return an environment with nearly as many actions as are learned."""
    return Shaped(spaces.Box(-1, 1, (4,)), spaces.Discrete(60_000))


def wide() -> Any:
    """Return an environment that sees 441 numbers, which take as many bytes as 42x42 pixels."""
    return Shaped(spaces.Box(-1, 1, (441,)))


def robot() -> Any:
    """Return an environment with more continuous actions than are learned."""
    env: Any = Walk()
    env.action_space = spaces.Box(-1.0, 1.0, (6,))
    return env


class Doors(gymnasium.Env[Any, Any]):
    """Ten rooms with four doors, of which two are open; a closed one is an error.

    The reward of a door is its number, so the best agent takes the larger open one: 2 of the doors
    0 and 2 in even rooms, 3 of 1 and 3 in odd ones. Ten of them are worth 25. It observes the
    number of the room.

    Args:
        key: whether the mask is in the observation; else it is in the info.
        several: whether a door is two numbers, such as 1, 0 for door 2.
        picture: whether the room is a picture of one grey level.
    """

    def __init__(self, key: bool, several: bool = False, picture: bool = False) -> None:
        self._key, self._several, self._picture = key, several, picture
        seen: Any = spaces.Box(0, 10, (1,))
        if picture:
            seen = spaces.Box(0, 255, (6, 6, 2), np.uint8)
        if key:
            seen = spaces.Dict(room=seen, action_mask=spaces.MultiBinary(4))
        self.observation_space = seen
        self.action_space: Any = spaces.MultiDiscrete([2, 2]) if several else spaces.Discrete(4)

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        room: Any = np.array([self._room], np.float32)
        if self._picture:
            room = np.full((6, 6, 2), 25 * self._room, np.uint8)
        even, odd = (1, 0) if self._room % 2 == 0 else (0, 1)
        both = [1, 1] if self._several else [even, odd]  # the last number of two is the room's
        mask = np.array([*both, even, odd], np.int8)
        if self._key:
            return {"room": room, "action_mask": mask}, {}
        return room, {"action_mask": mask, "other": "x" * self._room}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._room = 0
        return self._shown()

    def step(self, action: Any) -> Any:
        door = int(2 * action[0] + action[1]) if self._several else int(action)
        assert door % 2 == self._room % 2, "the door is closed"
        self._room += 1
        seen, info = self._shown()
        return seen, float(door), self._room == 10, False, info


class OneDoor(Doors):
    """Forty rooms, in each of which the first door alone is open. It is worth 1."""

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        seen, info = super()._shown()
        return seen | {"action_mask": np.array([1, 0, 0, 0], np.int8)}, info

    def step(self, action: Any) -> Any:
        assert action == 0, "the door is closed"
        self._room += 1
        return *self._shown()[:1], 1.0, self._room == 40, False, {}


def doors_by_key() -> Any:
    """Return `Doors` with the mask in its observation."""
    return Doors(key=True)


def doors_by_info() -> Any:
    """Return `Doors` with the mask in its info, and two numbers for a door."""
    return Doors(key=False, several=True)


def doors_in_pictures() -> Any:
    """Return `Doors` with pictures of rooms."""
    return Doors(key=True, picture=True)


def many_doors(num_envs: int) -> Any:
    """Return a vector of them, whose masks are in the infos."""
    return SyncVectorEnv([doors_by_info] * num_envs)


class Idle(gymnasium.Env[Any, Any]):
    """Nothing to learn, and a step sleeps: processes that begin anew have the cores to themselves.

    An episode has ten steps. In each an action of three has a reward of 0.1.
    """

    action_space: Any = spaces.Discrete(3)
    observation_space: Any = spaces.Box(0, 255, (10, 10), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros((10, 10), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(0.002)
        self.steps += 1
        seen = np.full((10, 10), self.steps, np.uint8)
        return seen, 0.1 * (action == 0), self.steps == 10, False, {}
