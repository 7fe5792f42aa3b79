"""``colobus record``: an agent's progress, several games in one picture, and what is refused."""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from colobus.core.checkpoint import write_checkpoint
from colobus.core.types import Version
from helpers.launching import printed, refused, told
from helpers.players import CATCH, make_checkpoint, make_experiment, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of Catch with checkpoints after 500 and 1,000 steps."""
    write_run(tmp_path / "catch-1")
    half = make_checkpoint(make_experiment(CATCH), 3, 500)._replace(version=Version(0, 3))
    write_checkpoint(tmp_path / "catch-1" / "checkpoints", half)
    return tmp_path / "catch-1"


def size(path: Path) -> tuple[int, int]:
    with av.open(str(path)) as film:
        return film.streams.video[0].width, film.streams.video[0].height


def test_milestones_are_filmed_side_by_side(folder: Path) -> None:
    said = told("record", folder, "--milestones", "--gif")
    assert said["film"] == str(folder / "videos" / "milestones.gif")
    assert [game["title"] for game in said["games"]] == [
        "before: 0 steps",
        "half way: 500 steps",
        "after: 1,000 steps",
    ]
    assert all(game["over"] and game["score"] in (-1.0, 1.0) for game in said["games"])
    assert size(folder / "videos" / "milestones.gif") == (3 * 240 + 2 * 6, 264)


def test_without_a_checkpoint_half_way_it_says_so(folder: Path) -> None:
    (folder / "checkpoints" / "00000003.json").unlink()
    said = printed("record", folder, "--milestones", "--seconds", 1)
    assert "no complete checkpoint is near half way" in said
    assert size(folder / "videos" / "milestones.mp4") == (2 * 360 + 6, 514)


def test_several_games_of_a_run_are_in_one_picture(folder: Path) -> None:
    said = printed("record", folder, "--grid", 4, "--seed", 7, "--gif")
    assert [f"seed {seed}: score" in said for seed in (7, 8, 9, 10)] == [True] * 4
    assert said.count("the game was over") == 4
    assert size(folder / "videos" / "1000-grid.gif") == (2 * 240 + 6, 2 * 264 + 6)


def test_several_runs_are_in_one_picture(folder: Path) -> None:
    other = folder.with_name("catch-2")
    write_run(other)
    out = folder.with_name("both.mp4")
    said = told("record", folder, other, "--out", out)
    assert [game["title"] for game in said["games"]] == ["catch-1", "catch-2"]
    assert size(out) == (2 * 360 + 6, 514)


def test_one_game_can_be_a_gif_and_is_told_as_json(folder: Path) -> None:
    said = told("record", folder, "--gif")
    assert said["film"] == str(folder / "videos" / "1000.gif")
    assert (folder / "videos" / "1000.gif").read_bytes()[:4] == b"GIF8"
    assert said["games"][0]["steps"] == 9


REFUSED = {
    "record": "RUN is missing",
    "record RUN --gif --out a.mp4": "--gif with --out a.mp4",
    "record RUN --milestones --grid 2": "--milestones with --grid: two kinds of films",
    "record RUN RUN --milestones": "--milestones with 2 runs: takes one run",
    "record RUN --milestones --checkpoint 7": "--milestones with --checkpoint",
    "record RUN RUN --checkpoint 7": "--checkpoint with 2 runs",
    "record RUN RUN": "a film of 2 runs: say where with --out FILE",
    "record RUN --grid 37": "--grid 37: must be at least 0 and at most 36",
    "record RUN RUN --grid 20 --out a.mp4": "2 runs with --grid 20: at most 36 games in all",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_one_line(folder: Path, words: str) -> None:
    said = refused(*(folder if word == "RUN" else word for word in words.split()))
    assert said.startswith(f"colobus: {REFUSED[words]}")
    assert not (folder / "videos").exists()
