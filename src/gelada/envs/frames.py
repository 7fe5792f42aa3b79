"""The stack of the newest frames that an agent observes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gelada.core.types import Bools, Frames


class FrameStack:
    """The newest ``depth`` frames of each of ``count`` games, the newest last.

    Frames from before the start of a game are black.

    Args:
        count: number of games.
        depth: frames in a stack.
        frame_shape: height and width of a frame.
        dtype: of the frames.
    """

    def __init__(
        self, count: int, depth: int, frame_shape: tuple[int, int], dtype: Any = np.uint8
    ) -> None:
        self.stacks: Frames = np.zeros((count, depth, *frame_shape), dtype=dtype)

    def reset(self, frames: Frames) -> None:
        """Start all games with their first frames [B, H, W]."""
        self.stacks[:, :-1] = 0
        self.stacks[:, -1] = frames

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
