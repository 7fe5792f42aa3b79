"""What a failure cost a run on Ray."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lib.cluster import cost, speeds
from helpers.made_runs import write_metrics


def ran(begin: int, end: int, steps: int, speed: int = 100) -> list[dict[str, Any]]:
    """Return metrics of each second, the first after so many steps."""
    return [{"seconds": float(t), "steps": steps + speed * (t - begin)} for t in range(begin, end)]


CALM = ran(0, 31, 0)  # until the hit at 30
SLOW = [*ran(31, 37, 3000, 0), *ran(37, 41, 3050, 50)]
AGAIN = ran(41, 60, 3295, 95)


@pytest.mark.parametrize(
    ("metrics", "end", "after"),
    [
        (SLOW + AGAIN, inf, 10.0),  # from second 40 on: 95 a second, which is at least 90 %
        (SLOW, inf, None),
        (SLOW + AGAIN, 42.0, None),  # hit once more
        ([{"seconds": 30.3, "steps": 3030}, *ran(37, 60, 3030)], inf, 7.0),
        ([{"seconds": 34.0, "steps": 3000}, *ran(35, 50, 1000)], inf, 5.0),
    ],
    ids=["slow, then fast", "slow", "hit again", "a gap", "steps fall back to a checkpoint"],
)
def test_the_speed_before_and_after(metrics: Any, end: float, after: float | None) -> None:
    assert speeds(CALM + metrics, 30.0, end) == (100.0, after)


@pytest.mark.parametrize("second_hit", [None, 38.0])
def test_only_the_first_hit_counts(tmp_path: Path, second_hit: float | None) -> None:
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
    write_metrics(tmp_path, ran(0, 60, 0))
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    found = cost(tmp_path)
    assert found["seconds_to_detect"] == pytest.approx(4.1)
    assert found["seconds_to_be_back"] == 6.5
    assert found["speed_before"] == 100.0
    assert found["seconds_to_recover"] == 1.0
    assert (found["lost_steps"], found["lost_versions"]) == (640, 4)
