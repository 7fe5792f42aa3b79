"""Arrays of numpy by their numbers, and saved states: nested dictionaries, as files hold them.

A process that only plays games (`colobus.envs.replayed_process`) begins sooner without torch, so
nothing of it is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Frames = NDArray[Any]
"""Frames of games: uint8 […, H, W], or uint8 or float32 […, 1, D] of vectors."""


def apart(frames: Any, masks: int) -> tuple[Any, Any]:
    """Return what is seen of frames, […, H, W], and bool[…, A] which actions are allowed.

    The mask of A actions stands at the end of a frame: after a vector, [1, D + A], or in whole rows
    below a picture; 1: allowed. So it goes wherever the frame goes, such as into a replay buffer.

    Args:
        frames: arrays or tensors […, H, W], with masks or (0 masks) without.
        masks: actions of a mask (A); 0: all are always allowed.
    """
    height, width = frames.shape[-2:]
    if height == 1 or not masks:
        return frames[..., : width - masks], frames[..., 0, width - masks :] > 0
    rows = height - -(-masks // width)
    below = frames[..., rows:, :].reshape(*frames.shape[:-2], -1)
    return frames[..., :rows, :], below[..., :masks] > 0


def joined(frames: Frames, allowed: Bools) -> Frames:
    """Return frames [B, H, W] with masks bool[B, A] at their ends, as `apart` takes them apart."""
    count, height, width = frames.shape
    rows = 1 if height == 1 else -(-allowed.shape[1] // width)
    mask = np.zeros((count, rows * (allowed.shape[1] if height == 1 else width)), frames.dtype)
    mask[:, : allowed.shape[1]] = allowed
    return np.concatenate([frames, mask.reshape(count, rows, -1)], axis=2 if height == 1 else 1)


State = dict[str, Any]
"""The saved state of an object: arrays or tensors and JSON values by name, which may be nested."""


def split(state: State, prefix: str) -> tuple[dict[str, np.ndarray[Any, Any]], State]:
    """Return the arrays of a state, contiguous, named ``prefix/…/name``, and everything else.

    Raises:
        ValueError: if a key has a slash.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    values: State = {}
    for key, value in state.items():
        if "/" in key:
            raise ValueError(f"key {key!r} of a state: has a slash, which separates keys in a file")
        name = f"{prefix}/{key}"
        if isinstance(value, dict):
            inner, values[key] = split(value, name)
            arrays |= inner
        elif isinstance(value, np.ndarray) or hasattr(value, "numpy"):  # or a tensor
            arrays[name] = np.asarray(value, order="C")
        else:
            values[key] = value
    return arrays, values


def join(arrays: Mapping[str, Any], values: State, prefix: str) -> State:
    """Return the state of which `split` returned these.

    Args:
        arrays: tensors, or arrays of numpy; in the state they are of numpy and share the memory.
        values: everything else.
        prefix: of the names that are the state's.
    """
    state: State = deepcopy(values)
    for name, array in arrays.items():
        if not name.startswith(prefix + "/"):
            continue
        *path, last = name.removeprefix(prefix + "/").split("/")
        place = state
        for key in path:
            place = place.setdefault(key, {})
        place[last] = array if isinstance(array, np.ndarray) else array.numpy()
    return state
