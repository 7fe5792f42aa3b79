"""The fit of a plan to measured hosts, and what a run comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import scaling
from colobus.training.on_virtual import Costs


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
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
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
