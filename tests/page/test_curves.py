"""Reading metrics.jsonl while it grows: nothing twice, nothing wrong, and never too much of it."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from gelada.runs import curves
from gelada.runs.curves import Curve, read_metrics
from helpers.made_runs import append, rising, row, write_metrics


def steps_of(curve: Curve) -> list[int]:
    return [int(one.values["steps"]) for one in curve.rows]


def test_a_short_file_is_read_whole(tmp_path: Path) -> None:
    write_metrics(tmp_path, rising(20, kl=0.5))
    curve = Curve(tmp_path / "metrics.jsonl", kept=50)
    assert curve.refresh()
    assert steps_of(curve) == [1000 * i for i in range(1, 21)]
    assert curve.newest["kl"] == 0.5
    assert "score" in curve.names()
    assert not curve.refresh()


def test_only_new_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rising(30)
    write_metrics(tmp_path, rows[:29])
    curve = Curve(tmp_path / "metrics.jsonl")
    curve.refresh()
    parsed: list[bytes] = []
    loads = json.loads

    def counted(line: bytes) -> Any:
        parsed.append(line)
        return loads(line)

    monkeypatch.setattr("gelada.runs.curves.json.loads", counted)
    append(tmp_path, rows[29])
    assert curve.refresh()
    assert len(set(parsed)) == 1
    assert steps_of(curve)[-1] == 30_000


def test_a_line_that_is_not_finished_is_read_when_it_is(tmp_path: Path) -> None:
    write_metrics(tmp_path, rising(3))
    path = tmp_path / "metrics.jsonl"
    curve = Curve(path)
    curve.refresh()
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
    write_metrics(tmp_path, rising(count))
    curve = Curve(tmp_path / "metrics.jsonl", kept=100)
    curve.refresh()
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
    write_metrics(tmp_path, [*rising(10), row(4500, 30.0, 9.0), row(5500, 32.0, 9.0)])
    curve = Curve(tmp_path / "metrics.jsonl")
    curve.refresh()
    assert steps_of(curve) == [1000, 2000, 3000, 4000, 4500, 5500]
    assert curve.resumed == [4500]
    append(tmp_path, row(2500, 50.0, 1.0))
    curve.refresh()
    assert steps_of(curve) == [1000, 2000, 2500]
    assert curve.resumed == [4500, 2500]


@hypothesis.given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(1, 7))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_any_order_of_steps_is_read_as_read_metrics_reads_it(
    tmp_path: Path, steps: list[int], chunk: int
) -> None:
    rows = [row(s, float(i), 1.0) for i, s in enumerate(steps)]
    write_metrics(tmp_path, [])
    curve = Curve(tmp_path / "metrics.jsonl", kept=100)
    for first in range(0, len(rows), chunk):
        append(tmp_path, *rows[first : first + chunk])
        curve.refresh()
    assert steps_of(curve) == [one["steps"] for one in read_metrics(tmp_path)]


def test_a_file_that_was_replaced_or_cut_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_metrics(tmp_path, rising(10))
    curve = Curve(path)
    curve.refresh()
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


def test_lines_longer_than_a_read_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "LONGEST", 512)
    monkeypatch.setattr(curves, "TAIL", 128)
    path = tmp_path / "metrics.jsonl"
    good = [json.dumps(row(1000 * i, float(i), 1.0)).encode() for i in range(1, 9)]
    path.write_bytes(b"\n".join([*good[:3], b""]))
    curve = Curve(path)
    curve.refresh()
    with path.open("ab") as file:
        file.write(b"x" * 1000)
    curve.refresh()
    with path.open("ab") as file:
        file.write(b"\n".join([b"", *good[3:], b""]))
    curve.refresh()
    assert steps_of(curve) == [1000 * i for i in range(1, 9)]


def test_columns_are_thinned_have_gaps_and_the_speed(tmp_path: Path) -> None:
    rows = [row(100 * i, 2.0 * i, None if i < 3 else float(i)) for i in range(1, 9)]
    write_metrics(tmp_path, rows)
    curve = Curve(tmp_path / "metrics.jsonl")
    curve.refresh()
    found = curve.columns(["steps", "score", "steps_per_second", "nothing"], 4)
    assert found == {
        "steps": [200, 400, 600, 800],
        "score": [None, 4.0, 6.0, 8.0],
        "steps_per_second": [None, 50.0, 50.0, 50.0],
        "nothing": [None] * 4,
    }
