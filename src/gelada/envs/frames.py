"""The stack of the newest frames that an agent observes."""

from __future__ import annotations

import numpy as np

from gelada.core.types import Bools, Bytes


class FrameStack:
    """The newest ``depth`` frames of each of ``count`` games, the newest last.

    Frames from before the start of a game are black.

    Args:
        count: number of games.
        depth: frames in a stack.
        frame_shape: height and width of a frame.
    """

    def __init__(self, count: int, depth: int, frame_shape: tuple[int, int]) -> None:
        self.stacks: Bytes = np.zeros((count, depth, *frame_shape), dtype=np.uint8)

    def reset(self, frames: Bytes) -> None:
        """Start all games with their first frames, uint8[B, H, W]."""
        self.stacks[:, :-1] = 0
        self.stacks[:, -1] = frames

    def push(self, frames: Bytes, over: Bools | None = None) -> None:
        """Add the newest frames.

        Args:
            frames: uint8[B, H, W].
            over: bool[B], the games whose new frame is the first one of the next game; none by
                default.
        """
        self.stacks[:, :-1] = self.stacks[:, 1:]
        self.stacks[:, -1] = frames
        if over is not None:
            self.stacks[over, :-1] = 0
