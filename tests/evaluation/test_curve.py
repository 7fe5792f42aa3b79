"""The learning curve: what is read, and that the picture shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest

from colobus.core.errors import ColobusError
from colobus.core.types import Bools, Bytes
from colobus.envs.api import GameSettings
from colobus.evaluation.films.grid import GAP, HOLD, MOST, Cell, caption, record_grid
from colobus.report.plots import Line, draw_curve, line_of
from colobus.runs.curves import read_metrics
from colobus.runs.read import RunFolder
from helpers.players import Catcher, Scripted, filmed_by_hand


def line(steps: int, seconds: float, score: float | None) -> str:
    return json.dumps({"steps": steps, "seconds": seconds, "score": score}) + "\n"


def write(folder: Path, *lines: str) -> Path:
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


def read(folder: Path) -> RunFolder:
    run = RunFolder(folder, "run")
    run.refresh()
    return run


def test_points_are_read_in_order_and_lines_without_a_score_passed_over(tmp_path: Path) -> None:
    write(tmp_path, line(100, 30.0, None), line(200, 60.0, -1.0), line(300, 90.0, 2.5))
    run = read(tmp_path)
    assert line_of(run, "steps", "score") == Line([200.0, 300.0], [-1.0, 2.5])
    assert line_of(run, "minutes", "score") == Line([1.0, 1.5], [-1.0, 2.5])


def test_torn_and_strange_lines_are_passed_over(tmp_path: Path) -> None:
    torn = '{"steps": 400, "seco'
    write(tmp_path, line(200, 60.0, 1.0), torn + "\n", "[]\n", line(500, 90.0, 2.0), torn)
    assert [row["steps"] for row in read_metrics(tmp_path)] == [200, 500]


def test_no_metrics_is_said(tmp_path: Path) -> None:
    with pytest.raises(ColobusError, match=r"no metrics\.jsonl, so there is no curve"):
        draw_curve(tmp_path)


def blue(picture: Any) -> Bools:
    """Return where the picture has the curve's colour (BGR of tab:blue)."""
    mask: Bools = np.all(np.abs(picture.astype(int) - (180, 119, 31)) < 12, axis=2)
    return mask


def test_the_picture_shows_a_rising_curve_on_both_axes(tmp_path: Path) -> None:
    write(tmp_path, *(line(1000 * i, 6.0 * i, i / 10) for i in range(1, 101)))
    (tmp_path / "config.json").write_text(json.dumps({"games": {"game": "space_invaders"}}))
    path = draw_curve(tmp_path)
    assert path == tmp_path / "curve.png"
    picture = cv2.imread(str(path))
    assert picture is not None
    height, width = picture.shape[:2]
    assert width > 2 * height > 800
    for half in (picture[:, : width // 2], picture[:, width // 2 :]):
        rows, columns = np.nonzero(blue(half))
        assert len(rows) > 300
        assert np.corrcoef(rows, columns)[0, 1] < -0.99  # up and to the right
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_an_evaluation_is_marked(tmp_path: Path) -> None:
    write(tmp_path, line(1000, 6.0, 0.0), line(2000, 12.0, 1.0))
    plain = cv2.imread(str(draw_curve(tmp_path)))
    (tmp_path / "eval").mkdir()
    said = {"protocol": "training", "mean": 0.9, "standard_error": 0.1, "episodes": 50}
    (tmp_path / "eval" / "2000-training.json").write_text(json.dumps(said | {"steps": 2000}))
    marked = cv2.imread(str(draw_curve(tmp_path)))
    assert plain is not None
    assert marked is not None
    orange = np.all(np.abs(marked.astype(int) - (14, 127, 255)) < 12, axis=2)
    assert orange.sum() > 100
    assert not np.all(np.abs(plain.astype(int) - (14, 127, 255)) < 12, axis=2).any()


def test_a_run_too_short_for_a_score_still_has_a_picture(tmp_path: Path) -> None:
    write(tmp_path, line(100, 1.0, None))
    assert draw_curve(tmp_path).stat().st_size > 1000


BREAKOUT = GameSettings(game="breakout")
WIDTH, HEIGHT = 320, 210  # of a panel of a .gif, without its caption


def decode(path: Path) -> Bytes:
    with av.open(str(path)) as film:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)])


def panel(picture: Bytes, column: int) -> Bytes:
    left = column * (WIDTH + GAP)
    return picture[:HEIGHT, left : left + WIDTH]


@pytest.mark.slow
def test_each_panel_shows_its_own_game_pixel_for_pixel(tmp_path: Path) -> None:
    games = ("pong", "breakout")
    cells = [Cell(Scripted(GameSettings(game=name)), name, 3) for name in games]
    films = record_grid(cells, tmp_path / "a.gif", seconds=2.0)
    pictures = decode(tmp_path / "a.gif")
    assert pictures.shape == (30, HEIGHT + 24, 2 * WIDTH + GAP, 3)
    for column, name in enumerate(games):
        shown, _, _ = filmed_by_hand(GameSettings(game=name), 121, 3)
        want = np.stack([picture.repeat(2, axis=1) for picture in shown[:120:4]])
        have = np.stack([panel(picture, column) for picture in pictures])
        np.testing.assert_array_equal(have, want)
    assert not np.array_equal(panel(pictures[-1], 0), panel(pictures[-1], 1))
    assert [film.path for film in films] == [tmp_path / "a.gif"] * 2
    assert [film.seconds for film in films] == [2.0, 2.0]
    assert not any(film.over for film in films)


@pytest.mark.slow
def test_a_game_that_is_over_shows_its_end_until_the_others_are_over(tmp_path: Path) -> None:
    short, long = (GameSettings(game="breakout", max_frames=frames) for frames in (60, 120))
    cells = [Cell(Scripted(short), "short"), Cell(Scripted(long), "long")]
    first, second = record_grid(cells, tmp_path / "a.gif", seconds=60)
    assert (first.over, second.over) == (True, True)
    shown, scores, steps = zip(*(filmed_by_hand(game, 999) for game in (short, long)), strict=True)
    assert (first.steps, second.steps) == steps
    assert (first.score, second.score) == scores
    pictures = decode(tmp_path / "a.gif")
    ends = [len(each) for each in shown]
    assert len(pictures) == pytest.approx(ends[1] / 4 + HOLD * 15, abs=2)
    for column, end in enumerate(ends):
        held = {panel(picture, column).tobytes() for picture in pictures[end // 4 + 1 :]}
        assert len(held) == 1
        before = {panel(picture, column).tobytes() for picture in pictures[: end // 4 - 1]}
        assert len(before) > 3


def test_the_caption_has_the_score_so_far(tmp_path: Path) -> None:
    record_grid([Cell(Catcher(), "a game of Catch")], tmp_path / "a.gif", seconds=20)
    pictures = decode(tmp_path / "a.gif")
    height = 24
    first, last = pictures[0][-height:], pictures[-1][-height:]
    width = pictures.shape[2]
    np.testing.assert_array_equal(first, caption("a game of Catch", "score 0", width, height))
    np.testing.assert_array_equal(last, caption("a game of Catch", "score 1", width, height))
    assert len(pictures) == pytest.approx(15 * (9 / 6 + HOLD), abs=3)


@pytest.mark.slow
def test_games_of_different_sizes_stand_beside_each_other(tmp_path: Path) -> None:
    cells = [Cell(Catcher(), "Catch"), Cell(Scripted(BREAKOUT), "Breakout")] * 2
    films = record_grid(cells, tmp_path / "a.mp4", seconds=1.0)
    assert len(films) == 4
    pictures = decode(tmp_path / "a.mp4")
    assert len(pictures) == 30
    place = (480 + 34, 480)  # Catch is the higher one, Breakout the wider one
    assert pictures.shape[1:3] == (2 * place[0] + GAP, 2 * place[1] + GAP)
    middle = pictures[0][place[0] // 2]
    assert middle[place[1] + GAP :].max() > 60  # Breakout
    assert pictures[0][:480, : place[1]].max() > 200  # the ball


def test_a_long_title_leaves_room_for_the_score() -> None:
    alone, beside = caption("", "score 21", 320, 24), caption("W" * 200, "score 21", 320, 24)
    assert alone.shape == beside.shape == (24, 320, 3)
    score = slice(int(alone.any(axis=(0, 2)).argmax()), None)
    np.testing.assert_array_equal(alone[:, score], beside[:, score])
    assert alone[:, score].max() > 100
    assert beside[:, : score.start - 8].max() > 100
    assert not beside[:, score.start - 4 : score.start].any()
    assert set(np.unique(beside)) <= {0, 51, 102, 153, 204, 255}


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_too_many_games_or_none_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ColobusError, match=f"{count} games in one picture: must be 1 to 36"):
        record_grid([Cell(Catcher(), "")] * count, tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_other_kinds_of_film_are_refused_before_a_game_begins(tmp_path: Path) -> None:
    with pytest.raises(ColobusError, match=r"a film is an \.mp4 or a \.gif"):
        record_grid([Cell(Catcher(), "")], tmp_path / "a.avi")
    with pytest.raises(ColobusError, match="must be more than 0"):
        record_grid([Cell(Catcher(), "")], tmp_path / "a.mp4", seconds=0)
