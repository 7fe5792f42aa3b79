"""The size of a replay buffer: what it keeps, and what a batch of it holds."""

from __future__ import annotations

from dataclasses import dataclass

from gelada.core.errors import GeladaError


@dataclass(frozen=True)
class BufferShape:
    """The numbers that decide how much memory a replay buffer takes and what it hands out."""

    capacity: int
    """Steps kept of all games together. Each game keeps the same share, rounded down."""
    streams: int
    """Games of all actors that add to the buffer."""
    windows: int
    """Windows of a batch (N)."""
    length: int
    """Steps of a window (T)."""
    stack: int
    """Frames of an observation (K)."""
    frame_shape: tuple[int, int]
    """Height and width of a frame in pixels (H, W)."""
    first_only: bool = False
    """The loss uses the first step of a window only, as with n-step returns."""

    def kept_steps(self) -> int:
        """Return the steps that each game keeps.

        Raises:
            GeladaError: if they are too few for a window, or for each frame to be stored once.
        """
        kept = self.capacity // self.streams
        least = max(self.length, -(-20 * self.stack // 3))  # at most 1.15 frames a step
        if kept < least:
            raise GeladaError(
                f"--capacity {self.capacity:,} leaves {kept:,} steps for each of "
                f"{self.streams:,} games, fewer than {least:,}; raise it to at least "
                f"{least * self.streams:,}"
            )
        return kept
