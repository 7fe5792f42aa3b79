"""The fit of a plan to measured hosts, what a run comes to, and what a failure cost it."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import scaling
from benchmarks.lib.cluster import cost, speeds
from colobus.training.on_virtual import Costs
from helpers.made_runs import write_metrics


def costs() -> Costs:
    stages = {"learn": [0.01] * 3, "act": [1e-4] * 3, "emulate": [1e-4] * 3}
    point = {"repetition": 0, "games": 8, "datapoints": 72, "stages": stages}
    calls = {"loop": 1e-3, "latency": 1e-3, "byte": 1e-9}
    return Costs(points=(point,), servers=({"step": 0.0, "take a gradient": 0.0},), calls=(calls,))


@pytest.mark.slow
def test_a_fit_finds_how_much_slower_hosts_are_than_the_measured_machine() -> None:
    slower = scaling.scaled(costs(), 3.0)
    measured = {nodes: scaling.predicted(slower, nodes)["versions"][0] for nodes in (1, 2)}
    fit = scaling.scaled(costs(), scaling.fitted(costs(), measured))
    for nodes in (1, 2, 3, 8):
        found, wanted = (scaling.predicted(one, nodes) for one in (fit, slower))
        assert found["versions"] == pytest.approx(wanted["versions"], rel=0.07)


def test_what_a_run_has_come_to(tmp_path: Path) -> None:
    def line(seconds: float, score: float | None) -> dict[str, Any]:
        about = {"seconds": seconds, "steps": int(72 * seconds), "version": int(2 * seconds)}
        sent = {"gradients_counted": 90, "gradients_dropped": 9, "gradients_partial": 1}
        return about | {"score": score, "lag_mean": 1.0 + (seconds >= 9.0)} | sent

    lines = [line(0.0, None), *(line(n, n - 9.0) for n in range(1, 11))]
    write_metrics(tmp_path, lines)
    assert scaling.row_of(tmp_path) == {
        "seconds": 10,
        "steps": 720,
        "versions_per_s": 2.0,
        "lag": [1.0, 2.0],
        "dropped": 0.09,
        "partial": 0.01,
    }


@pytest.mark.parametrize(("to", "reward"), [("ball", 1.0), ("away", -1.0)])
def test_a_ball_takes_nine_steps_and_is_caught_by_a_paddle_below_it(to: str, reward: float) -> None:
    board = scaling.Board()
    picture, _ = board.reset(seed=3)  # the paddle is left of the ball
    assert [np.flatnonzero(row).tolist() for row in (picture[0], picture[41])] == [
        list(range(30, 36)),
        list(range(6)),
    ]
    told = [board.step(2 if to == "ball" and n < 5 else 1)[1:3] for n in range(9)]
    assert told == [(0.0, False)] * 8 + [(reward, True)]
    assert board.look()[36:38].sum() == 2 * 6 * 255


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
