"""Games that show their pictures: the emulator's screen, frames drawn large, Gymnasium's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from gelada.core.types import Bytes, Frames, Ints
from gelada.envs.api import GameSettings, close
from gelada.envs.make import is_atari, is_gym, make_games

Show = Callable[[Bytes], None]
"""Takes a picture uint8[H, W, 3]."""

FRAME_RATE = 6
"""Pictures per second of a game without an emulator, such as Catch."""

FRAME_ZOOM = 8
"""Pixels of a picture for each pixel of such a frame, before the film is scaled up."""

LEAST_SIDE = 240
"""Smaller pictures of an environment of Gymnasium are enlarged to this height at least."""


class Screen(Protocol):
    """One game that shows its pictures."""

    rate: int  # pictures per second
    agents: int  # that play the game (B)
    zoom: tuple[int, int] | None  # times higher and wider in a film; None: as the format says
    action_names: tuple[str, ...]

    def start(self, show: Show) -> Frames:
        """Begin, show the first picture, return the first frames [B, H, W]."""

    def step(self, actions: Ints, show: Show) -> tuple[Frames, float, bool]:
        """Play a step with actions int64[B] and show its pictures.

        Return the frames, the mean raw reward of the agents, and whether the game is over.
        """

    def close(self) -> None:
        """Close what the game holds open; it is not played any more."""


def make_screen(settings: GameSettings, seed: int) -> Screen:
    """Return a game that shows its pictures.

    Raises:
        GeladaError: if the environment has no pictures.
    """
    if is_gym(settings.game):
        return GymScreen(settings, seed)
    return (AtariScreen if is_atari(settings.game) else FrameScreen)(settings, seed)


class AtariScreen:
    """Shows every emulator frame."""

    rate, agents = 60, 1
    zoom: tuple[int, int] | None = None

    def __init__(self, settings: GameSettings, seed: int) -> None:
        from gelada.envs.ale import AleGame  # other games need no emulator

        self._game = AleGame(settings, seed)
        self.action_names = self._game.action_names

    def start(self, show: Show) -> Bytes:
        """Begin a game."""
        return self._game.reset(show)[None]

    def step(self, actions: Ints, show: Show) -> tuple[Bytes, float, bool]:
        """Play a step."""
        step = self._game.step(int(actions[0]), show)
        return step.frame[None], step.reward, step.over

    def close(self) -> None:
        """Do nothing: the emulator holds nothing open."""


class FrameScreen:
    """Shows the frames of the first agent; those after the last step belong to the next game."""

    rate = FRAME_RATE
    zoom: tuple[int, int] | None = None

    def __init__(self, settings: GameSettings, seed: int) -> None:
        self._games = make_games(settings, np.array([seed]))
        self.agents, self.action_names = self._games.count, self._games.action_names

    def start(self, show: Show) -> Bytes:
        """Begin a game."""
        frames = self._games.reset()
        show(_enlarge(frames[0]))
        return frames

    def step(self, actions: Ints, show: Show) -> tuple[Bytes, float, bool]:
        """Play a step."""
        step = self._games.step(actions)
        over = bool(step.over[0])
        if not over:
            show(_enlarge(step.frames[0]))
        return step.frames, float(step.rewards.mean()), over

    def close(self) -> None:
        """Close the game."""
        close(self._games)


class GymScreen:
    """Shows the pictures that an environment of Gymnasium draws of itself."""

    agents = 1

    def __init__(self, settings: GameSettings, seed: int) -> None:
        from gelada.envs.gym import GymGames

        self._games = GymGames(settings.game, np.array([seed]), pictures=True)
        self.action_names, self.rate = self._games.action_names, self._games.rate
        self.zoom: tuple[int, int] | None = None

    def start(self, show: Show) -> Frames:
        """Begin a game."""
        frames = self._games.reset()
        picture = self._games.picture()
        times = -(-LEAST_SIDE // len(picture))
        self.zoom = (times, times)
        show(picture)
        return frames

    def step(self, actions: Ints, show: Show) -> tuple[Frames, float, bool]:
        """Play a step."""
        step = self._games.step(actions)
        over = bool(step.over[0])
        if not over:
            show(self._games.picture())
        return step.frames, float(step.rewards[0]), over

    def close(self) -> None:
        """Close the environment."""
        close(self._games)


def _enlarge(frame: Bytes) -> Bytes:
    """Return a picture uint8[8 * H, 8 * W, 3] of a frame uint8[H, W]."""
    large = frame.repeat(FRAME_ZOOM, axis=0).repeat(FRAME_ZOOM, axis=1)
    return np.repeat(large[:, :, None], 3, axis=2)
