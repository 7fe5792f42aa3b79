"""Catch: a ball falls down a 10 x 5 board, and a paddle catches it. It is learned in seconds.

It is the catch of bsuite (Osband et al. 2020). The actions are left, stay and right. The game ends
when the ball reaches the last row, with a reward of +1 or -1. Frames are always grey.

In the dark Catch (``catch-dark``) only the first frames show the ball, and the paddle moves only
after them. An agent that sees one frame at a time has to remember the ball's column.

In Catch for two agents (``catch-pair``) two balls fall, and each agent has a paddle for its own. It
sees its own ball and paddle brighter than the other's. At the end both get the same reward: the
mean of +1 for a ball that its paddle caught and -1 for one that it missed.
"""

from __future__ import annotations

import numpy as np

from colobus.core.types import Bytes, Ints, State
from colobus.envs.api import Step

ROWS, COLUMNS = 10, 5

LIT = 3
"""Frames of a game of the dark Catch that show the ball."""


class CatchGames:
    """One game for each seed, stepped together in numpy.

    Args:
        seeds: int64[B].
        dark: whether only the first `LIT` frames of a game show the ball.
    """

    actions = 3
    action_names: tuple[str, ...] = ("LEFT", "STAY", "RIGHT")
    frame_shape = (ROWS, COLUMNS)

    def __init__(self, seeds: Ints, dark: bool = False) -> None:
        self.count = len(seeds)
        self._dark = dark
        self._random = np.random.default_rng(seeds)
        self._row = np.zeros(self.count, dtype=np.int64)
        self._ball = np.zeros(self.count, dtype=np.int64)
        self._paddle = np.zeros(self.count, dtype=np.int64)

    def reset(self) -> Bytes:
        """Start all games; return the first frames, uint8[B, 10, 5]."""
        self._start(np.ones(self.count, dtype=np.bool_))
        return self._draw()

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B] (0 left, 1 stay, 2 right)."""
        moves = np.where(self._row < LIT, 0, actions - 1) if self._dark else actions - 1
        self._paddle = np.clip(self._paddle + moves, 0, COLUMNS - 1)
        self._row += 1
        over = self._row == ROWS - 1
        caught = np.where(self._ball == self._paddle, 1.0, -1.0)
        rewards = np.where(over, caught, 0.0).astype(np.float32)
        self._start(over)
        never = np.zeros(self.count, dtype=np.bool_)
        return Step(self._draw(), rewards, over, never, over, never)

    def save(self) -> State:
        """Return the boards and the state of the random numbers."""
        board = {"row": self._row, "ball": self._ball, "paddle": self._paddle}
        rest = {"random": self._random.bit_generator.state, "dark": self._dark}
        return {name: array.copy() for name, array in board.items()} | rest

    @classmethod
    def resumed(cls, state: State) -> CatchGames:
        """Return games that go on from a result of `save`."""
        games = cls(np.ones(len(state["row"]), dtype=np.int64), state["dark"])
        games._row, games._ball = state["row"].copy(), state["ball"].copy()
        games._paddle = state["paddle"].copy()
        games._random.bit_generator.state = state["random"]
        return games

    def _start(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        self._row[which] = 0
        self._paddle[which] = COLUMNS // 2
        self._ball = np.where(which, self._random.integers(COLUMNS, size=self.count), self._ball)

    def _draw(self) -> Bytes:
        frames = np.zeros((self.count, ROWS, COLUMNS), dtype=np.uint8)
        games = np.arange(self.count)
        lit = (self._row < LIT) | (not self._dark)
        frames[games, self._row, self._ball] = np.where(lit, 255, 0)
        frames[games, ROWS - 1, self._paddle] = 255
        return frames


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

    def save(self) -> State:
        """Return the boards and the state of the random numbers."""
        board = {"balls": self._balls.copy(), "paddles": self._paddles.copy()}
        return board | {"row": self._row, "random": self._random.bit_generator.state}

    @classmethod
    def resumed(cls, state: State) -> CatchPairGames:
        """Return games that go on from a result of `save`."""
        games = cls(np.ones(len(state["balls"]), dtype=np.int64))
        games._row, games._balls = state["row"], state["balls"].copy()
        games._paddles = state["paddles"].copy()
        games._random.bit_generator.state = state["random"]
        return games

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
