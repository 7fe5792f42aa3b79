"""A checkpoint is complete or it does not count."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from colobus.core.arrays import join, split
from colobus.core.checkpoint import Checkpoint, newest_checkpoint, read_checkpoint, write_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.types import State, Version


def checkpoint(number: int, slices: int) -> Checkpoint:
    """Return a checkpoint of so many of three slices of a network with 30 parameters."""
    tensors = {f"parameter/layer.{i}": torch.full((10,), float(i)) for i in range(slices)}
    return Checkpoint(Version(0, number), 100 * number, tensors, {"parameters": 30})


def test_one_with_a_slice_missing_is_passed_over_with_a_line(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, checkpoint(1, slices=3))
    write_checkpoint(tmp_path, checkpoint(2, slices=2))
    path, found, passed_over = newest_checkpoint(tmp_path)
    assert found.version == Version(0, 1)
    assert path.name == "00000001.safetensors"
    assert passed_over == [
        "checkpoint 00000002.safetensors is incomplete: 20 of 30 parameters; using the one before"
    ]


def test_one_that_says_nothing_of_its_parameters_is_taken_as_it_is(tmp_path: Path) -> None:
    old = checkpoint(1, slices=3)._replace(counters={})
    assert read_checkpoint(write_checkpoint(tmp_path, old)).version == Version(0, 1)


def test_without_a_complete_one_the_reason_is_told(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, checkpoint(1, slices=1))
    with pytest.raises(ColobusError, match="10 of 30 parameters"):
        newest_checkpoint(tmp_path)


def test_one_whose_json_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(data)

    monkeypatch.setattr("colobus.core.checkpoint.write_whole", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(tmp_path, checkpoint(1, slices=3))
    assert list(tmp_path.iterdir()) == []


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
