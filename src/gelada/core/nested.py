"""Saved states as files hold them: arrays by name, and JSON values for the rest.

A state is a nested dictionary (`gelada.core.types.State`) whose leaves are arrays, tensors and
JSON values. `split` takes the arrays out, `join` puts them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from gelada.core.types import State


def split(state: State, prefix: str) -> tuple[dict[str, torch.Tensor], State]:
    """Return the arrays of a state as tensors named ``prefix/…/name``, and everything else.

    Raises:
        ValueError: if a key has a slash.
    """
    tensors: dict[str, torch.Tensor] = {}
    values: State = {}
    for key, value in state.items():
        if "/" in key:
            raise ValueError(f"key {key!r} of a state: has a slash, which separates keys in a file")
        name = f"{prefix}/{key}"
        if isinstance(value, np.ndarray):
            tensors[name] = torch.from_numpy(np.ascontiguousarray(value))
        elif isinstance(value, torch.Tensor):
            tensors[name] = value.contiguous()
        elif isinstance(value, dict):
            inner, values[key] = split(value, name)
            tensors |= inner
        else:
            values[key] = value
    return tensors, values


def join(tensors: Mapping[str, torch.Tensor], values: State, prefix: str) -> State:
    """Return the state of which `split` returned these; all its arrays are of numpy."""
    state: State = _copy(values)
    for name, tensor in tensors.items():
        if not name.startswith(prefix + "/"):
            continue
        *path, last = name.removeprefix(prefix + "/").split("/")
        place = state
        for key in path:
            place = place.setdefault(key, {})
        place[last] = tensor.numpy()
    return state


def _copy(values: Any) -> Any:
    """Return a copy of nested dictionaries; what they hold is shared."""
    if isinstance(values, dict):
        return {key: _copy(value) for key, value in values.items()}
    return values
