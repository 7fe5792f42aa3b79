"""Statistics of reports, held against slow transcriptions of their definitions."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from gelada.report import statistics
from gelada.report.statistics import (
    bootstrap,
    drawn_again,
    enough,
    improvement_interval,
    interquartile_mean,
    mean_of_games,
    median_of_games,
    performance_profile,
    probability_of_improvement,
    profile_band,
    standard_error,
)

SCORES = st.lists(st.floats(-3, 10).map(lambda x: round(x, 1)), min_size=1, max_size=7)
GAMES = st.dictionaries(st.sampled_from("abcdef"), SCORES, min_size=1, max_size=4)


@hypothesis.given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end(values: list[float]) -> None:
    left = sorted(values)
    for _ in range(len(values) // 4):
        left.remove(max(left))
        left.remove(min(left))
    assert interquartile_mean(values) == pytest.approx(sum(left) / len(left), abs=1e-9)


def test_outliers_do_not_move_the_interquartile_mean() -> None:
    assert interquartile_mean([1, 2, 3, 4]) == 2.5
    assert interquartile_mean([-1e9, 2, 3, 1e9]) == 2.5


@hypothesis.given(GAMES, GAMES)
def test_the_probability_of_improvement_counts_pairs(
    ours: dict[str, list[float]], others: dict[str, list[float]]
) -> None:
    games = [game for game in ours if game in others]
    if not games:
        with pytest.raises(ValueError, match="no game"):
            probability_of_improvement(ours, others)
        return
    total = 0.0
    for game in games:
        wins = 0.0
        for x in ours[game]:
            for y in others[game]:
                wins += 1.0 if x > y else 0.5 if x == y else 0.0
        total += wins / (len(ours[game]) * len(others[game]))
    found = probability_of_improvement(ours, others)
    assert found == pytest.approx(total / len(games))
    assert probability_of_improvement(others, ours) == pytest.approx(1 - found)


@hypothesis.given(GAMES)
def test_a_profile_is_the_mean_over_games_of_the_shares_above(
    scores: dict[str, list[float]],
) -> None:
    levels = [-1.0, 0.0, 1.5]
    for level, found in zip(levels, performance_profile(scores, levels), strict=True):
        shares = [sum(v > level for v in values) / len(values) for values in scores.values()]
        assert found == pytest.approx(sum(shares) / len(shares))


def test_the_median_of_games_takes_means_first() -> None:
    values = np.array([0.0, 2.0, 5.0, 5.0, 100.0, 0.0])
    games = np.array([0, 0, 1, 1, 2, 2])
    assert median_of_games(values, games) == 5.0


def test_the_mean_of_games_counts_each_game_once() -> None:
    values, games = np.array([0.2] * 5 + [5.0] * 25), np.array([0] * 5 + [1] * 25)
    assert mean_of_games(values, games) == pytest.approx(2.6)


def test_runs_are_drawn_within_their_game() -> None:
    scores = {"a": [1.0, 2.0, 3.0], "b": [10.0, 20.0]}
    drawn = drawn_again(scores, np.random.default_rng(0), samples=500)
    assert drawn.shape == (500, 5)
    assert set(drawn[:, :3].ravel()) == {1.0, 2.0, 3.0}
    assert set(drawn[:, 3:].ravel()) == {10.0, 20.0}
    assert abs(drawn[:, 0].mean() - 2.0) < 0.15


def slow_interval(scores: dict[str, list[float]], seed: int) -> tuple[float, float]:
    """Draw and average one by one; percentiles by sorting (linear interpolation)."""
    random = np.random.default_rng(seed)
    means = []
    for _ in range(3000):
        drawn = [values[random.integers(len(values))] for values in scores.values() for _ in values]
        means.append(interquartile_mean(drawn))
    means.sort()
    return means[round(0.025 * 2999)], means[round(0.975 * 2999)]


def test_the_bootstrap_interval_is_that_of_drawing_one_by_one() -> None:
    random = np.random.default_rng(3)
    scores = {str(game): random.normal(game, 1.0, 6).tolist() for game in range(5)}
    found = bootstrap(interquartile_mean, scores, np.random.default_rng(1))
    low, high = slow_interval(scores, 2)
    assert found.low < found.value < found.high
    assert found.low == pytest.approx(low, abs=0.06)
    assert found.high == pytest.approx(high, abs=0.06)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """20 games x 10 runs around known means: the mean is covered in 95 % of draws, roughly."""
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(60):
        scores = {str(g): random.normal(g, 1.0, 10).tolist() for g in range(20)}
        found = bootstrap(lambda v: float(v.mean()), scores, random, samples=300)
        covered += found.low <= 9.5 <= found.high
    assert covered >= 50


def test_bands_and_improvements_have_intervals_around_them() -> None:
    random = np.random.default_rng(7)
    ours = {str(g): random.normal(1.0, 1.0, 5).tolist() for g in range(20)}
    others = {str(g): random.normal(0.0, 1.0, 5).tolist() for g in range(20)}
    found = improvement_interval(ours, others, random)
    assert 0.5 < found.low < found.value < found.high < 1.0
    levels = [-1.0, 0.0, 1.0, 2.0]
    low, high = profile_band(ours, levels, random)
    profile = performance_profile(ours, levels)
    assert all(a <= p <= b for a, p, b in zip(low, profile, high, strict=True))
    assert max(b - a for a, b in zip(low, high, strict=True)) < 0.4


def test_standard_errors_need_two_values() -> None:
    assert standard_error([5.0]) is None
    assert standard_error([1.0, 3.0]) == 1.0


@pytest.mark.parametrize(
    ("games", "runs", "is_enough"), [(20, 5, True), (19, 5, False), (20, 4, False), (57, 5, True)]
)
def test_intervals_begin_at_20_games_of_5_runs(games: int, runs: int, is_enough: bool) -> None:
    scores = {str(game): [0.0] * runs for game in range(games)}
    assert enough(scores) == is_enough
    if is_enough:
        assert not enough(scores | {"0": [0.0] * (statistics.LEAST_RUNS - 1)})
