"""The state of an actor between two rollouts, from which another actor goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from gelada.algorithms.exploration import Exploration, Lasting
from gelada.core.errors import GeladaError
from gelada.core.types import Doubles, Floats, Frames, Ints, State
from gelada.envs.api import Games, Savable

WRONG = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What a saved state whose values cannot be may raise."""

GoOn = Callable[[State], Games]
"""From what `Savable.save` of games returned to games that go on from there."""


def snapshot(
    games: Savable,
    frames: Frames,
    ages: Ints,
    lengths: Ints,
    scores: Doubles,
    state: torch.Tensor | None,
    exploration: Exploration,
) -> State:
    """Return copies of what lasts from one rollout to the next.

    Args:
        games: of the actor.
        frames: [B, K, H, W], the newest observation, with frames of the game before.
        ages: int64[B], steps since each game's first observation.
        lengths: int64[B], steps of each episode so far.
        scores: float64[B], raw rewards of each episode so far.
        state: recurrent state, if the network has one.
        exploration: of the actor.
    """
    saved: State = {
        "games": games.save(),
        "frames": frames.copy(),
        "ages": ages.copy(),
        "lengths": lengths.copy(),
        "scores": scores.copy(),
    }
    if state is not None:
        saved["state"] = as_array(state, len(ages))
    if isinstance(exploration, Lasting):
        saved["exploration"] = exploration.save()
    return saved


def as_array(state: torch.Tensor | None, count: int) -> Floats:
    """Return a copy of a recurrent state, float32[B, S]; S is 0 for a network without one."""
    if state is None:
        return np.zeros((count, 0), dtype=np.float32)
    array: Floats = state.cpu().numpy().copy()
    return array


def continued(saved: State | None, go_on: GoOn | None, name: str, exactly: bool) -> Games | None:
    """Return the games that an actor goes on with; None if it begins new ones.

    Args:
        saved: result of `snapshot`, if there is one.
        go_on: makes the games.
        name: of the actor, for a warning.
        exactly: raise an error instead of beginning new games.

    Raises:
        GeladaError: if games cannot go on as they were.
    """
    if saved is None or go_on is None:
        return None
    try:
        return go_on(saved["games"])
    except (GeladaError, *WRONG) as error:
        if exactly:  # the run would not be the one that was broken off
            raise GeladaError(f"the games of {name} cannot go on: {error}") from None
        warnings.warn(f"{name} begins new games: {error}", stacklevel=2)
        return None


@contextmanager
def restoring(saved: State, name: str, games: Games, stack: int) -> Iterator[None]:
    """Take over a saved state within this context; its shapes are checked first.

    Args:
        saved: result of `snapshot`.
        name: of the actor.
        games: that go on.
        stack: frames of an observation.

    Raises:
        GeladaError: if the state is not one of such an actor.
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
        raise GeladaError(f"{name} cannot go on from its saved state: {what}") from None
