"""``gelada show`` of a run that somebody else has made: what its files say steers nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gelada.cli.main import run as command
from helpers.hostile import make_run

NAME = "[/b][link=http://example.org]\x1b[2Jred"


def spoil(run: Path, group: str, name: str, value: str) -> None:
    data = json.loads((run / "config.json").read_text())
    place = data[group] if group else data
    place[name] = value
    (run / "config.json").write_text(json.dumps(data))


def test_names_in_a_table_are_printed_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    make_run(run)
    spoil(run, "", "name", NAME)
    assert command(["show", str(run)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "[/b][link=http://example.org]?[2Jred" in "".join(said.out.split("\n"))
    assert "\x1b" not in said.out


def test_an_unknown_game_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    make_run(run)
    spoil(run, "games", "game", "\x1b[2Jponk")
    assert command(["show", str(run)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "config.json: unknown game '" in said.err
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err
