"""Films: what is in them, and that they appear whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colobus.core.checkpoint import list_checkpoints, newest_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds
from colobus.core.types import Bytes
from colobus.envs.ale import AleGame
from colobus.envs.api import GameSettings
from colobus.evaluation.films.grid import GAP, HOLD, MOST, Cell, caption, record_grid
from colobus.evaluation.films.milestones import milestones, untrained
from colobus.evaluation.films.player import record
from colobus.runs.config import read_config
from colobus.training.run import train
from colobus.training.start import begin, make_network
from conftest import catch
from helpers.players import (
    BREAKOUT,
    CATCH,
    Catcher,
    Clock,
    Scripted,
    Waiting,
    add_checkpoint,
    decoded,
    filmed_by_hand,
    make_agent,
    played_by_hand,
    write_run,
)


def enlarged(shown: list[Bytes]) -> Bytes:
    """Return what a .gif has to show of the emulator's pictures: every fourth, larger."""
    return np.stack([p.repeat(2, axis=0).repeat(3, axis=1) for p in shown[::4]])


@pytest.mark.slow
def test_an_mp4_shows_every_second_frame_of_the_emulator(tmp_path: Path) -> None:
    film = record(Scripted(BREAKOUT), tmp_path / "a.mp4", seconds=4.0)
    shown, score, steps = filmed_by_hand(BREAKOUT, 240)
    assert (film.path, film.score, film.steps) == (tmp_path / "a.mp4", score, steps)
    assert not film.over
    assert film.seconds == pytest.approx(len(shown) / 60)
    assert len(shown) == 1 + 4 * steps == 241
    pictures, rate = decoded(film.path)
    assert pictures.shape == (121, 630, 640, 3)
    assert rate == pytest.approx(30, rel=0.01)
    for i in (0, 1, 60, 120):
        whole = shown[2 * i].repeat(3, axis=0).repeat(4, axis=1).astype(int)
        error = np.abs(pictures[i] - whole)
        assert error.mean() < 4
        assert np.quantile(error, 0.98) < 40  # halved colour resolution smears edges


@pytest.mark.slow
def test_a_gif_has_the_exact_colours(tmp_path: Path) -> None:
    film = record(Scripted(BREAKOUT), tmp_path / "a.gif", seconds=2.0)
    shown, score, _ = filmed_by_hand(BREAKOUT, 120)
    assert film.score == score
    pictures, rate = decoded(film.path)
    assert rate == pytest.approx(15, rel=0.05)
    np.testing.assert_array_equal(pictures, enlarged(shown))
    colours = {bytes(colour) for picture in shown for colour in picture[::5, ::5].reshape(-1, 3)}
    assert len(colours) > 8


@pytest.mark.parametrize(("suffix", "zoom"), [(".mp4", (24, 32)), (".gif", (16, 24))])
def test_catch_is_drawn(tmp_path: Path, suffix: str, zoom: tuple[int, int]) -> None:
    film = record(Catcher(), tmp_path / f"catch{suffix}")
    assert (film.games, film.score, film.steps, film.over) == (1, 1.0, 9, True)
    pictures, rate = decoded(film.path)
    assert rate == pytest.approx(6, rel=0.05)
    assert pictures.shape == (9, 10 * zoom[0], 5 * zoom[1], 3)
    squares = pictures[:, zoom[0] // 2 :: zoom[0], zoom[1] // 2 :: zoom[1]].min(axis=-1) > 127
    np.testing.assert_array_equal(squares[:, :9].sum(axis=(1, 2)), np.ones(9))  # the ball …
    np.testing.assert_array_equal(squares[:, :9].any(axis=2).argmax(axis=1), np.arange(9))  # falls
    np.testing.assert_array_equal(squares[:, 9].sum(axis=1), np.ones(9))  # the paddle


@pytest.mark.slow
def test_a_film_of_several_games_begins_another_when_one_is_over(tmp_path: Path) -> None:
    """23 steps and 93 pictures a game; the film ends in the third. All steps are whole ones."""
    settings = GameSettings(game="breakout", max_frames=90)
    film = record(Scripted(settings), tmp_path / "a.gif", seconds=4.0, several=True)
    assert (film.games, film.over) == (3, False)
    assert film.seconds == pytest.approx((93 + 93 + 1 + 4 * 14) / 60)
    assert film.steps == 23 + 23 + 14
    agent = Scripted(settings)
    shown: list[Bytes] = []
    game = AleGame(settings, int(game_seeds(1, "film", 1)[0]))
    while len(shown) < 240:
        played_by_hand(agent, game, None, shown, 240)
    pictures, _ = decoded(film.path)
    np.testing.assert_array_equal(pictures, enlarged(shown))


def test_several_games_of_catch_are_scored_together(tmp_path: Path) -> None:
    """Nine boards a game, six a second; the last step of a game shows none."""
    film = record(Catcher(), tmp_path / "a.gif", seconds=6.5, several=True)
    assert (film.games, film.score, film.steps, film.over) == (5, 4.0, 4 * 9 + 2, False)
    assert film.seconds == pytest.approx(6.5)
    pictures, _ = decoded(film.path)
    assert len(pictures) == 39


@pytest.mark.slow
def test_the_stuck_guard_plays_in_a_film(tmp_path: Path) -> None:
    """An agent that only waits never serves the second ball; with the guard it loses all five."""
    settings = GameSettings(game="breakout", fire_on_life_loss=False)
    agent = Waiting(settings)
    assert not record(agent, tmp_path / "a.mp4", 30.0).over
    film = record(agent, tmp_path / "b.mp4", 30.0, stuck=5)
    assert film.over
    assert film.seconds < 30


@pytest.mark.slow
def test_the_seed_and_the_policy_decide_the_film(tmp_path: Path) -> None:
    agent = make_agent(BREAKOUT)
    films = [record(agent, tmp_path / f"{i}.gif", 1.5, seed) for i, seed in enumerate((1, 1, 2))]
    films.append(record(agent, tmp_path / "greedy.gif", 1.5, policy="greedy"))
    first, again, *others = (film.path.read_bytes() for film in films)
    assert first == again
    assert first not in others


def filmed_alone(path: Path, seconds: float = 1.0) -> None:
    record(make_agent(), path, seconds)


def filmed_in_a_grid(path: Path, seconds: float = 1.0) -> None:
    record_grid([Cell(make_agent(), "")], path, seconds)


@pytest.mark.parametrize("film", [filmed_alone, filmed_in_a_grid])
def test_other_kinds_of_film_are_refused(tmp_path: Path, film: Callable[..., None]) -> None:
    for name in ("film.avi", "film", "film.mp4.txt"):
        with pytest.raises(ColobusError, match=r"a film is an \.mp4 or a \.gif; name it film"):
            film(tmp_path / name)
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(ColobusError, match="must be more than 0"):
            film(tmp_path / "a.mp4", seconds)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_seed_is_refused_in_a_line(tmp_path: Path) -> None:
    wrong: Any = 1.5
    lines = {-1: "^seed -1: must be at least 0", wrong: "^seed 1.5: must be a whole number"}
    for seed, line in lines.items():
        with pytest.raises(ColobusError, match=line):
            record(Catcher(), tmp_path / "a.gif", seed=seed)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.mp4").mkdir()
    long = tmp_path / f"{'x' * 250}.mp4"  # FFmpeg says it, in an error of its own
    for out in (tmp_path / "file" / "a.mp4", tmp_path / "folder.mp4", long):
        with pytest.raises(ColobusError, match=f"cannot write {out}: .*name another file"):
            record(Catcher(), out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.mp4"]


@pytest.mark.parametrize(
    "name",
    [
        "12:30/film.mp4",
        "tcp:/127.0.0.1:9/film.gif",
        "file:film.gif",
        "concat:a|b.gif",
        "-x.gif",
        "%03d.gif",
    ],
)
def test_a_name_is_no_address(here: Path, name: str) -> None:
    """FFmpeg would connect to some of them, or look for a protocol called 12."""
    film = record(Catcher(), Path(name), 1.5)
    assert film.path.name == Path(name).name
    assert (here / name).stat().st_size > 100


def test_an_interrupted_film_leaves_the_older_one(tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "a.gif"
    record(Catcher(), out)
    before = out.read_bytes()

    def interrupt(done: float, seconds: float) -> None:
        assert out.read_bytes() == before
        if done > 1.0:
            assert list(out.parent.glob(".*")) != []  # it is written under another name
            raise KeyboardInterrupt

    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        record(Catcher(), out, progress=interrupt)
    assert out.read_bytes() == before
    assert [path.name for path in out.parent.iterdir()] == ["a.gif"]
    assert torch.get_num_threads() == threads


def test_progress_counts_the_seconds_of_the_film(tmp_path: Path) -> None:
    told: list[tuple[float, float]] = []
    record(
        make_agent(CATCH), tmp_path / "a.gif", 1.0, progress=lambda *numbers: told.append(numbers)
    )
    seconds, of = zip(*told, strict=True)
    assert seconds == pytest.approx([min((2 + i) / 6, 1.0) for i in range(5)])
    assert set(of) == {1.0}


def test_a_film_carries_the_state_of_each_game(tmp_path: Path) -> None:
    agent = Clock(CATCH)
    film = record(agent, tmp_path / "a.gif", seconds=6.5, several=True)
    assert film.games == 5
    assert agent.states == [[t] for t in (*range(9), *range(9), *range(9), *range(9), 0, 1)]


def test_the_untrained_agent_is_that_of_version_0(tmp_path: Path) -> None:
    """The weights that a run began with are made again from its settings and a later checkpoint."""
    experiment = catch(2_000, deterministic=True, seed=5)
    folder = train(experiment, tmp_path / "run", name="catch").folder
    config = read_config(folder)
    _, last, _ = newest_checkpoint(folder / "checkpoints")
    agent = untrained(config, last)
    start = begin(config.experiment)
    want = dict(make_network(config.experiment, start).named_parameters())
    have = dict(agent.net.named_parameters())
    assert have.keys() == want.keys()
    assert all(torch.equal(have[name], want[name]) for name in want)
    assert torch.equal(agent.net.mean, torch.from_numpy(start.statistics.mean))
    assert not torch.equal(
        have["heads.policy.weight"], last.tensors["parameter/heads.policy.weight"]
    )
    assert agent.checkpoint.steps == 0


@pytest.mark.parametrize(
    ("others", "titles"),
    [
        ({1: 100, 2: 300, 3: 480, 5: 800}, "before: 0, half way: 480"),
        ({6: 900}, "before: 0"),
        ({0: 64}, "before: 64"),
    ],
    ids=["half way is the nearest to half", "none is near half", "version 0 is what was before"],
)
def test_milestones(tmp_path: Path, others: dict[int, int], titles: str) -> None:
    write_run(tmp_path)  # version 7 after 1,000 steps
    for number, steps in others.items():
        add_checkpoint(tmp_path, number, steps)
    found = milestones(tmp_path)
    want = [f"{title} steps" for title in titles.split(", ")]
    assert [one.title for one in found] == [*want, "after: 1,000 steps"]
    for one in found:
        assert one.title == f"{one.name}: {one.agent.checkpoint.steps:,} steps"


def test_damaged_checkpoints_are_passed_over_a_run_without_any_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path)
    add_checkpoint(tmp_path, 3, 500).write_bytes(b"damaged")
    add_checkpoint(tmp_path, 4, 600)
    assert [one.agent.checkpoint.steps for one in milestones(tmp_path)] == [0, 600, 1000]
    for path in list_checkpoints(tmp_path / "checkpoints"):
        path.unlink()
    with pytest.raises(ColobusError, match="no complete checkpoint"):
        milestones(tmp_path)


WIDTH, HEIGHT = 320, 210  # of a panel of a .gif, without its caption


def panel(picture: Bytes, column: int) -> Bytes:
    left = column * (WIDTH + GAP)
    return picture[:HEIGHT, left : left + WIDTH]


@pytest.mark.slow
def test_each_panel_shows_its_own_game_pixel_for_pixel(tmp_path: Path) -> None:
    games = ("pong", "breakout")
    cells = [Cell(Scripted(GameSettings(game=name)), name, 3) for name in games]
    films = record_grid(cells, tmp_path / "a.gif", seconds=2.0)
    pictures, _ = decoded(tmp_path / "a.gif")
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
    pictures, _ = decoded(tmp_path / "a.gif")
    ends = [len(each) for each in shown]
    assert len(pictures) == pytest.approx(ends[1] / 4 + HOLD * 15, abs=2)
    for column, end in enumerate(ends):
        held = {panel(picture, column).tobytes() for picture in pictures[end // 4 + 1 :]}
        assert len(held) == 1
        before = {panel(picture, column).tobytes() for picture in pictures[: end // 4 - 1]}
        assert len(before) > 3


def test_the_caption_has_the_score_so_far(tmp_path: Path) -> None:
    record_grid([Cell(Catcher(), "a game of Catch")], tmp_path / "a.gif", seconds=20)
    pictures, _ = decoded(tmp_path / "a.gif")
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
    pictures, _ = decoded(tmp_path / "a.mp4")
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
