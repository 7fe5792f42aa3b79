"""A checkpoint is complete or it does not count; which are the newest, and which are deleted."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from colobus.core import checkpoint
from colobus.core.arrays import join, split
from colobus.core.checkpoint import Checkpoint, forget_old, newest_checkpoint, write_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.types import State, Version

RUN = {"id": "ours", "game": "pong"}


def write(folder: Path, number: int, incarnation: int = 0, slices: int = 3, **changes: Any) -> Path:
    """Write a checkpoint of so many of three slices of a network with 30 parameters."""
    tensors = {f"parameter/layer.{i}": torch.full((10,), float(number)) for i in range(slices)}
    one = Checkpoint(Version(incarnation, number), 0, tensors, {"parameters": 30}, RUN)
    return write_checkpoint(folder, one._replace(**changes))


def test_one_with_a_slice_missing_is_passed_over_with_a_line(tmp_path: Path) -> None:
    write(tmp_path, 2, slices=2)
    with pytest.raises(ColobusError, match=r"20 of 30 parameters$"):  # there is none before it
        newest_checkpoint(tmp_path)
    write(tmp_path, 1)
    path, found, passed_over = newest_checkpoint(tmp_path)
    assert (found.version, path.name) == (Version(0, 1), "00000001.safetensors")
    assert passed_over == [
        "checkpoint 00000002.safetensors is incomplete: 20 of 30 parameters; using the one before"
    ]


def test_one_that_says_nothing_of_its_parameters_is_taken_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, 1, counters={})
    assert newest_checkpoint(tmp_path)[1].version == Version(0, 1)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(data)

    monkeypatch.setattr("colobus.core.checkpoint.write_whole", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, 1)
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
    names = ("frames", "nothing", "inner/deep/ages", "tensor")
    assert set(tensors) == {f"play/actor-0/{name}" for name in names}
    again = join(load(save(tensors)), json.loads(json.dumps(values)), "play/actor-0")
    np.testing.assert_equal(again, state | {"tensor": np.array([1.5, -2.0], dtype=np.float32)})
    assert again["frames"].dtype == np.uint8
    assert join(tensors, {}, "play/actor-1") == {}


def test_a_slash_in_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="key 'a/b' of a state: has a slash"):
        split({"inner": {"a/b": 1}}, "x")


def stems(folder: Path) -> list[str]:
    return sorted({path.name.split(".")[0].lstrip("0") for path in folder.iterdir()})


def lose_json(path: Path) -> None:
    path.with_suffix(".json").unlink()


def damage_tensors(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def damage_json(path: Path) -> None:
    text = path.with_suffix(".json").read_text()
    path.with_suffix(".json").write_text(text.replace('"steps": 0', '"steps": 1'))


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lose_json, "is incomplete: no 00000099.json"),
    (Path.unlink, "is incomplete: no 00000099.safetensors"),
    (damage_tensors, "is truncated or damaged"),
    (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is truncated or damaged"),
    (damage_json, "is damaged"),
    (lambda path: path.with_suffix(".json").write_text('{"ep'), "its JSON cannot be read"),
]


def test_the_newest_is_of_the_highest_epoch_and_version(tmp_path: Path) -> None:
    write(tmp_path, 100, incarnation=0)
    write(tmp_path, 90, incarnation=1)
    write(tmp_path, 95, incarnation=1)
    assert [path.stem[-3:] for path in checkpoint.by_age(tmp_path)] == ["095", "090", "100"]
    assert newest_checkpoint(tmp_path)[1].version == Version(1, 95)


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
@pytest.mark.parametrize("keep", [1, 2, 5])
def test_incomplete_ones_never_take_the_place_of_complete_ones(
    tmp_path: Path, damage: Callable[[Path], object], said: str, keep: int
) -> None:
    """As after a kill between the two renames, or five damaged newer files."""
    good = write(tmp_path, 90)
    for number in range(95, 100):
        damage(write(tmp_path, number))
    path, _, passed_over = newest_checkpoint(tmp_path)
    assert path == good
    assert said in passed_over[0]
    just = write(tmp_path, 93, incarnation=1)  # a resume of 90 goes on
    forget_old(tmp_path, keep, just, {just.name}, RUN)
    assert stems(tmp_path) == (["93"] if keep == 1 else ["90", "93"])
    assert newest_checkpoint(tmp_path)[1].version == Version(1, 93)


def test_the_first_one_near_each_quarter_and_what_is_asked_for_stay(tmp_path: Path) -> None:
    sound: set[str] = set()
    for number in range(1, 101):
        just = write(tmp_path, number, steps=100 * number)
        sound.add(just.name)
        forget_old(tmp_path, 2, just, sound, RUN, also=[33])
        kept = [int(stem) for stem in stems(tmp_path)]
        assert {1, number, max(number - 1, 1)} <= set(kept)
        assert len(kept) <= 8 + 2 + 1
        for quarter in (0.25, 0.5, 0.75):
            assert min(abs(other - quarter * number) for other in kept) <= max(number / 8, 1)
    # parts of 2048 steps, as an eighth of 10,000 is 1250; 99 and 100 are the newest
    assert sorted(kept) == [1, 21, 33, 41, 62, 82, 99, 100]


def test_nothing_is_deleted_if_all_are_kept(tmp_path: Path) -> None:
    paths = [write(tmp_path, number) for number in range(4)]
    lose_json(paths[1])
    forget_old(tmp_path, 0, paths[0], set(), RUN)
    assert len(stems(tmp_path)) == 4


def test_the_one_just_written_stays_even_if_others_look_newer(tmp_path: Path) -> None:
    write(tmp_path, 500, incarnation=9)
    just = write(tmp_path, 3)
    forget_old(tmp_path, 1, just, set(), RUN)
    assert "3" in stems(tmp_path)


def test_those_of_other_runs_and_later_formats_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 1, run=RUN | {"id": "theirs"})
    later = write(tmp_path, 2).with_suffix(".json")
    later.write_text(later.read_text().replace('"format": 2', '"format": 3'))
    ours = [write(tmp_path, number) for number in (3, 4, 5)]
    forget_old(tmp_path, 1, ours[-1], set(), RUN)
    assert stems(tmp_path) == ["1", "2", "5"]


def test_complete_ones_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound: set[str] = set()
    for number in range(1, 5):
        just = write(tmp_path, number)
        sound.add(just.name)
        monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("read"))
        forget_old(tmp_path, 2, just, sound, RUN)
    assert stems(tmp_path) == ["3", "4"]
    assert len(sound) == 2


def test_a_kill_leaves_a_complete_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call to the system of writing one and forgetting the others fails once, for good."""

    class Killed(BaseException):
        pass

    names = ["fsync", "replace", "unlink", "rename"]
    for last in itertools.count():
        folder = tmp_path / str(last)
        folder.mkdir()
        sound = {write(folder, 1).name}
        left = iter(range(last))

        def counted(real: Callable[..., Any], left: Iterator[int] = left) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                if next(left, None) is None:
                    raise Killed
                return real(*args, **more)

            return call

        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                just = write(folder, 2)
                forget_old(folder, 1, just, sound, RUN)
                break
            except Killed:
                pass
        assert newest_checkpoint(folder)[1].version.number in (1, 2)
    assert last > 5
    assert stems(folder) == ["2"]


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("kind", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_what_the_disk_does_not_give_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, kind: int
) -> None:
    paths = [write(tmp_path, number) for number in range(1, 5)]
    unread = paths[1].with_suffix(suffix)
    real = os.open

    def opened(path: Any, *rest: Any) -> int:
        if Path(path) == unread:
            raise OSError(kind, os.strerror(kind), str(path))
        return real(path, *rest)

    monkeypatch.setattr(os, "open", opened)
    forget_old(tmp_path, 2, paths[3], set(), RUN)
    assert stems(tmp_path) == ["2", "3", "4"]
