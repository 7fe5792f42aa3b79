"""Atari games that are played again up to where others stood, and go on from there.

ale-py's vector environment does not give away the state of its emulators. But an episode follows
from few numbers: the seed, how many frames and resets the emulator has seen since it was seeded
(they tell where its random numbers stand), and the actions since the episode's start.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from colobus.core.arrays import Bools, Bytes, Ints, State
from colobus.core.errors import ColobusError
from colobus.envs.api import GameSettings, Step

LEAST = 1024
"""Steps of an episode for which memory is taken at first."""

NUMBERS = ("resets", "frames", "opening", "steps")
"""Of each game: what `ActionHistory` keeps beside its seed and its actions."""


def longest(settings: GameSettings) -> int:
    """Return the steps after which a game is cut off: the first that reach the frame limit."""
    return -(-settings.max_frames // settings.frame_skip)


class ActionHistory:
    """The games in progress of a vector, from their seeds on.

    Args:
        seeds: int64[B], of the games.
        state: of an earlier `save`, to go on from (None: the games have just been seeded).
    """

    def __init__(self, seeds: Ints, state: State | None = None) -> None:
        count = len(seeds)
        if state is None:
            state = {name: np.zeros(count, dtype=np.int64) for name in NUMBERS}
            state["actions"] = np.zeros(0, dtype=np.uint8)
        self.seeds: Ints = np.asarray(seeds, dtype=np.int64)
        self.resets: Ints = state["resets"].copy()  # since the seed, this one included
        self.frames: Ints = state["frames"].copy()  # played before the newest reset
        self.opening: Ints = state["opening"].copy()  # frames between reset and first step
        self.steps: Ints = state["steps"].copy()  # of the episode
        places = max(int(self.steps.max()), LEAST)
        self._actions: Bytes = np.zeros((count, places), dtype=np.uint8)
        for game, actions in enumerate(np.split(state["actions"], self.steps.cumsum()[:-1])):
            self._actions[game, : len(actions)] = actions
        self._games = np.arange(count)

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
        return {name: getattr(self, name).copy() for name in ("seeds", *NUMBERS)} | {
            "actions": np.concatenate(episodes),
            "checksums": checksums(frames),
        }


def checksums(frames: Bytes) -> Ints:
    """Return a checksum of each frame of uint8[B, H, W], int64[B]."""
    return np.array([zlib.crc32(frame.tobytes()) for frame in frames], dtype=np.int64)


MOST_RESETS, MOST_FRAMES = 10**7, 2**31 - 1
"""Of one game since it was loaded. The emulator counts frames in 32 bits, and moving its random
numbers on takes some seconds for so many."""


def check_history(settings: GameSettings, state: State) -> None:
    """Check that a saved state can be that of games with these settings.

    Raises:
        ColobusError: if not; names the part of it.
    """
    ranges = {
        "seeds": (0, 2**31 - 1),
        "resets": (1, MOST_RESETS),
        "frames": (0, MOST_FRAMES),
        "opening": (0, settings.noop_max + 10),
        "steps": (0, longest(settings)),
        "checksums": (0, 2**32 - 1),
    }
    count = np.size(state.get("seeds", ()))
    for name, (low, high) in ranges.items():
        value = state.get(name)
        if not isinstance(value, np.ndarray) or value.dtype != np.int64:
            raise ColobusError(f"{name} is missing or no array of whole numbers")
        if not count or value.shape != (count,) or value.min() < low or value.max() > high:
            raise ColobusError(f"{name} is not one number from {low:,} to {high:,} for each game")
    actions, steps = state.get("actions"), int(state["steps"].sum())
    if not isinstance(actions, np.ndarray) or actions.dtype != np.uint8 or len(actions) != steps:
        raise ColobusError(f"actions is not one byte for each of {steps:,} steps")


class ReplayedGames:
    """A vector of Atari games, equal to `colobus.envs.atari.AtariGames` with the same past.

    Each game has an emulator of its own, in which its episode is played again up to where it
    stood. That takes about as long as it took to play.

    Args:
        settings: how the games are played.
        state: of `colobus.envs.atari.AtariGames.save`, or of `save` here.

    Raises:
        ColobusError: if a game does not come out as it was, or the state cannot be.
    """

    def __init__(self, settings: GameSettings, state: State) -> None:
        check_history(settings, state)
        self._history = history = ActionHistory(state["seeds"], state)
        self.count = len(history.seeds)
        from colobus.envs.ale import AleGame  # OpenCV: 40 MB that games without a past do not need

        self._longest = longest(settings)
        self._games = [AleGame(settings, int(seed)) for seed in history.seeds]
        first = self._games[0]
        self.actions, self.action_names = first.actions, first.action_names
        self.frame_shape = first.frame_shape
        self._fire = self.action_names.index("FIRE") if "FIRE" in self.action_names else 0
        if len(state["actions"]) and state["actions"].max() >= self.actions:
            raise ColobusError(f"actions has one above {self.actions - 1}, the last of the game")
        columns = (history.resets.tolist(), history.frames.tolist(), history.opening.tolist())
        numbers = list(zip(*columns, strict=True))
        self.newest: Bytes = np.stack(
            [game.play_again(*numbers[b], history.actions(b)) for b, game in enumerate(self._games)]
        )
        wrong = np.flatnonzero(checksums(self.newest) != state["checksums"])
        if len(wrong):
            raise ColobusError(
                f"{len(wrong)} of {self.count} games of {settings.game} did not come out as they "
                "were when they were played again; they cannot go on"
            )

    def reset(self) -> Bytes:
        """Start all games; return the first frames, uint8[B, H, W]."""
        self.newest = np.stack([game.reset() for game in self._games])
        self._begin(np.ones(self.count, dtype=np.bool_))
        return self.newest

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B] (see `Step`)."""
        idle = self._history.steps >= self._longest
        rows = zip(self._games, actions, idle, strict=True)
        steps = [game.pass_over() if rests else game.step(int(a)) for game, a, rests in rows]
        forced = np.array([step.forced for step in steps])
        over = np.array([step.over and not step.truncated for step in steps])
        self._history.add(np.where(forced, self._fire, actions))
        pairs = zip(self._games, steps, over, strict=True)
        self.newest = np.stack([game.reset() if ends else step.frame for game, step, ends in pairs])
        if over.any():
            self._begin(over)
        return Step(
            self.newest,
            np.array([step.reward for step in steps], dtype=np.float32),
            np.array([step.terminated for step in steps]) & ~idle,
            idle,
            over,
            forced,
            idle,
        )

    def save(self) -> State:
        """Return what another `ReplayedGames` goes on from."""
        return self._history.save(self.newest)

    def _begin(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        counts = np.array([game.counts() for game in self._games], dtype=np.int64)
        info = {"frame_number": counts[:, 0], "episode_frame_number": counts[:, 1]}
        self._history.begin(which, info)
