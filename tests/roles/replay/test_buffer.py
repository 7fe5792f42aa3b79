"""The store against a plain model; what it draws, and how often; who waits for whom."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from colobus.core.errors import ColobusError, Deadline
from colobus.core.types import Batch
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.frame_ring import BufferShape
from colobus.roles.replay.sampling import SMALL, Prioritized, RateLimiter, SumTree, bytes_needed
from helpers.launching import assert_closed
from helpers.streams import BY_ERROR, LENGTH, SHAPE, STACK, Model, Player, make_store

CAPACITY, STREAMS = 120, 4  # 2 actors x 2 games, 30 steps of each


class AgainstAModel(RuleBasedStateMachine):
    """Adds, losses, restarts, samples and updates in any order."""

    sampling: Prioritized | None = None
    frame_type = "uint8"

    def __init__(self) -> None:
        super().__init__()
        sampling, limiter, kind = self.sampling, RateLimiter(20), self.frame_type
        self.store = make_store(CAPACITY, 8, LENGTH, STREAMS, sampling, limiter, kind)
        self.model = Model(CAPACITY, STREAMS)
        self.players = [Player(i, games=2, frame_type=kind) for i in range(2)]
        self.broken = {0: True, 1: True}
        self.priorities: dict[tuple[int, int], float] = {}  # by (stream, position), to the alpha
        self.largest = 1.0
        self.added = self.fresh = 0
        self.sampled: list[Batch] = []
        self.random = np.random.default_rng(7)

    @rule(actor=st.integers(0, 1), length=st.integers(1, 30))
    def add(self, actor: int, length: int) -> None:
        trajectory = self.players[actor].play(length)
        self.store.add(trajectory)
        opened = self.model.add(trajectory, self.broken[actor])
        self.broken[actor] = False
        self.priorities |= dict.fromkeys(opened, self.largest**BY_ERROR.alpha)
        kept = self.model.beginnings()
        self.priorities = {k: v for k, v in self.priorities.items() if k in kept}
        self.added += 2 * length
        self.fresh += 2 * length

    @rule(actor=st.integers(0, 1))
    def restart(self, actor: int) -> None:
        self.players[actor].restart()
        self.broken[actor] = True

    @rule(actor=st.integers(0, 1))
    def lose(self, actor: int) -> None:
        self.players[actor].play(3)
        self.broken[actor] = True

    @rule()
    def sample(self) -> None:
        if self.added < 20 or not self.model.beginnings():
            with pytest.raises(Deadline, match="20 are the least"):
                self.store.sample()
            return
        batch = self.store.sample()
        begins = self.model.check(batch)
        assert batch.fresh == self.fresh
        self.fresh = 0
        weights = np.ones(len(begins))
        if isinstance(self.sampling, Prioritized):
            drawn = np.array([self.priorities[begin] for begin in begins])
            counts = batch.mask.any(dim=1).numpy()
            beta = 0.4 + 0.6 * min(self.added / 300, 1.0)
            weights = np.where(counts, drawn**-beta, 0.0)
            weights /= weights.max() if counts.any() else 1.0
        np.testing.assert_allclose(batch.weights, weights, rtol=1e-6)
        self.sampled.append(batch)

    @precondition(lambda self: self.sampled)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        """Report on a batch of any age, so that some of its windows are overwritten by now."""
        batch = data.draw(st.sampled_from(self.sampled))
        _, once = np.unique(batch.keys, return_index=True)
        errors = torch.from_numpy(self.random.random(len(once)) * 3)
        keys, generations = batch.keys[once], batch.generations[once]
        self.store.update(keys, generations, errors)
        for key, generation, error in zip(keys, generations, errors, strict=True):
            where = self.model.where(int(key), int(generation))
            if where in self.priorities:
                self.priorities[where] = (float(error) + SMALL) ** BY_ERROR.alpha
                self.largest = max(self.largest, float(error) + SMALL)

    @invariant()
    def counts_agree(self) -> None:
        assert self.store.depth == self.model.size
        windows = len(self.model.beginnings())
        prioritized = isinstance(self.sampling, Prioritized)
        mass = sum(self.priorities.values()) if prioritized else windows
        offer = self.store.offer()
        assert offer.mass == pytest.approx(mass, rel=1e-12)
        assert offer.ready == (self.added >= 20 and windows > 0)


class PrioritizedAgainstAModel(AgainstAModel):
    sampling = Prioritized(BY_ERROR.alpha, 0.4, 1.0, beta_steps=300)
    frame_type = "float32"


TestAgainstAModel: Any = AgainstAModel.TestCase
TestPrioritizedAgainstAModel: Any = PrioritizedAgainstAModel.TestCase
OFTEN = settings(max_examples=60, stateful_step_count=40)
TestAgainstAModel.settings = TestPrioritizedAgainstAModel.settings = OFTEN


def filled(sampling: Prioritized | None) -> tuple[ReplayBuffer, Model]:
    """Return a store of streams filled differently, one of them with seams and overwritten."""
    store = make_store(CAPACITY, windows=50, streams=STREAMS, sampling=sampling)
    model = Model(CAPACITY, STREAMS)
    players = [Player(0), Player(1, games=2), Player(2)]
    for actor, length, broken in [
        (0, 7, True), (1, 11, True), (2, 3, True),  # the last is too short for a window
        (0, 12, True), (0, 9, False), (0, 8, True), (0, 3, True),
    ]:  # fmt: skip
        if broken:
            players[actor].restart()
        trajectory = players[actor].play(length)
        store.add(trajectory)
        model.add(trajectory, broken)
    return store, model


def assert_drawn_as(counts: dict[Any, int], chances: dict[Any, float]) -> None:
    """Pearson's test: chi-square is below its mean plus four standard deviations."""
    total = sum(counts.values())
    assert counts.keys() <= chances.keys()
    assert min(chances.values()) * total > 20
    chi = sum((counts.get(k, 0) - total * p) ** 2 / (total * p) for k, p in chances.items())
    degrees = len(chances) - 1
    assert chi < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("alpha", [None, 0.0, 0.5, 1.0])
def test_windows_are_drawn_equally_often_or_by_their_priorities(alpha: float | None) -> None:
    store, model = filled(None if alpha is None else Prioritized(alpha=alpha, beta=1.0))
    allowed = sorted(model.beginnings())
    assert len(allowed) == 31
    errors = np.random.default_rng(3).uniform(0.2, 4.0, len(allowed))
    stream, position = np.array(allowed).T
    store.update(
        torch.from_numpy(stream * model.slots + position % model.slots),
        torch.from_numpy(position // model.slots),
        torch.from_numpy(errors),
    )
    powers = (errors + SMALL) ** (alpha or 0.0)
    counts: Counter[tuple[int, int]] = Counter()
    for _ in range(600):
        batch = store.sample()
        pairs = zip(batch.keys.tolist(), batch.generations.tolist(), strict=True)
        counts.update(model.where(*pair) for pair in pairs)
    assert_drawn_as(counts, dict(zip(allowed, powers / powers.sum(), strict=True)))


def test_each_part_of_the_sum_has_one_draw() -> None:
    store = make_store(60, windows=5, length=1, sampling=Prioritized(alpha=1.0))
    store.add(Player().play(20))
    errors = torch.ones(20, dtype=torch.float64)
    store.update(torch.arange(20), torch.zeros(20, dtype=torch.int64), errors)
    for _ in range(20):
        assert (store.sample().keys // 4).tolist() == [0, 1, 2, 3, 4]


def test_a_window_without_a_step_to_learn_from_shrinks_no_weights() -> None:
    """Its error is 0, so its own weight would be by far the largest."""
    shape = BufferShape(60, 1, 20, 2, STACK, SHAPE, first_only=True)
    store = ReplayBuffer(shape, Prioritized(0.5, beta_end=0.4), RateLimiter(1), patience=0.0)
    sent = Player(ends=0.0).play(20)
    sent.mask[:] = True
    sent.mask[0, 9:11] = False  # the windows at 9 and 10 have no first step to learn from
    store.add(sent)
    store.update(torch.tensor([9]), torch.zeros(1), torch.tensor([0.01]))
    met = set()
    for _ in range(100):
        batch = store.sample()
        for key, weight in zip(batch.keys.tolist(), batch.weights.tolist(), strict=True):
            assert weight == pytest.approx(0.0 if key in (9, 10) else 1.0)
            met.add(key)
    assert met == set(range(19))


def test_weights_of_a_batch_without_a_step_to_learn_from_are_0() -> None:
    store = make_store(60, length=1, sampling=BY_ERROR)
    sent = Player().play(20)
    sent.mask[:] = False
    store.add(sent)
    assert store.sample().weights.tolist() == [0.0] * 8


def test_priorities_that_are_no_numbers_are_refused() -> None:
    store = make_store(60, length=1, sampling=BY_ERROR)
    store.add(Player().play(4))
    for bad in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match="must be finite and at least 0"):
            store.update(torch.tensor([1]), torch.tensor([0]), torch.tensor([bad]))
    assert store.offer().mass == 4.0


def test_a_batch_is_the_learners_own() -> None:
    store, player = make_store(30, length=1), Player()
    store.add(player.play(30))
    batch = store.sample()
    kept = [tensor.clone() for tensor in batch]
    store.add(player.play(30))
    for tensor, copy in zip(batch, kept, strict=True):
        assert torch.equal(tensor, copy)
        tensor.zero_()
    assert int(store.sample().frames.max()) > 0


def test_the_same_seed_samples_the_same_and_replays_differ() -> None:
    drawn = []
    for seed, index in [(1, 0), (1, 0), (1, 1), (2, 0)]:
        store = make_store(300, windows=20, seed=seed, index=index)
        store.add(Player().play(200))
        drawn.append(store.sample().keys.tolist())
    assert drawn[0] == drawn[1]
    assert len({tuple(keys) for keys in drawn}) == 3


def test_actors_go_on_while_there_is_no_window_whatever_is_due() -> None:
    """Trajectories that never follow on each other and are shorter than a window."""
    limiter = RateLimiter(minimum=2, ratio=1.0, tolerance=8, trajectory=2, batch=8)
    store, player = make_store(100, limiter=limiter), Player()
    for _ in range(30):
        store.wait_for_room()
        store.add(player.play(2))
        player.restart()
    with pytest.raises(Deadline, match="60 steps added"):
        store.sample()
    store.add(player.play(4))
    store.sample()
    with pytest.raises(Deadline):
        store.wait_for_room()


def test_after_close_all_calls_end() -> None:
    store, player = make_store(100), Player()
    store.add(player.play(9))
    store.close()
    assert_closed(store.wait_for_room, store.sample, lambda: store.add(player.play(9)))


def test_what_does_not_fit_is_refused_in_a_line() -> None:
    for capacity, streams, length, line in [
        (79, 4, 4, "--capacity 79 leaves 19 steps for each of 4 games, fewer than 20; raise it to "
         "at least 80"),
        (99, 1, 100, "--capacity 99 leaves 99 steps for each of 1 games, fewer than 100; raise it "
         "to at least 100"),
    ]:  # fmt: skip
        with pytest.raises(ColobusError) as error:
            make_store(capacity, streams=streams, length=length)
        assert str(error.value) == line
        with pytest.raises(ColobusError):
            bytes_needed(BufferShape(capacity, streams, 8, length, STACK, SHAPE), prioritized=False)
    store = make_store(100, streams=2)
    with pytest.raises(ColobusError, match="51 steps does not fit a replay buffer that keeps 50"):
        store.add(Player().play(51))
    with pytest.raises(ColobusError, match="game 2 of actor 0 is one more than the 2 games"):
        store.add(Player(games=3).play(5))
    with pytest.raises(ValueError, match=r"this replay buffer takes frames uint8\[B, 8, 2, 3\]"):
        store.add(Player().play(5)._replace(frames=np.zeros((1, 8, 2, 2), dtype=np.uint8)))
    with pytest.raises(ValueError, match=r"frames float32\(1, 8, 2, 3\)"):  # not cut to bytes
        store.add(Player(frame_type="float32").play(5))


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize(
    ("capacity", "streams"), [(200_000, 16), (200_000, 1), (50_000, 1800), (1_000_000, 8)]
)
def test_bytes_of_a_step_at_capacity(prioritized: bool, capacity: int, streams: int) -> None:
    """84 x 84 grey, stacks of 4; no memory is touched here."""
    shape = BufferShape(capacity, streams, 32, 4, 4, (84, 84))
    needed = bytes_needed(shape, prioritized)
    assert needed / (capacity // streams * streams) <= 8_200
    if capacity < 1_000_000:
        sampling = Prioritized() if prioritized else None
        assert memory_of(ReplayBuffer(shape, sampling, RateLimiter(1))) == needed


def memory_of(store: ReplayBuffer) -> int:
    tree = store._priorities.tree._levels if store._priorities else []
    steps = sum(x.nbytes for x in store._rings.steps)
    return store._rings.frames.nbytes + steps + sum(x.nbytes for x in tree)


def test_bytes_of_vectors() -> None:
    """10 steps and a stack of 1 of each of 2 games, 4 numbers of 4 bytes and 43 bytes for each."""
    shape = BufferShape(20, 2, 8, 4, 1, (1, 4), "float32")
    assert bytes_needed(shape, prioritized=False) == 2 * 11 * (4 * 4 + 43)
    assert memory_of(ReplayBuffer(shape, None, RateLimiter(1))) == 1298


def test_sums_after_100_000_updates_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(1)
    size = 10_007
    tree, plain = SumTree(size), np.zeros(size)
    for number in range(100_000 // 32):
        places = rng.choice(size, 32, replace=False)
        weights = rng.random(32) * 10.0 ** rng.integers(-6, 6, size=32)
        weights[rng.random(32) < 0.2] = 0.0
        tree.set(places, weights)
        plain[places] = weights
        if number % 100 == 0:
            assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
    np.testing.assert_array_equal(tree.weights, plain)
    assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
    again = SumTree(size)
    again.set(np.arange(size), plain)
    assert again.total == tree.total  # no errors have grown
    again.weights[:] = 0.0
    again.weights[:] = plain
    again.sum_anew()
    assert again.total == tree.total


@given(
    weights=st.lists(st.integers(0, 5), min_size=1, max_size=300),
    stride=st.sampled_from([1, 29, 67, 997]),
)
def test_every_target_finds_the_place_of_the_running_sum(weights: list[int], stride: int) -> None:
    """In trees of one, two and three levels."""
    tree = SumTree(300 * stride if stride < 60 else 300_000)
    number = np.arange(len(weights))
    places = number // 7 * 7 * stride + number % 7  # seven neighbours, then a gap
    tree.set(places, np.array(weights, dtype=np.float64))
    total = sum(weights)
    assert tree.total == total
    if total:
        targets = np.arange(2 * total) / 2  # whole sums, and between them: exact in floating point
        want = places[np.searchsorted(np.cumsum(weights), targets, side="right")]
        np.testing.assert_array_equal(tree.find(targets), want)


@pytest.mark.parametrize("size", [3000, 5000, 300_000])
def test_rounding_never_finds_a_place_of_weight_0(size: int) -> None:
    rng = np.random.default_rng(2)
    tree = SumTree(size)
    kept = rng.choice(size, 700, replace=False)
    tree.set(kept, rng.random(700) * 10.0 ** rng.integers(-8, 8, size=700))
    last = np.nextafter(tree.total, 0.0)
    targets = np.concatenate([rng.random(20_000) * tree.total, [0.0, last, tree.total]])
    found = tree.find(targets)
    assert (tree.weights[found] > 0).all()
    assert found[-3] == kept.min()
    assert found[-1] == found[-2] == kept.max()


def test_a_node_whose_sum_is_rounded_up_finds_none_of_weight_0() -> None:
    """A sum of 64 numbers depends on their order, and the tree has two orders of them."""
    rng = np.random.default_rng(3)
    rounded_up = 0
    for _ in range(300):
        tree, row = SumTree(5000), rng.random(64)
        row[0] = 0.0
        tree.set(np.arange(640, 704), row)
        rounded_up += tree.total > row.cumsum()[-1]
        assert tree.find(np.array([np.nextafter(tree.total, 0.0)])).tolist() == [703]
    assert rounded_up > 30


@pytest.mark.parametrize(
    ("added", "sampled", "may_add", "may_sample"),
    [
        (99, 0, True, False),  # below the minimum
        (100, 0, True, True),  # surplus 0
        (100, 12, True, True),  # -12: the batch makes it -20
        (100, 13, True, False),  # -13
        (105, 0, True, True),  # 10: the trajectory makes it 20
        (106, 0, False, True),  # 12
        (1_000, 1_794, True, True),
        (1_000, 1_812, True, True),
        (1_000, 1_813, True, False),
        (1_000, 1_789, False, True),
    ],
)
def test_the_rule_as_a_table(added: int, sampled: int, may_add: bool, may_sample: bool) -> None:
    limiter = RateLimiter(minimum=100, ratio=2.0, tolerance=20, trajectory=5, batch=8)
    limiter.added, limiter.sampled = added, sampled
    assert (limiter.may_add(), limiter.may_sample()) == (may_add, may_sample)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    ratio=st.sampled_from([0.03125, 0.25, 1.0, 3.7, 8.0, 32.0]),
    trajectory=st.sampled_from([1, 20, 128, 1024]),
    batch=st.sampled_from([1, 32, 512]),
    slack=st.sampled_from([1.0, 1.5, 4.0]),
    actors=st.integers(1, 5),
    pull=st.floats(0.02, 0.98),
    seed=st.integers(0, 9),
)
def test_random_schedules_never_lock_up_and_keep_to_the_tolerance(
    ratio: float, trajectory: int, batch: int, slack: float, actors: int, pull: float, seed: int
) -> None:
    tolerance = slack * max(ratio * trajectory, batch)
    limiter = RateLimiter(500, ratio, tolerance, trajectory, batch)
    rng, playing = np.random.default_rng(seed), 0
    for _ in range(1000):
        can = np.array([playing < actors and limiter.may_add(), playing > 0, limiter.may_sample()])
        assert can.any(), "nobody can go on"
        likes = np.array([pull, pull, 1 - pull]) * can
        what = rng.choice(3, p=likes / likes.sum())
        if what == 0:  # an actor that was let in plays for a while, and others are let in meanwhile
            playing += 1
        elif what == 1:
            playing -= 1
            limiter.added += trajectory
        else:
            limiter.sampled += batch
        if limiter.added >= 500:
            assert -tolerance <= limiter.surplus <= tolerance + ratio * trajectory * actors
