"""A saved replay buffer goes on as if nothing had been; a save is whole or not at all."""

from __future__ import annotations

import os
import resource
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file

from colobus.core.errors import CannotWrite, ColobusError
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.sampling import Prioritized, RateLimiter
from helpers.streams import BY_ERROR, LENGTH, STACK, Player, make_store


def store_of(sampling: Prioritized | None, seed: int = 1, **others: str) -> ReplayBuffer:
    limiter = RateLimiter(minimum=20, ratio=0.5, tolerance=40, trajectory=40, batch=8)
    return make_store(120, 8, LENGTH, 4, sampling, limiter, seed=seed, **others)


def players(frame_type: str = "uint8") -> list[Player]:
    return [Player(index, games=2, frame_type=frame_type) for index in range(2)]


def go_on(actors: list[Player], rounds: int, *stores: ReplayBuffer) -> list[list[torch.Tensor]]:
    """Do the same with all stores; return all that was sampled, of each store."""
    sampled: list[list[torch.Tensor]] = [[] for _ in stores]
    for number in range(rounds):
        if number % 5 == 4:
            actors[0].restart()
        trajectory = actors[number % 2].play(7)
        for store, out in zip(stores, sampled, strict=True):
            store.add(trajectory)
            if store.offer().ready:
                batch = store.sample()
                store.update(batch.keys, batch.generations, batch.rewards.abs().sum(dim=1))
                out += batch
    return sampled


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("frames", ["uint8", "float32"])
@pytest.mark.parametrize("rounds", [0, 3, 25])
@pytest.mark.parametrize("sampling", [None, BY_ERROR])
def test_after_loading_all_goes_on_alike(
    tmp_path: Path, sampling: Prioritized | None, rounds: int, frames: str
) -> None:
    first, actors = store_of(sampling, frame_type=frames), players(frame_type=frames)
    go_on(actors, rounds, first)
    first.add(actors[0].play(3))  # fresh steps, and a write head in the middle of a ring
    assert first.save(tmp_path) == tmp_path / "store.safetensors"
    second = store_of(sampling, seed=99, frame_type=frames)
    go_on(players(frame_type=frames), 2, second)  # what it held is forgotten
    second.load(tmp_path)
    assert first.offer() == second.offer()
    assert first.depth == second.depth
    one, two = go_on(actors, 30, first, second)
    assert len(one) == len(two) > 60
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert first.save(tmp_path / "a").read_bytes() == second.save(tmp_path / "b").read_bytes()


def test_only_what_was_written_is_saved_and_any_reader_can_open_it(tmp_path: Path) -> None:
    store, player = store_of(BY_ERROR), Player()
    trajectory = player.play(7)
    store.add(trajectory)
    arrays = load_file(store.save(tmp_path))
    fields = ["actions", "ages", "frames", "generations", "log_probs", "mask", "rewards"]
    fields += ["terminated", "truncated", "versions", "weights"]
    assert sorted(arrays) == [f"0/{name}" for name in fields]
    assert arrays["0/actions"].tolist()[:7] == trajectory.actions[0].tolist()
    assert arrays["0/frames"].tolist() == trajectory.frames[0].reshape(7 + STACK, -1).tolist()
    assert arrays["0/weights"].tolist() == [1.0] * 4 + [0.0] * 6
    assert arrays["0/generations"].tolist() == [0] * 7 + [-1] * 3


def test_a_full_disk_is_one_line_and_the_older_save_stays(tmp_path: Path) -> None:
    store, actors = store_of(BY_ERROR), players()
    go_on(actors, 6, store)
    before = store.save(tmp_path).read_bytes()
    go_on(actors, 6, store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 100, len(before) // 2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))  # no file grows beyond that
        try:
            with pytest.raises(CannotWrite) as error:
                store.save(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert str(error.value) == (
            f"the replay buffer cannot be saved to {tmp_path}: File too large; it takes 0.0 GiB; "
            "what was saved before is kept"
        )
        assert files(tmp_path) == ["store.safetensors"]
        assert (tmp_path / "store.safetensors").read_bytes() == before
    store_of(BY_ERROR).load(tmp_path)


def test_what_is_renamed_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(None)
    store.add(Player().play(7))
    events = []
    real = os.fsync

    def fsync(number: int) -> None:
        events.append((os.readlink(f"/proc/self/fd/{number}"), files(tmp_path)))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    store.save(tmp_path)
    temporary = events[0][1][0]
    assert fnmatch(temporary, ".store.safetensors.*.tmp")
    assert events == [
        (str(tmp_path / temporary), [temporary]),
        (str(tmp_path), ["store.safetensors"]),
    ]


def test_a_damaged_file_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    store, actors = store_of(BY_ERROR), players()
    go_on(actors, 6, store)
    path = store.save(tmp_path)
    good = path.read_bytes()
    header = int.from_bytes(good[:8], "little")
    other = store_of(BY_ERROR)
    other.add(Player().play(9))
    offer = other.offer()
    middle = (header + len(good)) // 2
    spots = (3, 7, 20, header // 2, header + 7, header + 8, middle, len(good) - 1)
    damaged = [good[:spot] + bytes([good[spot] ^ 1]) + good[spot + 1 :] for spot in spots]
    for data in (*damaged, *(good[:length] for length in (0, 7, header, len(good) - 1))):
        path.write_bytes(data)
        with pytest.raises(ColobusError, match=r"cannot be read|damaged"):
            other.load(tmp_path)
    with pytest.raises(ColobusError, match=f"no saved replay buffer in {tmp_path}/elsewhere"):
        other.load(tmp_path / "elsewhere")
    assert other.offer() == offer
    path.write_bytes(good)
    other.load(tmp_path)
    assert other.offer() == store.offer()


def test_a_replay_of_other_settings_is_refused_by_both_numbers(tmp_path: Path) -> None:
    store_of(None).save(tmp_path)
    with pytest.raises(ColobusError, match="has steps per game 30, this run has 50; resume with"):
        make_store(200, streams=4).load(tmp_path)
    with pytest.raises(ColobusError, match="has window 4, this run has 5; resume with"):
        make_store(120, streams=4, length=5).load(tmp_path)
    with pytest.raises(ColobusError, match=r"has alpha None, this run has 0\.6"):
        make_store(120, streams=4, sampling=Prioritized()).load(tmp_path)
