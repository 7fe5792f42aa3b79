"""Which spaces of Gymnasium fit, and how their observations become frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from gelada.core.errors import GeladaError
from gelada.core.types import Frames


class Fit(NamedTuple):
    """How an environment fits."""

    actions: int
    first_action: int  # what Gymnasium calls action 0
    key: str  # of the array in a dictionary of observations; "" for an array
    shape: tuple[int, ...]  # of one observation
    planes: int  # channels of a picture; 1 for a vector
    frame_shape: tuple[int, int]  # H of all planes together, W
    vector: bool
    note: str  # one sentence to print, or ""

    def frames(self, observations: Any) -> Frames:
        """Return frames [B, H, W] of observations [B, …]: uint8, or float32 of a vector."""
        array = np.asarray(observations)
        if self.vector:
            kind = np.uint8 if array.dtype == np.uint8 else np.float32
            return array.astype(kind).reshape(len(array), *self.frame_shape)
        if len(self.shape) == 3 and self.shape[-1] == self.planes:
            array = np.moveaxis(array, -1, -3)
        return array.astype(np.uint8).reshape(len(array), *self.frame_shape)


def fit_of(name: str, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Fit:
    """Return how the spaces of one environment fit.

    Raises:
        GeladaError: if they do not; the message says why and what to do.
    """
    if not isinstance(actions, spaces.Discrete):
        kind = "continuous" if isinstance(actions, spaces.Box) else type(actions).__name__
        raise GeladaError(
            f"{name}: its actions are {kind} ({_short(actions)}); Gelada learns discrete actions "
            "only (a gymnasium.spaces.Discrete)"
        )
    key, box, note = "", observations, ""
    if isinstance(observations, spaces.Dict):
        key, box = _only_array(name, observations)
        left = [other for other in observations if other != key]
        note = f"{name}: the agent observes {key!r}" + (f", not {_list(left)}" if left else "")
    if not isinstance(box, spaces.Box):
        raise GeladaError(
            f"{name}: its observations are {_short(box)}; Gelada takes arrays (a gymnasium.spaces."
            "Box): apply gymnasium.wrappers.FlattenObservation in a function of your own"
        )
    planes, frame_shape = _planes(name, box)
    return Fit(
        int(actions.n),
        int(actions.start),
        key,
        box.shape,
        planes,
        frame_shape,
        len(box.shape) == 1,
        note,
    )


def _only_array(name: str, observations: spaces.Dict) -> tuple[str, spaces.Space[Any]]:
    """Return the only array in a dictionary of observations."""
    arrays = [key for key, space in observations.items() if isinstance(space, spaces.Box)]
    if len(arrays) != 1:
        what = f"{len(arrays)} arrays ({_list(arrays)})" if arrays else "no array"
        raise GeladaError(
            f"{name}: its observations are a dictionary with {what}; Gelada takes one array: apply "
            "gymnasium.wrappers.FlattenObservation in a function of your own"
        )
    return arrays[0], observations[arrays[0]]


def _planes(name: str, box: spaces.Box) -> tuple[int, tuple[int, int]]:
    """Return the planes of an observation, and the shape (H of all planes together, W)."""
    shape = box.shape
    if len(shape) == 1:
        return 1, (1, shape[0])
    if box.dtype != np.uint8 or len(shape) not in (2, 3):
        raise GeladaError(
            f"{name}: its observations are {box.dtype}{list(shape)}; Gelada takes pictures of "
            "uint8 or vectors: apply gymnasium.wrappers.FlattenObservation in a function of your "
            "own"
        )
    if len(shape) == 2:
        return 1, (shape[0], shape[1])
    if shape[-1] <= shape[0]:  # the channels are last
        return shape[2], (shape[2] * shape[0], shape[1])
    return shape[0], (shape[0] * shape[1], shape[2])


def _short(space: spaces.Space[Any]) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names))
