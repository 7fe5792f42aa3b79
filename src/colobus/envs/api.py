"""The interface of environments: a vector of games, one step of it, and the settings of games.

A colour frame is three planes, one below the other: uint8[3 * H, W] holds the picture's red rows,
then the green ones, then the blue ones. So a frame is a matrix of bytes in colour too. A vector of
D numbers is a frame float32[1, D].
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from colobus.core.arrays import Bools, Bytes, Floats, Frames, Ints, State
from colobus.core.fields import SHARE, Range


@dataclass(frozen=True)
class GameSettings:
    """How a game is played. Frames are emulator frames; a step is ``frame_skip`` of them."""

    game: str = "pong"
    """Atari game, catch, catch-dark, catch-pair, an environment of Gymnasium, or a function that
    makes one."""
    size: Annotated[int, Range(1, 210)] = 42
    """Side of the square frames, in pixels."""
    colour: bool = False
    """Colour instead of grey frames."""
    downscale: Literal["area", "maximum"] = "area"
    """How the screen becomes that small: by the mean of the area behind each pixel, or to twice the
    size and then by the maximum of 2x2 pixels, in which small bright things stay visible."""
    frame_skip: Annotated[int, Range(1, 60)] = 4
    """Frames per step; the last two are combined by their maximum."""
    sticky: Annotated[float, SHARE] = 0.0
    """Probability that the emulator repeats the previous action for a frame."""
    noop_max: Annotated[int, Range(0, 1000)] = 30
    """A game starts with a random number of no-op frames, fewer than this (0: none); FIRE at reset
    takes the place of one of them."""
    max_frames: Annotated[int, Range(60, 2_000_000_000)] = 108_000  # the emulator has 32 bits
    """A game is cut off by the step that reaches this many frames."""
    full_actions: bool = False
    """Use all 18 actions instead of the game's minimal set."""
    fire_at_reset: bool = True
    """Press FIRE for one frame at the start of a game, before the no-ops, in games that have the
    action."""
    fire_on_life_loss: bool = True
    """Press FIRE after a lost life in games that have the action (the step has weight 0)."""
    life_loss_ends: bool = False
    """Let a lost life end the return in learning (the game itself goes on)."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of an environment of Gymnasium or of the function that makes it, as name=value,
    such as: size=8 continuous=false."""
    observe: str = ""
    """Keys of a dictionary of observations that the agent sees, with commas, such as image
    (default: all but texts and action_mask)."""


class Step(NamedTuple):
    """One step of ``B`` rows: of games, or of the agents of games.

    Where ``over``, ``frames`` already shows the next game. A game that a limit cuts off goes on to
    its last observation; the step after that one is idle, and it is the one that is cut off.
    """

    frames: Frames  # uint8[B, H, W], the newest; H is that of all planes together
    rewards: Floats  # float32[B], raw
    terminated: Bools  # bool[B]: no value after this step
    truncated: Bools  # bool[B]: cut off; what the step leads to is unknown
    over: Bools  # bool[B]: the game is over and a new one begins with this frame
    forced: Bools  # bool[B]: the environment replaced the action, as by FIRE
    idle: Bools | None = None  # bool[B]: no step of a game, only the beginning of the next one
    learned: Step | None = None  # what a learner is shown, where the agent sees something else


class Games(Protocol):
    """A vector of games. A game that is over restarts in the same step.

    Each row is a game. If several agents play a game, each has a row of its own beside the others'.
    """

    count: int  # rows (B)
    actions: int
    action_names: tuple[str, ...]
    frame_shape: tuple[int, int]  # H of all planes together, W

    def reset(self) -> Frames:
        """Start all games; return the first frames, uint8[B, H, W] or float32[B, 1, D]."""

    def step(self, actions: Ints) -> Step:
        """Play one step with ``actions`` int64[B]."""


@runtime_checkable
class Savable(Protocol):
    """Games that can go on in another process; their line of the table says how (`envs.make`)."""

    def save(self) -> State:
        """Return everything that the games in progress depend on, as copies."""


@runtime_checkable
class Closable(Protocol):
    """Games that hold something open, such as processes or windows."""

    def close(self) -> None:
        """Close everything; the games are not played any more."""


def close(games: Games | None) -> None:
    """Close games, if they hold anything open. An error while they close is ignored."""
    if isinstance(games, Closable):
        with suppress(Exception, SystemExit):
            games.close()


def rom_of(game: str) -> Path:
    """Return the path of an Atari game's ROM."""
    from ale_py import roms  # other games need no emulator

    rom = roms.get_rom_path(game)
    assert rom is not None, game  # names are checked by `envs.make`
    return Path(rom)


def halved(frames: Bytes) -> Bytes:
    """Return the maximum of each 2x2 pixels: uint8[…, H, W] of frames uint8[…, 2 * H, 2 * W]."""
    rows: Bytes = np.maximum(frames[..., ::2, :], frames[..., 1::2, :])
    return np.maximum(rows[..., ::2], rows[..., 1::2])


def in_planes(pictures: Bytes) -> Bytes:
    """Return colour frames uint8[…, 3 * H, W] of pictures uint8[…, H, W, 3] (a copy)."""
    *first, height, width, colours = pictures.shape
    return np.moveaxis(pictures, -1, -3).reshape(*first, colours * height, width)
