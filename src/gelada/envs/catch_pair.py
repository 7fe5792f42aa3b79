"""Catch for two agents: two balls fall, and each agent has a paddle for its own.

The board, the actions and the length of a game are those of Catch (`gelada.envs.catch`). Each agent
sees its own ball and paddle brighter than the other's. At the end both get the same reward: the
mean of +1 for a ball that its paddle caught and -1 for one that it missed.
"""

from __future__ import annotations

import numpy as np

from gelada.core.types import Bytes, Ints
from gelada.envs.api import Step
from gelada.envs.catch import COLUMNS, ROWS, CatchGames

AGENTS = 2
OWN, OTHERS = 255, 128
"""Grey levels of what belongs to the agent that sees the frame, and to the other one."""


class CatchPairGames:
    """One board for each seed. The agents of a board are neighbours: rows ``2 b`` and ``2 b + 1``.

    Args:
        seeds: int64[boards].
    """

    actions = CatchGames.actions
    action_names: tuple[str, ...] = CatchGames.action_names
    frame_shape = (ROWS, COLUMNS)

    def __init__(self, seeds: Ints) -> None:
        boards = len(seeds)
        self.count = AGENTS * boards
        self._random = np.random.default_rng(seeds)
        self._row = 0  # the games of all boards begin and end together
        self._balls: Ints = np.zeros((boards, AGENTS), dtype=np.int64)
        self._paddles = np.zeros_like(self._balls)

    def reset(self) -> Bytes:
        """Start all games; return the first frames, uint8[2 * boards, 10, 5]."""
        self._start()
        return self._draw()

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[2 * boards] (0 left, 1 stay, 2 right)."""
        moves = actions.reshape(-1, AGENTS) - 1
        self._paddles = np.clip(self._paddles + moves, 0, COLUMNS - 1)
        self._row += 1
        over = self._row == ROWS - 1
        rewards = np.zeros(self.count, dtype=np.float32)
        if over:
            caught = np.where(self._balls == self._paddles, 1.0, -1.0)
            rewards = caught.mean(axis=1).repeat(AGENTS).astype(np.float32)
            self._start()
        ended, never = np.full(self.count, over), np.zeros(self.count, dtype=np.bool_)
        return Step(self._draw(), rewards, ended, never, ended, never)

    def _start(self) -> None:
        self._row = 0
        self._balls = self._random.integers(COLUMNS, size=self._balls.shape)
        self._paddles = np.full_like(self._balls, COLUMNS // 2)

    def _draw(self) -> Bytes:
        boards = np.arange(len(self._balls))
        frames = np.zeros((len(boards), AGENTS, ROWS, COLUMNS), dtype=np.uint8)
        for agent in range(AGENTS):
            for owner, level in ((1 - agent, OTHERS), (agent, OWN)):  # its own is in front
                frames[boards, agent, self._row, self._balls[:, owner]] = level
                frames[boards, agent, ROWS - 1, self._paddles[:, owner]] = level
        return frames.reshape(self.count, ROWS, COLUMNS)
