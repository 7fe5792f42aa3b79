"""The state of an actor between two rollouts, from which another actor goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from colobus.core.errors import ColobusError
from colobus.core.types import Floats, State
from colobus.envs.api import Games

WRONG = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What a saved state whose values cannot be may raise."""

ResumeGames = Callable[[State], Games]
"""From what `Savable.save` of games returned to games that go on from there."""


def as_array(state: torch.Tensor | None, count: int) -> Floats:
    """Return a copy of a recurrent state, float32[B, S]; S is 0 for a network without one."""
    if state is None:
        return np.zeros((count, 0), dtype=np.float32)
    array: Floats = state.cpu().numpy().copy()
    return array


def resumed_games(
    saved: State | None, resume: ResumeGames | None, name: str, exactly: bool
) -> Games | None:
    """Return the games that an actor goes on with; None if it begins new ones.

    Args:
        saved: what another actor handed over, if there is one.
        resume: makes the games.
        name: of the actor, for a warning.
        exactly: raise an error instead of beginning new games.

    Raises:
        ColobusError: if games cannot go on as they were.
    """
    if saved is None or resume is None:
        return None
    try:
        return resume(saved["games"])
    except (ColobusError, *WRONG) as error:
        if exactly:  # the run would not be the one that was broken off
            raise ColobusError(f"the games of {name} cannot go on: {error}") from None
        warnings.warn(f"{name} begins new games: {error}", stacklevel=2)
        return None


@contextmanager
def restoring(saved: State, name: str, games: Games, stack: int) -> Iterator[None]:
    """Take over a saved state within this context; its shapes are checked first.

    Args:
        saved: what another actor handed over.
        name: of the actor.
        games: that go on.
        stack: frames of an observation.

    Raises:
        ColobusError: if the state is not one of such an actor.
    """
    rows: tuple[int, ...] = (games.count,)
    shapes = {"ages": rows, "lengths": rows, "scores": rows}
    shapes["frames"] = (games.count, stack, *games.frame_shape)
    try:
        for part, shape in shapes.items():
            if saved[part].shape != shape:
                raise ValueError(f"{part} of shape {saved[part].shape}, want {shape}")
        yield
    except WRONG as error:
        what = f"{type(error).__name__}: {error}"
        raise ColobusError(f"{name} cannot go on from its saved state: {what}") from None
