"""Statistics of reports, held against slow transcriptions of their definitions."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray

from colobus.report import statistics
from colobus.runs import curves
from colobus.runs.curves import Curve, read_metrics
from helpers.made_runs import Row, append, rising, row, write_metrics

Scores = dict[str, list[float]]

SCORES = st.lists(st.floats(-3, 10).map(lambda x: round(x, 1)), min_size=1, max_size=7)
GAMES = st.dictionaries(st.sampled_from("abcdef"), SCORES, min_size=1, max_size=4)


@hypothesis.given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end(values: list[float]) -> None:
    left = sorted(values)
    for _ in range(len(values) // 4):
        left.remove(max(left))
        left.remove(min(left))
    assert statistics.interquartile_mean(values) == pytest.approx(sum(left) / len(left), abs=1e-9)


@hypothesis.given(GAMES, GAMES)
def test_the_probability_of_improvement_counts_pairs(ours: Scores, others: Scores) -> None:
    games = [game for game in ours if game in others]
    if not games:
        with pytest.raises(ValueError, match="no game"):
            statistics.probability_of_improvement(ours, others)
        return
    total = 0.0
    for game in games:
        wins = 0.0
        for x in ours[game]:
            for y in others[game]:
                wins += 1.0 if x > y else 0.5 if x == y else 0.0
        total += wins / (len(ours[game]) * len(others[game]))
    found = statistics.probability_of_improvement(ours, others)
    assert found == pytest.approx(total / len(games))
    assert statistics.probability_of_improvement(others, ours) == pytest.approx(1 - found)


@hypothesis.given(GAMES)
def test_a_profile_is_the_mean_over_games_of_the_shares_above(scores: Scores) -> None:
    levels = [-1.0, 0.0, 1.5]
    for level, found in zip(levels, statistics.performance_profile(scores, levels), strict=True):
        shares = [sum(v > level for v in values) / len(values) for values in scores.values()]
        assert found == pytest.approx(sum(shares) / len(shares))


def test_each_game_counts_once_in_the_median_and_the_mean() -> None:
    values = np.array([0.0, 1.0, 2.0, 5.0, 5.0, 50.0])
    games = np.array([0, 0, 0, 1, 1, 2])
    assert statistics.over_games(np.median, values, games) == 5.0
    assert statistics.over_games(np.mean, values, games) == pytest.approx(56 / 3)


def test_runs_are_drawn_within_their_game() -> None:
    scores = {"a": [1.0, 2.0, 3.0], "b": [10.0, 20.0]}
    rows: list[NDArray[np.float64]] = []

    def seen(row: NDArray[np.float64]) -> float:
        rows.append(row)
        return 0.0

    statistics.bootstrap(seen, scores, np.random.default_rng(0))
    drawn = np.array(rows)
    assert drawn.shape == (1 + 2000, 5)  # with the runs as they are
    assert set(drawn[:, :3].ravel()) == {1.0, 2.0, 3.0}
    assert set(drawn[:, 3:].ravel()) == {10.0, 20.0}
    assert abs(drawn[:, 0].mean() - 2.0) < 0.1


def slow_interval(scores: Scores, seed: int) -> tuple[float, float]:
    """Draw and average one by one; percentiles by sorting (linear interpolation)."""
    random = np.random.default_rng(seed)
    means = []
    for _ in range(3000):
        drawn = [values[random.integers(len(values))] for values in scores.values() for _ in values]
        means.append(statistics.interquartile_mean(drawn))
    means.sort()
    return means[round(0.025 * 2999)], means[round(0.975 * 2999)]


def test_the_bootstrap_interval_is_that_of_drawing_one_by_one() -> None:
    random = np.random.default_rng(3)
    scores = {str(game): random.normal(game, 1.0, 6).tolist() for game in range(5)}
    found = statistics.bootstrap(statistics.interquartile_mean, scores, np.random.default_rng(1))
    low, high = slow_interval(scores, 2)
    assert found.low < found.value < found.high
    assert found.low == pytest.approx(low, abs=0.06)
    assert found.high == pytest.approx(high, abs=0.06)


def test_bands_and_improvements_have_intervals_around_them() -> None:
    random = np.random.default_rng(7)
    ours = {str(g): random.normal(1.0, 1.0, 5).tolist() for g in range(20)}
    others = {str(g): random.normal(0.0, 1.0, 5).tolist() for g in range(20)}
    found = statistics.improvement_interval(ours, others, random)
    assert 0.5 < found.low < found.value < found.high < 1.0
    levels = [-1.0, 0.0, 1.0, 2.0]
    low, high = statistics.profile_band(ours, levels, random)
    profile = statistics.performance_profile(ours, levels)
    assert all(a <= p <= b for a, p, b in zip(low, profile, high, strict=True))
    assert max(b - a for a, b in zip(low, high, strict=True)) < 0.4


def test_standard_errors_need_two_values() -> None:
    assert statistics.standard_error([5.0]) is None
    assert statistics.standard_error([1.0, 3.0]) == 1.0


@pytest.mark.parametrize(
    ("games", "runs", "is_enough"), [(20, 5, True), (19, 5, False), (20, 4, False), (57, 5, True)]
)
def test_intervals_begin_at_20_games_of_5_runs(games: int, runs: int, is_enough: bool) -> None:
    scores = {str(game): [0.0] * runs for game in range(games)}
    assert statistics.enough(scores) == is_enough
    if is_enough:
        assert not statistics.enough(scores | {"0": [0.0] * (statistics.LEAST_RUNS - 1)})


def steps_of(curve: Curve) -> list[int]:
    return [int(one.values["steps"]) for one in curve.rows]


def curve_of(folder: Path, rows: Sequence[Row], **settings: int) -> Curve:
    """Return what was read of a file with these rows."""
    write_metrics(folder, rows)
    curve = Curve(folder / "metrics.jsonl", **settings)
    curve.refresh()
    return curve


def test_only_new_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rising(30)
    curve = curve_of(tmp_path, rows[:29])
    parsed: list[bytes] = []
    loads = json.loads

    def counted(line: bytes) -> Any:
        parsed.append(line)
        return loads(line)

    monkeypatch.setattr("colobus.runs.curves.json.loads", counted)
    append(tmp_path, rows[29])
    assert curve.refresh()
    assert len(set(parsed)) == 1
    assert steps_of(curve)[-1] == 30_000


def test_a_line_that_is_not_finished_is_read_when_it_is(tmp_path: Path) -> None:
    path, curve = tmp_path / "metrics.jsonl", curve_of(tmp_path, rising(3))
    line = json.dumps(row(4000, 8.0, 0.4)) + "\n"
    with path.open("a") as file:
        file.write(line[:20])
    assert not curve.refresh()
    with path.open("a") as file:
        file.write(line[20:])
    assert curve.refresh()
    assert steps_of(curve) == [1000, 2000, 3000, 4000]


def gaps(steps: list[int]) -> list[int]:
    """Return the distances between rows, without that of the newest one."""
    return [b - a for a, b in pairwise(steps[:-1])]


@pytest.mark.parametrize("whole", [1 << 30, 4096])
@pytest.mark.parametrize("count", [99, 201, 1000, 5000])
def test_of_a_long_file_rows_are_kept_evenly_and_the_newest(
    tmp_path: Path, count: int, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "WHOLE", whole)
    curve = curve_of(tmp_path, rising(count), kept=100)
    steps = steps_of(curve)
    assert min(count, 50) <= len(steps) <= 202
    assert steps[-1] == 1000 * count
    assert max(gaps(steps)) <= 1.3 * min(gaps(steps)) + 1000
    assert steps == sorted(set(steps))
    rows = {one["steps"]: one for one in rising(count)}
    assert all(one.values == rows[int(one.values["steps"])] for one in curve.rows)


def test_growing_line_by_line_keeps_what_reading_at_once_keeps(tmp_path: Path) -> None:
    rows = rising(1000)
    write_metrics(tmp_path, rows[:1])
    curve = Curve(tmp_path / "metrics.jsonl", kept=20)
    for first in range(1, 1000, 9):
        append(tmp_path, *rows[first : first + 9])
        curve.refresh()
        assert len(curve.rows) <= 41
    steps = steps_of(curve)
    assert steps[-1] == 1_000_000
    assert len(steps) >= 20
    assert max(gaps(steps)) <= 2 * min(gaps(steps)) + 1000


def test_what_a_resumed_run_lost_is_dropped_and_the_resume_remembered(tmp_path: Path) -> None:
    curve = curve_of(tmp_path, [*rising(10), row(4500, 30.0, 9.0), row(5500, 32.0, 9.0)])
    assert steps_of(curve) == [1000, 2000, 3000, 4000, 4500, 5500]
    assert curve.resumed == [4500]
    append(tmp_path, row(2500, 50.0, 1.0))
    curve.refresh()
    assert steps_of(curve) == [1000, 2000, 2500]
    assert curve.resumed == [4500, 2500]


@hypothesis.given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(1, 7))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_steps_in_any_order_are_read_alike(tmp_path: Path, steps: list[int], chunk: int) -> None:
    rows = [row(s, float(i), 1.0) for i, s in enumerate(steps)]
    write_metrics(tmp_path, [])
    curve = Curve(tmp_path / "metrics.jsonl", kept=100)
    for first in range(0, len(rows), chunk):
        append(tmp_path, *rows[first : first + chunk])
        curve.refresh()
    assert steps_of(curve) == [one["steps"] for one in read_metrics(tmp_path)]


def test_a_file_that_was_replaced_or_cut_is_read_anew(tmp_path: Path) -> None:
    path, curve = tmp_path / "metrics.jsonl", curve_of(tmp_path, rising(10))
    other = tmp_path / "other"
    other.mkdir()
    write_metrics(other, rising(12, every=7))
    os.replace(other / "metrics.jsonl", path)
    assert curve.refresh()
    assert steps_of(curve) == [7 * i for i in range(1, 13)]
    write_metrics(tmp_path, rising(2))
    assert curve.refresh()
    assert steps_of(curve) == [1000, 2000]
    path.unlink()
    assert curve.refresh()
    assert steps_of(curve) == []
    assert not curve.refresh()


HOSTILE = [
    b"",
    b"\n\n\n",
    b"\xff\xfe\x00\n",
    b'{"steps": 1e400, "seconds": 1}\n',
    b'{"steps": NaN, "seconds": 1}\n',
    b'{"steps": true, "seconds": 1}\n',
    b'{"steps": 5}\n',
    b'{"steps": "5", "seconds": "1"}\n',
    b"[" * 100_000 + b"\n",
    b"[1, 2]\n",
    b'"steps"\n',
    b'{"steps": ' + b"9" * 4000 + b', "seconds": 1}\n',
    b"x" * 100_000,
]


@pytest.mark.parametrize("data", HOSTILE)
def test_nothing_in_a_file_raises_or_becomes_a_row(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(data)
    curve = Curve(path)
    curve.refresh()
    curve.columns(["steps", "score"], 10)
    assert [one for one in curve.rows if not 0 <= one.values["steps"] < 1e300] == []
    path.write_bytes(data + b"\n" + json.dumps(row(7, 1.0, 2.0)).encode() + b"\n")
    curve.refresh()
    assert curve.newest["steps"] == 7


def test_too_long_lines_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "LONGEST", 512)
    monkeypatch.setattr(curves, "TAIL", 128)
    rows = rising(8)
    path, curve = tmp_path / "metrics.jsonl", curve_of(tmp_path, rows[:3])
    with path.open("ab") as file:
        file.write(b"x" * 1000)
    curve.refresh()
    with path.open("ab") as file:
        file.write(b"\n")
    append(tmp_path, *rows[3:])
    curve.refresh()
    assert steps_of(curve) == [1000 * i for i in range(1, 9)]


def test_columns_are_thinned_have_gaps_and_the_speed(tmp_path: Path) -> None:
    rows = [row(100 * i, 2.0 * i, None if i < 3 else float(i)) for i in range(1, 9)]
    curve = curve_of(tmp_path, rows)
    assert curve.names() == ["steps", "seconds", "version", "games", "score"]
    found = curve.columns(["steps", "score", "steps_per_second", "nothing"], 4)
    assert found == {
        "steps": [200, 400, 600, 800],
        "score": [None, 4.0, 6.0, 8.0],
        "steps_per_second": [None, 50.0, 50.0, 50.0],
        "nothing": [None] * 4,
    }


@pytest.mark.parametrize(
    ("value", "error", "want"),
    [
        (0.931, 0.0021, "0.9310 ± 0.0021"),
        (0.931, 0.02, "0.93 ± 0.02"),
        (1.0, 0.0, "1.00 ± 0.00"),
        (250.0, 0.003, "250.0000 ± 0.0030"),
        (499.97, 0.02, "499.97 ± 0.02"),
        (499.97, 0.05, "500.0 ± 0.1"),
        (500.0, 0.0, "500.0 ± 0.0"),
        (0.5, 1e-12, "0.50 ± 0.00"),
        (0.5, None, "0.50"),
    ],
)
def test_a_small_error_has_two_digits(value: float, error: float | None, want: str) -> None:
    assert statistics.plus_minus(value, error) == want
