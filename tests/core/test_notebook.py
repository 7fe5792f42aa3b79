"""What a notebook shows of a run, an agent, an evaluation and a film."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.core.notebook import html_film, html_table
from colobus.evaluation.evaluator import evaluate
from colobus.roles.tracker import Status
from helpers.browsing import Page
from helpers.players import CATCH, make_agent

NASTY = "<script>alert('1')</script>\x1b[2J"


def shown(thing: Any) -> Page:
    return Page(thing._repr_html_())


def test_a_table_escapes_everything_and_leaves_out_what_is_not_known() -> None:
    page = Page(html_table(NASTY, {NASTY: NASTY, "no": None, "nor": "", "zero": 0}))
    assert page.texts == [NASTY.replace("\x1b", "?")] * 3 + ["zero", "0"]
    assert {tag for tag, _ in page.tags} == {"table", "caption", "tr", "th", "td"}


def test_a_run(tmp_path: Path) -> None:
    status = Status(steps=12_345, seconds=61.0, games=60, score=1.25, best=2.0)
    texts = shown(colobus.Result(tmp_path / NASTY, status, interrupted=True)).texts
    assert texts[0].startswith("Run ")
    for text in ("12,345", "60", "1.25 (mean of the last games)", "2.00", "1:01", "Ctrl-C"):
        assert text in texts
    assert "all saved" not in texts
    nothing = shown(colobus.Result(tmp_path, Status(), False, stopped=NASTY, saved=False)).texts
    assert NASTY.replace("\x1b", "?") in nothing
    assert nothing[-2:] == ["all saved", "no"]
    assert "score" not in nothing


def test_an_agent_and_its_evaluation() -> None:
    agent = make_agent(CATCH)
    texts = shown(agent).texts
    assert texts[0] == "Agent that plays catch"
    for text in ("1,000 steps by APPO", "[4, 10, 5]", "3", "sampled policy"):
        assert text in texts
    for episodes, score in ((1, "{:.2f}"), (4, "{:.2f} ± ")):
        evaluation = evaluate(agent, "training", episodes)
        texts = shown(evaluation).texts
        assert texts[0] == "catch, protocol training"
        assert texts[2].startswith(score.format(evaluation.mean))
        assert f"{episodes} of {episodes}" in texts


@pytest.mark.parametrize(("name", "tag"), [("film.mp4", "video"), ("film.GIF", "img")])
def test_a_film_is_played_where_it_is_small_enough(
    name: str, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    film = colobus.Film(path, 3.5, 1000, 20.0, True, 1)
    assert "video" not in dict(shown(film).tags)  # no file
    path.write_bytes(b"a film")
    page = shown(film)
    assert page.texts == [f"{path}: score 3.5 in 1,000 steps, 20 s"]
    source: Any = dict(dict(page.tags)[tag])["src"]
    assert base64.b64decode(source.partition(",")[2]) == b"a film"
    monkeypatch.setattr("colobus.core.notebook.MOST_BYTES", 5)
    assert html_film(path) == ""
