"""Atari games that go on where an earlier run stopped."""

from __future__ import annotations

import numpy as np

from gelada.core.arrays import Bytes, Ints, State
from gelada.core.errors import GeladaError
from gelada.envs.ale import AleGame
from gelada.envs.api import GameSettings, Step
from gelada.envs.past import Past, checksums

MOST_RESETS, MOST_FRAMES = 10**7, 2**31 - 1
"""Of one game since it was loaded. The emulator counts frames in 32 bits, and moving its random
numbers on takes some seconds for so many."""


def check_past(settings: GameSettings, state: State) -> None:
    """Check that a saved state can be that of games with these settings.

    Raises:
        GeladaError: if not; names the part of it.
    """
    longest = settings.max_frames // settings.frame_skip + 1
    ranges = {
        "seeds": (0, 2**31 - 1),
        "resets": (1, MOST_RESETS),
        "frames": (0, MOST_FRAMES),
        "opening": (0, settings.noop_max + 10),
        "steps": (0, longest),
        "checksums": (0, 2**32 - 1),
    }
    count = np.size(state.get("seeds", ()))
    for name, (low, high) in ranges.items():
        value = state.get(name)
        if not isinstance(value, np.ndarray) or value.dtype != np.int64:
            raise GeladaError(f"{name} is missing or no array of whole numbers")
        if not count or value.shape != (count,) or value.min() < low or value.max() > high:
            raise GeladaError(f"{name} is not one number from {low:,} to {high:,} for each game")
    actions, steps = state.get("actions"), int(state["steps"].sum())
    if not isinstance(actions, np.ndarray) or actions.dtype != np.uint8 or len(actions) != steps:
        raise GeladaError(f"actions is not one byte for each of {steps:,} steps")


class ContinuedGames:
    """A vector of Atari games, equal to `gelada.envs.atari.AtariGames` with the same past.

    Each game has an emulator of its own, in which its episode is played again up to where it
    stood. That takes about as long as it took to play.

    Args:
        settings: how the games are played.
        state: of `gelada.envs.atari.AtariGames.save`, or of `save` here.

    Raises:
        GeladaError: if a game does not come out as it was, or the state cannot be.
    """

    def __init__(self, settings: GameSettings, state: State) -> None:
        check_past(settings, state)
        self._past = past = Past(state["seeds"], state)
        self.count = len(past.seeds)
        self._games = [AleGame(settings, int(seed)) for seed in past.seeds]
        first = self._games[0]
        self.actions, self.action_names = first.actions, first.action_names
        self.frame_shape = first.frame_shape
        self._fire = self.action_names.index("FIRE") if "FIRE" in self.action_names else 0
        if len(state["actions"]) and state["actions"].max() >= self.actions:
            raise GeladaError(f"actions has one above {self.actions - 1}, the last of the game")
        columns = (past.resets.tolist(), past.frames.tolist(), past.opening.tolist())
        numbers = zip(*columns, strict=True)
        self.newest: Bytes = np.stack(
            [
                game.play_again(*each, past.actions(b))
                for b, (game, each) in enumerate(zip(self._games, numbers, strict=True))
            ]
        )
        wrong = np.flatnonzero(checksums(self.newest) != state["checksums"])
        if len(wrong):
            raise GeladaError(
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
        steps = [game.step(int(action)) for game, action in zip(self._games, actions, strict=True)]
        forced = np.array([step.forced for step in steps])
        over = np.array([step.over for step in steps])
        self._past.add(np.where(forced, self._fire, actions))
        pairs = zip(self._games, steps, strict=True)
        self.newest = np.stack([g.reset() if step.over else step.frame for g, step in pairs])
        if over.any():
            self._begin(over)
        return Step(
            self.newest,
            np.array([step.reward for step in steps], dtype=np.float32),
            np.array([step.terminated for step in steps]),
            np.array([step.truncated for step in steps]),
            over,
            forced,
        )

    def save(self) -> State:
        """Return what another `ContinuedGames` goes on from."""
        return self._past.save(self.newest)

    def _begin(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        counts = np.array([game.counts() for game in self._games], dtype=np.int64)
        info = {"frame_number": counts[:, 0], "episode_frame_number": counts[:, 1]}
        self._past.begin(which, info)
