"""Several stores: shares, keys that find their way back, waiting for whoever is ready."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from gelada.core.errors import Closed, Deadline
from gelada.roles.replay.buffer import ReplayBuffer
from gelada.roles.replay.joined import SHARD_BITS, ShardedReplay
from gelada.roles.replay.rate_limiter import SamplesPerInsert
from gelada.roles.replay.sampling import Prioritized, Sampling, Uniform
from gelada.runtime.threads import Threads
from helpers.streams import LENGTH, Player, make_store


def several(sampling: Sampling, steps: Sequence[int]) -> list[ReplayBuffer]:
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


def test_a_replay_is_sampled_by_its_share_of_the_windows() -> None:
    client = ShardedReplay(several(Uniform(), [60, 0, 20]), seed=1, client=0, patience=0)
    counts = Counter(numbers(client.sample().keys)[0] for _ in range(4000))
    assert counts.keys() == {0, 2}
    assert counts[0] / 4000 == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 4000))


def test_a_replay_is_sampled_by_its_share_of_the_priorities() -> None:
    stores = several(Prioritized(alpha=1.0), [60, 20])
    client = ShardedReplay(stores, seed=1, client=0, patience=0)
    keys = torch.arange(20) + (1 << SHARD_BITS)
    client.update(keys, torch.zeros(20, dtype=torch.int64), torch.full((20,), 12.0))
    assert [s.offer().mass for s in stores] == pytest.approx([60.0, 240.0], rel=1e-6)
    counts = Counter(numbers(client.sample().keys)[0] for _ in range(4000))
    assert counts[1] / 4000 == pytest.approx(0.8, abs=4 * np.sqrt(0.8 * 0.2 / 4000))


def test_priorities_return_to_the_replay_they_came_from() -> None:
    stores = several(Prioritized(alpha=1.0), [10, 10, 10])
    client = ShardedReplay(stores, seed=1, client=0, patience=0)
    seen: dict[int, int] = {}
    for _ in range(60):
        batch = client.sample()
        (number,) = numbers(batch.keys)
        client.update(batch.keys, batch.generations, torch.tensor([1.0 + number]))
        seen[int(batch.keys)] = number
    for number, store in enumerate(stores):
        changed = sum(n == number for n in seen.values())
        assert store.offer().mass == pytest.approx(10 + number * changed, rel=1e-4)
    assert len({key & (2**SHARD_BITS - 1) for key in seen}) < len(seen)  # the same places


def test_a_view_that_ends_leaves_the_replays_open() -> None:
    """A learner that begins again closes all roles of its process, but the stores are elsewhere."""
    stores = several(Uniform(), [20, 20])
    view = ShardedReplay(stores, seed=1, client=0, patience=0)
    assert not Threads({"stores": view, "store": stores[0]}).stop()
    with pytest.raises(Closed):
        stores[0].sample()
    stores[1].sample()


def test_a_replay_whose_actors_are_gone_holds_nobody_up() -> None:
    """Its share is four fifths, and its limiter never lets anybody sample again."""
    limiter = [SamplesPerInsert(1.0, 1, 40, 40, 4) for _ in range(2)]
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


def test_clients_draw_apart_and_the_same_again() -> None:
    drawn = []
    for client in (0, 0, 1):
        stores = several(Uniform(), [50, 50])
        batches = [ShardedReplay(stores, seed=1, client=client, patience=0) for _ in range(1)]
        drawn.append([numbers(batches[0].sample().keys)[0] for _ in range(40)])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [Uniform(), Prioritized()])
def test_two_actors_and_two_learners_at_two_replays_keep_the_ratio(sampling: Sampling) -> None:
    """Threads that wait for one another: nobody is left waiting, and each step counts once."""
    ratio, trajectory, batch, rounds = 4.0, 40, 16, 150
    limiters = [SamplesPerInsert(ratio, 100, 160, trajectory, batch) for _ in range(2)]
    stores = [
        make_store(500, batch, sampling=sampling, limiter=one, patience=60, index=i)
        for i, one in enumerate(limiters)
    ]
    fresh: list[int] = []
    errors: list[BaseException] = []

    def act(number: int) -> None:
        own, player = stores[number], Player(number)
        for _ in range(rounds):
            own.wait_for_room()
            own.add(player.play(trajectory))

    def learn(number: int) -> None:
        client = ShardedReplay(stores, 1, 10 + number, patience=60)
        while True:
            drawn = client.sample()
            fresh.append(int(drawn.fresh))
            client.update(drawn.keys, drawn.generations, drawn.rewards.abs().sum(dim=1))
            assert drawn.frames.shape == (batch, LENGTH + 3, 2, 3)

    def guarded(role: Callable[[int], None], number: int) -> None:
        try:
            role(number)
        except Closed:
            pass
        except BaseException as error:
            errors.append(error)

    actors = [threading.Thread(target=guarded, args=(act, n)) for n in range(2)]
    learners = [threading.Thread(target=guarded, args=(learn, n)) for n in range(2)]
    for thread in (*actors, *learners):
        thread.start()
    for thread in actors:
        thread.join(120)
    for store in stores:
        store.close()
    for thread in learners:
        thread.join(60)
    assert errors == []
    for limiter in limiters:
        assert limiter.added == rounds * trajectory
        assert abs(limiter.surplus) <= 160  # 0.7 % of what was asked for
    assert sum(fresh) <= 2 * rounds * trajectory
    assert sum(fresh) >= 2 * rounds * trajectory - 2 * 2 * trajectory
