"""The learning curve: what is read, and that the picture shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from colobus.core.errors import ColobusError
from colobus.core.types import Bools
from colobus.report.plots import Line, draw_curve, line_of
from colobus.runs.read import RunFolder
from helpers.made_runs import evaluate, rising, row, write_metrics

BLUE, ORANGE, GREEN = (180, 119, 31), (14, 127, 255), (44, 160, 44)
"""The first colours of a picture, as BGR: the curve has the first."""


def test_points_are_read_in_order_and_lines_without_a_score_passed_over(tmp_path: Path) -> None:
    write_metrics(tmp_path, [row(100, 30.0, None), row(200, 60.0, -1.0), row(300, 90.0, 2.5)])
    run = RunFolder(tmp_path, "run")
    run.refresh()
    assert line_of(run, "steps", "score") == Line([200.0, 300.0], [-1.0, 2.5])
    assert line_of(run, "minutes", "score") == Line([1.0, 1.5], [-1.0, 2.5])


def test_a_run_too_short_for_a_score_has_a_picture_one_without_metrics_none(tmp_path: Path) -> None:
    with pytest.raises(ColobusError, match=r"no metrics\.jsonl, so there is no curve"):
        draw_curve(tmp_path)
    write_metrics(tmp_path, [row(100, 1.0, None)])
    assert draw_curve(tmp_path).stat().st_size > 1000


def drawn(folder: Path) -> Any:
    picture = cv2.imread(str(draw_curve(folder)))
    assert picture is not None
    return picture


def painted(picture: Any, colour: tuple[int, int, int]) -> Bools:
    """Return where the picture has a colour."""
    mask: Bools = np.all(np.abs(picture.astype(int) - colour) < 12, axis=2)
    return mask


def test_the_picture_shows_a_rising_curve_on_both_axes(tmp_path: Path) -> None:
    write_metrics(tmp_path, rising(100))
    (tmp_path / "config.json").write_text(json.dumps({"games": {"game": "space_invaders"}}))
    picture = drawn(tmp_path)
    height, width = picture.shape[:2]
    assert width > 2 * height > 800
    for half in (picture[:, : width // 2], picture[:, width // 2 :]):
        rows, columns = np.nonzero(painted(half, BLUE))
        assert len(rows) > 300
        assert np.corrcoef(rows, columns)[0, 1] < -0.99  # up and to the right
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["config.json", "curve.png", "metrics.jsonl"]


@pytest.mark.slow
def test_an_evaluation_is_marked(tmp_path: Path) -> None:
    """Those by one protocol in one colour, with one line of the legend: an evaluator leaves dozens
    of them, whose legend would hide the curve."""
    write_metrics(tmp_path, rising(60))
    assert not painted(drawn(tmp_path), ORANGE).any()
    for number in range(1, 61):
        evaluate(tmp_path, 1000 * number, [0.1 * number, 0.1 * number + 1.0], "dba3c")
        if number in (1, 60):
            picture = drawn(tmp_path)
            assert painted(picture, ORANGE).sum() > 100
            assert not painted(picture, GREEN).any()
        if number == 1:  # the error is 0.5, the curve goes from 0.1 to 6
            half = picture[:, picture.shape[1] // 2 :]
            bar, curve = (np.ptp(np.nonzero(painted(half, c))[0]) for c in (ORANGE, BLUE))
            assert bar / curve == pytest.approx(2 * 1.96 * 0.5 / 5.9, abs=0.02)
