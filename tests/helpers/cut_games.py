"""Games that a time limit cuts off, in vectors of all kinds, and what they have to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from colobus.core.functions import MakeEnv
from colobus.core.types import Ints

KINDS = [(3, "cut"), (1, "cut"), (2, "end"), (1, "end"), (2, "both"), (4, "cut"), (1, "cut")]
"""Steps and end of each game; after the last they begin again."""
SEEDS: Ints = np.array([0, 3])
"""Numbers of the first games of the rows."""
STEPS = 48


def kind(game: int) -> tuple[int, str]:
    return KINDS[game % len(KINDS)]


def seen(game: int, step: int) -> float:
    return game + step / 8


def reward(game: int, step: int) -> float:
    return game % 5 - 1.5 * step + 0.25


class Counting(gymnasium.Env[Any, Any]):
    """The games; a seed is the number of the first one."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    game = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.game, self.t = self.game + 1 if seed is None else seed, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        gained, (length, end) = reward(self.game, self.t), kind(self.game)
        self.t += 1
        over = self.t == length
        return self._seen(), gained, over and end != "cut", over and end != "end", {}

    def _seen(self) -> Any:
        return np.array([seen(self.game, self.t)], dtype=np.float32)


class Foreign(VectorEnv[Any, Any, Any]):
    """A vector of a class that nobody knows; its games begin in the same step.

    Args:
        make: makes a game.
        count: of the games.
        word: for the last observations in its infos ("": it gives none).
        says_mode: whether its metadata do.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        count: int,
        word: str = "final_obs",
        says_mode: bool = True,
    ) -> None:
        self._envs = SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP)
        self.num_envs, self._word = count, word
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP} if says_mode else {}
        self.single_observation_space = self._envs.single_observation_space
        self.single_action_space = self._envs.single_action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert options is None, "it cannot begin single games"
        return self._envs.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        *step, infos = self._envs.step(actions)
        return *step, {self._word: infos["final_obs"]} if self._word and infos else {}


def alone() -> Any:
    return Counting()


def same_step(num_envs: int) -> Any:
    return SyncVectorEnv([Counting] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def next_step(num_envs: int) -> Any:
    return SyncVectorEnv([Counting] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def disabled(num_envs: int) -> Any:
    return SyncVectorEnv([Counting] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def in_processes(num_envs: int) -> Any:
    return AsyncVectorEnv([Counting] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def in_processes_disabled(num_envs: int) -> Any:
    return AsyncVectorEnv([Counting] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def foreign(num_envs: int) -> Any:
    return Foreign(Counting, num_envs)


def old_foreign(num_envs: int) -> Any:
    return Foreign(Counting, num_envs, "final_observation", says_mode=False)


FOREIGN = (foreign, old_foreign)


class Row(NamedTuple):
    """What a row has to show, step by step, and the games that are over by then."""

    learned: list[tuple[int, int] | None]  # game and step; None where there is nothing to learn
    shown: list[float]  # observation before each step
    episodes: list[tuple[float, int]]  # score and length


def row_of(make: MakeEnv, first: int, steps: int = STEPS) -> Row:
    """Return what the row whose first game is ``first`` has to show."""
    row, game = Row([], [], []), first
    last = 0.0
    torn = hidden = False  # of a foreign vector: the first step is not learned, nor the next cut
    while len(row.learned) <= steps:
        length, end = kind(game)
        score = 0.0
        for t in range(length):
            cut = t == length - 1 and end == "cut"
            lost = make in FOREIGN and ((torn and t == 0) or (cut and (hidden or torn)))
            row.learned.append(None if lost else (game, t))
            row.shown.append(last if torn and t == 0 else seen(game, t))
            score += reward(game, t)
            if cut and make in FOREIGN and not (torn and t == 0):
                hidden = not hidden
                torn = hidden
            elif t == 0:
                torn = False
        last = seen(game, length)
        if make not in FOREIGN and (end == "cut" or make is next_step):
            row.learned.append(None)
            row.shown.append(last)
        if len(row.learned) <= steps:
            row.episodes.append((score, length))
        game += 1
        if end == "cut" and make in (same_step, disabled, in_processes, in_processes_disabled):
            begins_by_itself = make in (same_step, in_processes) and kind(game)[0] == 1
            game += 1 + begins_by_itself
    return Row(row.learned[:steps], row.shown[: steps + 1], row.episodes)
