"""States are taken apart into tensors and JSON values, and put together again."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from gelada.core.nested import join, split
from gelada.core.types import State


def test_a_state_comes_back_from_a_file() -> None:
    state: State = {
        "round": 3,
        "large": 2**100,
        "names": ["a", "b"],
        "frames": np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, 1:],
        "nothing": np.zeros((0, 2)),
        "inner": {"deep": {"ages": np.array([5, 6])}, "none": None},
        "tensor": torch.tensor([1.5, -2.0]),
        "empty": {},
    }
    tensors, values = split(state, "play/actor-0")
    assert set(tensors) == {
        f"play/actor-0/{name}" for name in ("frames", "nothing", "inner/deep/ages", "tensor")
    }
    again = join(load(save(tensors)), json.loads(json.dumps(values)), "play/actor-0")
    np.testing.assert_equal(again, state | {"tensor": np.array([1.5, -2.0], dtype=np.float32)})
    assert again["frames"].dtype == np.uint8
    assert join(tensors, {}, "play/actor-1") == {}


def test_a_slash_in_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="key 'a/b' of a state: has a slash"):
        split({"inner": {"a/b": 1}}, "x")
