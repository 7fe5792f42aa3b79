"""The sum tree against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gelada.roles.replay.sum_tree import SumTree, rows_of, tree_bytes


@pytest.mark.parametrize(
    ("size", "rows"),
    [
        (1, [1]),
        (64, [1]),
        (65, [2]),
        (4096, [64]),
        (4097, [65, 2]),
        (200_032, [3126, 49]),
        (262_145, [4097, 65, 2]),
    ],
)
def test_levels_and_bytes(size: int, rows: list[int]) -> None:
    assert rows_of(size) == rows
    tree = SumTree(size)
    assert tree.nbytes == tree_bytes(size) == 512 * sum(rows)
    assert tree.total == 0.0


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
