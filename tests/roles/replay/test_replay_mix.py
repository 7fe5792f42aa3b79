"""Old windows in batches: against a plain list, by frequency, and as a queue hands them out."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colobus.core.errors import Deadline, Lost
from colobus.core.types import PER_GAME, Batch, Trajectory
from colobus.roles.replay.joined import JoinedQueues
from colobus.roles.replay.queue import Fifo, ReplayMix, Rounds, TrajectoryQueue, with_own_memory
from conftest import random_trajectory
from helpers.launching import assert_closed
from helpers.streams import windows

SEEDS = (3, 0, 0)


def numbers(trajectories: list[Trajectory]) -> list[int]:
    return [int(row) for trajectory in trajectories for row in trajectory.actions[:, 0]]


@given(
    batch=st.integers(1, 6),
    more=st.integers(1, 10),
    proportion=st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.75, 3.0]),
    sizes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), max_size=12),
)
def test_as_a_list(batch: int, more: int, proportion: float, sizes: list[list[int]]) -> None:
    mix = ReplayMix(batch + more, proportion, batch, SEEDS)
    kept: list[int] = []
    played = 0
    for games in sizes:
        fresh = []
        for count in games:
            fresh.append(windows(played, count))
            played += count
        old = mix.take(fresh)
        count = sum(games)
        if len(kept) > batch:
            assert int(proportion) * count <= len(old) <= -int(-proportion // 1) * count
        else:
            assert old == []
        assert set(numbers(old)) <= set(kept)  # of earlier batches, and among the newest
        assert all(len(trajectory.actions) == 1 for trajectory in old)
        kept = (kept + numbers(fresh))[-(batch + more) :]


@pytest.mark.slow
@pytest.mark.parametrize("proportion", [0.25, 0.5, 1.0, 2.3])
def test_the_proportion_and_the_uniform_draw_by_frequency(proportion: float) -> None:
    mix, games, kept = ReplayMix(160, proportion, 64, SEEDS), 64, 160
    old, ages = 0, Counter[int]()
    for batch in range(1503):
        drawn = numbers(mix.take([windows(batch * games, games)]))
        if batch < 3:  # the slots fill, and begin to be drawn from when they hold two batches
            continue
        old += len(drawn)
        ages.update(batch * games - 1 - number for number in drawn)
    fresh = 1500 * games
    assert old / fresh == pytest.approx(proportion, rel=0.01)
    assert set(ages) == set(range(kept))
    expected = old / kept
    chi_square = sum((ages[age] - expected) ** 2 / expected for age in range(kept))
    assert chi_square < 230  # 159 degrees of freedom; above this 1 in 5,000


def test_windows_of_the_agents_of_a_game_stay_together() -> None:
    mix, kept, drawn = ReplayMix(12, 1.5, 4, SEEDS, agents=2), list[int](), 0
    for batch in range(400):
        fresh = [windows(8 * batch, 2), windows(8 * batch + 2, 6)]  # four games
        for old in mix.take(fresh):
            first, second = numbers([old])
            assert first % 2 == 0
            assert second == first + 1
            assert first in kept
            drawn += 1
        kept = (kept + numbers(fresh))[-2 * 12 :]
    assert drawn / (4 * 398) == pytest.approx(1.5, rel=0.05)  # the first two batches have none


def draws(*seeds: int) -> list[int]:
    mix = ReplayMix(20, 0.5, 4, seeds)
    return [n for batch in range(9) for n in numbers(mix.take([windows(4 * batch, 4)]))]


def test_the_seeds_decide() -> None:
    assert draws(1, 2) == draws(1, 2)
    assert len({tuple(draws(*seeds)) for seeds in [(1, 2), (1, 3), (2, 2)]}) == 3


def test_what_is_kept_is_no_view_of_shared_memory() -> None:
    own = random_trajectory(np.random.default_rng(1), games=2)
    shared = own._replace(frames=np.frombuffer(own.frames.tobytes(), np.uint8))
    shared = shared._replace(frames=shared.frames.reshape(own.frames.shape))
    kept = with_own_memory(shared)
    assert np.array_equal(kept.frames, own.frames)
    assert not np.shares_memory(kept.frames, shared.frames)
    assert kept.ages is own.ages  # nothing is copied twice


def row(of: Trajectory | Batch, number: int) -> list[Any]:
    return [getattr(of, name)[number].tolist() for name in PER_GAME]


def test_a_batch_says_which_windows_are_old() -> None:
    rng = np.random.default_rng(2)
    played = [random_trajectory(rng, games=2, number=n) for n in range(6)]
    states = rng.normal(size=(6, 2, 5)).astype(np.float32)  # as of a recurrent network
    sent = [each._replace(state=state) for each, state in zip(played, states, strict=True)]
    queue = TrajectoryQueue(Fifo(2), 9, 0.0, replay_mix=ReplayMix(6, 1.5, 2, SEEDS))
    for trajectory in sent:
        queue.add(trajectory)
    batches = [queue.sample() for _ in sent]
    assert [int(batch.fresh) for batch in batches] == [sent[0].actions.size] * 6
    assert [len(batch.actions) > 2 for batch in batches] == [False, False, True, True, True, True]
    for number, batch in enumerate(batches):
        assert batch.replayed.tolist() == [False] * 2 + [True] * (len(batch.actions) - 2)
        for window in range(len(batch.actions)):
            source = sent[int(batch.versions[window])]
            assert (source.version.number < number) == bool(batch.replayed[window])
            assert row(batch, window) in [row(source, 0), row(source, 1)]  # they belong together
        steps = batch.independent_steps().view(len(batch.actions), -1)
        assert steps[~batch.replayed].all()
        assert not steps[batch.replayed].any()  # they do not say how far the policy has moved


def test_a_batch_is_the_parts_in_the_order_of_the_queues() -> None:
    rng = np.random.default_rng(1)
    sent = [random_trajectory(rng, actor=a, games=2) for a in range(6)]
    one = TrajectoryQueue(Rounds(6), 9, 0.0)
    several = [TrajectoryQueue(Rounds(2, first=first), 9, 0.0) for first in (0, 2, 4)]
    for trajectory in reversed(sent):
        one.add(trajectory)
        several[trajectory.actor // 2].add(trajectory)
    want, found = one.sample(), JoinedQueues(several, 0.0).sample()
    differ = [n for n, a, b in zip(Batch._fields, want, found, strict=True) if not a.equal(b)]
    assert differ == ["keys"]


def test_others_go_on_while_a_queue_is_lost_and_it_comes_back() -> None:
    here, there, anew = (TrajectoryQueue(Fifo(2), 9, 0.0) for _ in range(3))
    away, lost = Mock(), Lost("replay-1 is gone")
    away.sample.side_effect = there.sample
    joined = JoinedQueues([here, away], 5.0)

    def feed(number: int, *to: TrajectoryQueue) -> None:
        for queue in to:
            queue.add(random_trajectory(np.random.default_rng(number), games=2, number=number))

    def versions() -> Any:
        return joined.sample().versions.tolist()

    feed(1, here, there)
    assert versions() == [1, 1, 1, 1]
    away.sample.side_effect = lost
    feed(2, here)
    assert versions() == [2, 2]
    away.sample.side_effect = anew.sample
    feed(3, here)
    assert versions() == [3, 3]  # there, but its actors have sent nothing yet: nobody waits
    feed(4, here, anew)
    assert versions() == [4, 4, 4, 4]
    assert away.sample.call_args_list == [call(5.0), call(5.0), call(0.0), call(0.0)]
    feed(5, here)
    joined = JoinedQueues([here, away], 0.0)
    with pytest.raises(Deadline, match="no batch for 0 s: the actors send nothing"):
        joined.sample()  # now it is waited for again
    here.close()
    assert_closed(joined.sample)
    away.sample.side_effect = lost
    with pytest.raises(Deadline, match="no batch for 0 s: all queues are lost"):
        JoinedQueues([away, away], 0.0).sample()
