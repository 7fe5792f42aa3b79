"""What has to be known of Atari games in progress to play them again up to now.

ale-py's vector environment does not give away the state of its emulators. But an episode follows
from few numbers: the seed, how many frames and resets the emulator has seen since it was seeded
(they tell where its random numbers stand), and the actions since the episode's start.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from gelada.core.arrays import Bools, Bytes, Ints, State

LEAST = 1024
"""Steps of an episode for which memory is taken at first."""


class Past:
    """The games in progress of a vector, from their seeds on.

    Args:
        seeds: int64[B], of the games.
        state: of an earlier `save`, to go on from (None: the games have just been seeded).
    """

    def __init__(self, seeds: Ints, state: State | None = None) -> None:
        count = len(seeds)
        self.seeds: Ints = np.asarray(seeds, dtype=np.int64)
        self.resets: Ints = np.zeros(count, dtype=np.int64)  # since the seed, this one included
        self.frames: Ints = np.zeros(count, dtype=np.int64)  # played before the newest reset
        self.opening: Ints = np.zeros(count, dtype=np.int64)  # frames between reset and first step
        self.steps: Ints = np.zeros(count, dtype=np.int64)  # of the episode
        self._actions: Bytes = np.zeros((count, LEAST), dtype=np.uint8)
        self._games = np.arange(count)
        if state is not None:
            self._restore(state)

    def begin(self, which: Bools, info: dict[str, Any]) -> None:
        """Note that the games ``which`` bool[B] have been reset.

        Args:
            which: the games.
            info: ale-py's: ``frame_number`` [B] since the seed, ``episode_frame_number`` [B].
        """
        opening = np.asarray(info["episode_frame_number"], dtype=np.int64)
        before = np.asarray(info["frame_number"], dtype=np.int64) - opening
        self.resets[which] += 1
        self.frames[which] = before[which]
        self.opening[which] = opening[which]
        self.steps[which] = 0

    def add(self, actions: Ints) -> None:
        """Note the actions int64[B] of a step, as they were sent to the emulator."""
        if int(self.steps.max()) == self._actions.shape[1]:
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], axis=1)
        self._actions[self._games, self.steps] = actions
        self.steps += 1

    def actions(self, game: int) -> Bytes:
        """Return the actions of a game's episode so far, uint8[steps]."""
        return self._actions[game, : self.steps[game]]

    def save(self, frames: Bytes) -> State:
        """Return copies of everything, and checksums of the newest ``frames`` uint8[B, H, W]."""
        episodes = [self.actions(game) for game in range(len(self.seeds))]
        return {
            "seeds": self.seeds.copy(),
            "resets": self.resets.copy(),
            "frames": self.frames.copy(),
            "opening": self.opening.copy(),
            "steps": self.steps.copy(),
            "actions": np.concatenate(episodes),
            "checksums": checksums(frames),
        }

    def _restore(self, state: State) -> None:
        self.resets, self.frames = state["resets"].copy(), state["frames"].copy()
        self.opening, self.steps = state["opening"].copy(), state["steps"].copy()
        longest = max(int(self.steps.max()), LEAST)
        self._actions = np.zeros((len(self.seeds), longest), dtype=np.uint8)
        ends = self.steps.cumsum()
        for game, end in enumerate(ends):
            begin = end - self.steps[game]
            self._actions[game, : self.steps[game]] = state["actions"][begin:end]


def checksums(frames: Bytes) -> Ints:
    """Return a checksum of each frame of uint8[B, H, W], int64[B]."""
    return np.array([zlib.crc32(frame.tobytes()) for frame in frames], dtype=np.int64)
