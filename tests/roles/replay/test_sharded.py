"""Several stores: shares, keys that find their way back, waiting for whoever is ready."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from colobus.core.errors import Deadline
from colobus.core.types import Batch, Trajectory, Version
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.in_rounds import BufferInRounds, SaveWithCheckpoints, folder_of
from colobus.roles.replay.joined import SHARD_BITS, ShardedReplay
from colobus.roles.replay.sampling import Prioritized, RateLimiter
from colobus.roles.update_schedule import UpdateSchedule
from colobus.runtime.threads import Threads
from helpers.launching import assert_closed, on_a_thread
from helpers.streams import BY_ERROR, Player, make_store


def several(sampling: Prioritized | None, *steps: int) -> list[ReplayBuffer]:
    """Return stores with so many steps each."""
    stores = []
    for index, length in enumerate(steps):
        store = make_store(100, windows=1, length=1, sampling=sampling, index=index)
        if length:
            store.add(Player(index).play(length))
        stores.append(store)
    return stores


def numbers(keys: torch.Tensor) -> list[int]:
    found: list[int] = (keys >> SHARD_BITS).tolist()
    return found


def test_a_replay_is_sampled_by_its_share_of_the_priorities() -> None:
    stores = several(Prioritized(alpha=1.0), 60, 0, 20)
    client = ShardedReplay(stores, seed=1, client=0, patience=0)
    keys = torch.arange(20) + (2 << SHARD_BITS)
    client.update(keys, torch.zeros(20, dtype=torch.int64), torch.full((20,), 12.0))
    assert [s.offer().mass for s in stores] == pytest.approx([60.0, 0.0, 240.0], rel=1e-6)
    counts = Counter(numbers(client.sample().keys)[0] for _ in range(4000))
    assert counts.keys() == {0, 2}
    assert counts[2] / 4000 == pytest.approx(0.8, abs=4 * np.sqrt(0.8 * 0.2 / 4000))


def test_a_view_that_ends_leaves_the_replays_open() -> None:
    """A learner that begins again closes all roles of its process, but the stores are elsewhere."""
    stores = several(None, 20, 20)
    view = ShardedReplay(stores, seed=1, client=0, patience=0)
    assert not Threads({"stores": view, "store": stores[0]}).stop()
    assert_closed(stores[0].sample)
    stores[1].sample()


def test_a_replay_whose_actors_are_gone_holds_nobody_up() -> None:
    """Its share is four fifths, and its limiter never lets anybody sample again."""
    limiter = [RateLimiter(1, 1.0, 40, 40, 4) for _ in range(2)]
    stores = [make_store(400, windows=4, length=1, limiter=one) for one in limiter]
    stores[0].add(Player(0).play(160))
    client, player = ShardedReplay(stores, seed=1, client=0, patience=0), Player(1)
    taken: Counter[int] = Counter()
    for _ in range(200):
        while True:
            try:
                stores[1].wait_for_room()
                break
            except Deadline:
                taken[numbers(client.sample().keys)[0]] += 4
        stores[1].add(player.play(40))
    assert limiter[0].sampled == taken[0]
    assert 160 <= taken[0] <= 160 + 40  # all that it allows
    assert limiter[1].sampled == taken[1]
    assert abs(limiter[1].surplus) <= 40
    while stores[1].offer().ready:
        stores[1].sample()
    with pytest.raises(Deadline, match="no batch for 0 s from any of 2 replay buffers"):
        client.sample()


RHYTHM = UpdateSchedule(steps=32, minimum=60, ratio=0.75, windows=8)  # 2 actors x 2 games x 8 steps


def make(*sent: Trajectory, patience: float = 0.0) -> BufferInRounds:
    limiter = RateLimiter(RHYTHM.minimum)
    store = make_store(200, streams=4, sampling=BY_ERROR, limiter=limiter, seed=5)
    replay = BufferInRounds(store, range(2), RHYTHM, patience)
    for trajectory in sent:
        replay.add(trajectory)
    return replay


def play(rounds: int) -> list[Trajectory]:
    players = [Player(actor, games=2) for actor in range(2)]
    return [player.play(8) for _ in range(rounds) for player in players]


def learn(replay: BufferInRounds, count: int) -> list[Batch]:
    batches = []
    for _ in range(count):
        batches.append(replay.sample())
        errors = batches[-1].rewards.abs().amax(dim=1)
        replay.update(batches[-1].keys, batches[-1].generations, errors)
    return batches


def assert_same(mine: list[Batch], theirs: list[Batch]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert not [n for n, a, b in zip(one._fields, one, other, strict=True) if not a.equal(b)]


def test_batches_do_not_depend_on_when_trajectories_arrive() -> None:
    sent = play(12)
    early, late = make(*random.Random(1).sample(sent, len(sent))), make()
    count = RHYTHM.versions(12)
    batches = learn(early, count)
    with pytest.raises(Deadline, match="it needs 13 rounds of all actors, 12 are complete"):
        early.sample()
    seen: list[Batch] = []
    for first, second in zip(sent[::2], sent[1::2], strict=True):
        late.add(second)
        late.wait_for_room()
        if len(seen) < count:
            with pytest.raises(Deadline):
                late.sample()
        late.add(first)
        seen += learn(late, RHYTHM.versions(first.round + 1) - len(seen))
    assert_same(seen, batches)
    assert sum(int(batch.fresh) for batch in batches) <= 12 * 32
    assert early.depth == late.depth


@pytest.mark.parametrize("at", [1, 6, 17])
def test_a_saved_buffer_goes_on_as_if_it_had_never_been_away(tmp_path: Path, at: int) -> None:
    sent, again = play(12), make()
    first = [trajectory for trajectory in sent if trajectory.round < RHYTHM.rounds(at)]
    whole, broken = make(*sent), make(*first)
    batches = learn(whole, RHYTHM.versions(12))
    assert_same(learn(broken, at), batches[:at])
    SaveWithCheckpoints(broken, tmp_path, tmp_path)(Version(0, at))
    again.load(folder_of(tmp_path, Version(9, at)))
    for trajectory in sent[len(first) :]:
        again.add(trajectory)
    assert_same(learn(again, len(batches) - at), batches[at:])


def test_buffers_of_the_newest_two_checkpoints_stay(tmp_path: Path) -> None:
    replay = make(*play(4))
    folder, checkpoints = tmp_path / "stores", tmp_path / "checkpoints"
    checkpoints.mkdir()
    save = SaveWithCheckpoints(replay, folder, checkpoints)
    for number in (30, 5, 6, 7, 8, 9):  # 30: of a run that was killed later than it was resumed
        save(Version(0, number))
        if number not in (7, 9):  # their checkpoints are not written yet
            (checkpoints / f"{number:08d}.json").touch()
    kept = sorted(int(path.name) for path in folder.iterdir())
    assert kept == [6, 7, 8, 9, 30]
    save(Version(0, 10))
    assert sorted(int(path.name) for path in folder.iterdir()) == [6, 7, 8, 9, 10, 30]


def test_a_learner_that_waits_is_woken_by_a_round_and_by_the_end() -> None:
    replay = make(patience=60.0)
    sampled = on_a_thread(replay.sample)
    for trajectory in play(3):
        replay.add(trajectory)
    sampled.result(60)
    sampling = on_a_thread(lambda: [replay.sample() for _ in range(1000)])
    replay.close()
    assert_closed(partial(sampling.result, 60))
    assert_closed(replay.sample, replay.wait_for_room, lambda: replay.add(play(1)[0]))
