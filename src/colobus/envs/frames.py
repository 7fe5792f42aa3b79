"""What stands between games and an agent that plays them: stacks of frames, and the stuck guard.

Some games serve the ball only after FIRE, and a greedy agent may never press it. DBA3C has a guard
in evaluation, not in training (`PreventStuckPlayer` of tensorpack; docs/dba3c.md lists the
differences).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from colobus.core.arrays import Bools, Frames, Ints, apart
from colobus.envs.api import Games


class FrameStack:
    """The newest ``depth`` frames of each of B games, the newest last.

    Frames from before the start of a game are black.

    Args:
        depth: frames in a stack.
        first: [B, H, W], the first frames of the games.
    """

    def __init__(self, depth: int, first: Frames) -> None:
        count, *frame_shape = first.shape
        self.stacks: Frames = np.zeros((count, depth, *frame_shape), dtype=first.dtype)
        self.stacks[:, -1] = first

    def push(self, frames: Frames, over: Bools | None = None) -> None:
        """Add the newest frames.

        Args:
            frames: [B, H, W].
            over: bool[B], the games whose new frame is the first one of the next game; none by
                default.
        """
        self.stacks[:, :-1] = self.stacks[:, 1:]
        self.stacks[:, -1] = frames
        if over is not None:
            self.stacks[over, :-1] = 0


def random_actions(random: np.random.Generator, games: Games, frames: Frames, masks: int) -> Ints:
    """Return actions int64[B], each of those that are allowed with the same probability.

    Args:
        random: to draw with.
        games: that are played.
        frames: [B, H, W], the newest ones.
        masks: actions of the mask at the end of each frame; 0: all are allowed.
    """
    if not masks:
        return random.integers(games.actions, size=games.count)
    drawn = np.where(apart(frames, masks)[1], random.random((games.count, masks)), -1.0)
    actions: Ints = drawn.argmax(axis=1)
    return actions


class StuckGuard:
    """Replaces actions of ``count`` games that are played at the same time.

    If an action follows ``limit`` equal ones, it is replaced by FIRE, and the guard counts from 0
    again. In a game without FIRE it is replaced by action 1.

    Args:
        limit: number of equal actions in a row that the guard does not replace; None: of any.
        action_names: names of the game's actions in order.
        count: number of games.
    """

    def __init__(self, limit: int | None, action_names: Sequence[str], count: int) -> None:
        self.pressed: Ints = np.zeros(count, dtype=np.int64)  # in the current game of each
        self._limit = limit or math.inf
        self._action = action_names.index("FIRE") if "FIRE" in action_names else 1
        self._last: Ints = np.zeros(count, dtype=np.int64)
        self._run: Ints = np.zeros(count, dtype=np.int64)

    def let_through(self, actions: Ints) -> Ints:
        """Return the actions to play int64[B], given the chosen ``actions`` int64[B]."""
        self._run = np.where(actions == self._last, self._run + 1, 1)
        self._last = actions
        stuck = self._run > self._limit
        self._run[stuck] = 0
        self.pressed += stuck
        return np.where(stuck, self._action, actions)

    def begin(self, over: Bools) -> None:
        """Reset the guard of the games that are ``over`` bool[B]."""
        self._run[over] = 0
        self.pressed[over] = 0
