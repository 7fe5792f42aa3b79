"""What the ledger says a failure cost, from metrics and events that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.cluster import cost, speeds


def lines(points: list[tuple[float, int]]) -> list[dict[str, Any]]:
    return [{"seconds": seconds, "steps": steps} for seconds, steps in points]


def test_the_speed_before_and_when_it_is_reached_again() -> None:
    calm = [(float(t), 100 * t) for t in range(31)]  # 100 a second until the hit at 30
    still = [(float(t), 3000) for t in range(31, 37)]
    slow = [(float(t), 3000 + 50 * (t - 36)) for t in range(37, 41)]
    again = [(float(t), 3200 + 95 * (t - 40)) for t in range(41, 60)]
    before, after = speeds(lines(calm + still + slow + again), 30.0, float("inf"))
    assert before == 100.0
    assert after == 10.0  # from second 40 on: 95 a second, which is at least 90 %
    assert speeds(lines(calm + still + slow), 30.0, float("inf")) == (100.0, None)
    assert speeds(lines(calm + still + slow + again), 30.0, 42.0) == (100.0, None)  # hit once more


def test_a_gap_in_the_metrics_is_not_the_end_of_the_run() -> None:
    calm = [(float(t), 100 * t) for t in range(31)]
    again = [(float(t), 3030 + 100 * (t - 37)) for t in range(37, 60)]
    assert speeds(lines([*calm, (30.3, 3030), *again]), 30.0, float("inf")) == (100.0, 7.0)


def test_steps_that_fall_back_to_a_checkpoint_are_no_speed() -> None:
    calm = [(float(t), 100 * t) for t in range(31)]
    restored = [
        (34.0, 3000),
        (35.0, 1000),
        *((float(t), 1000 + 100 * (t - 35)) for t in range(36, 50)),
    ]
    assert speeds(lines(calm + restored), 30.0, float("inf")) == (100.0, 5.0)


@pytest.mark.parametrize("second_hit", [None, 38.0])
def test_only_the_first_hit_counts(tmp_path: Path, second_hit: float | None) -> None:
    run = tmp_path / "run"
    run.mkdir()
    events = [
        {"seconds": 30.0, "event": "hit", "what": "server-0"},
        {"seconds": 34.1, "event": "lost", "what": "server-0"},
        {"seconds": 34.2, "event": "restored", "lost_steps": 640, "lost_versions": 4},
        {"seconds": 36.5, "event": "back", "what": "server-0"},
    ]
    if second_hit:
        events += [
            {"seconds": second_hit, "event": "hit", "what": "server-1"},
            {"seconds": 50.0, "event": "back", "what": "server-1"},
        ]
    points = [(float(t), 100 * t) for t in range(60)]
    for name, made in (("events", events), ("metrics", lines(points))):
        (run / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in made))
    found = cost(run)
    assert found["seconds_to_detect"] == pytest.approx(4.1)
    assert found["seconds_to_be_back"] == 6.5
    assert found["speed_before"] == 100.0
    assert found["seconds_to_recover"] == 1.0
    assert (found["lost_steps"], found["lost_versions"]) == (640, 4)
