"""Atari games that go on in another emulator, and Catch: equal to games that were never stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from colobus.core.arrays import join, split
from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds
from colobus.core.types import Ints, State
from colobus.envs.api import Games, GameSettings, Savable
from colobus.envs.make import is_atari, make_games, resume_games
from colobus.envs.replayed import ReplayedGames
from helpers.launching import python

PONG = GameSettings(game="pong", sticky=0.25, max_frames=400)


def actions_of(games: Games, steps: int, seed: int) -> list[Ints]:
    random = np.random.default_rng(seed)
    return [random.integers(games.actions, size=games.count) for _ in range(steps)]


def assert_equal_from_here(one: Games, other: Games, steps: int, seed: int) -> int:
    """Play the same actions in both; return how many games ended."""
    over = 0
    for actions in actions_of(one, steps, seed):
        mine, theirs = one.step(actions), other.step(actions)
        for name in mine._fields:
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), err_msg=name)
        over += int(mine.over.sum())
    return over


def played(settings: GameSettings, steps: int, *ignored: int) -> Games:
    """Return two games after so many steps, and before them others that were broken off."""
    games = make_games(settings, game_seeds(3, "go on", 2))
    for seed, number in enumerate((*ignored, steps), 2 - len(ignored)):
        games.reset()
        for actions in actions_of(games, number, seed):
            games.step(actions)
    return games


def through_a_file(games: Games) -> State:
    """Return the state as a checkpoint gives it back."""
    assert isinstance(games, Savable)
    tensors, values = split(games.save(), "games")
    return join(tensors, values, "games")


def in_this_process(settings: GameSettings, state: State) -> Games:
    """Return games that go on, without a helper."""
    atari = is_atari(settings.game)
    return ReplayedGames(settings, state) if atari else resume_games(settings, state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "before"),
    [
        (PONG, 0),
        (PONG, 100),  # both games show the last frame before they are cut off
        (PONG, 400),
        (GameSettings(game="breakout", sticky=0.25), 350),
        (GameSettings(game="breakout", life_loss_ends=True), 333),
        (GameSettings(game="seaquest", sticky=0.25, colour=True), 150),
        (GameSettings(game="qbert", sticky=0.25, fire_at_reset=False, noop_max=1), 301),
        (GameSettings(game="freeway", frame_skip=1, max_frames=70), 150),
        (GameSettings(game="catch"), 25),
    ],
)
def test_games_go_on_where_they_stood(settings: GameSettings, before: int) -> None:
    games = played(settings, before, 20)  # as before a run, to measure its input
    again = in_this_process(settings, through_a_file(games))
    over = assert_equal_from_here(games, again, 160, 3)
    third = in_this_process(settings, through_a_file(again))
    over += assert_equal_from_here(games, third, 160, 4)
    assert over
    np.testing.assert_array_equal(games.reset(), third.reset())


@pytest.mark.processes
def test_a_helper_plays_the_games_that_go_on() -> None:
    games = played(PONG, 30)
    again = resume_games(PONG, through_a_file(games))
    assert (again.count, again.actions) == (games.count, games.actions)
    assert (again.action_names, again.frame_shape) == (games.action_names, games.frame_shape)
    assert assert_equal_from_here(games, again, 160, 3)
    saved, expected = through_a_file(again), through_a_file(games)
    assert saved.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(saved[name], value, err_msg=name)
    np.testing.assert_array_equal(games.reset(), again.reset())


@pytest.mark.processes
@pytest.mark.parametrize(
    ("modules", "needed", "spared"),
    [
        # to import torch takes longer than all else that a helper does before a run goes on
        ("colobus.envs.replayed_process, colobus.envs.ale", {"ale_py", "safetensors"}, "torch"),
        # OpenCV takes 40 MB, and only single games for films and replays need it
        ("colobus.envs.atari", {"ale_py"}, "cv2"),
    ],
)
def test_helpers_and_games_of_an_actor_do_without_what_is_large(
    modules: str, needed: set[str], spared: str
) -> None:
    said = python("-c", f"import sys, {modules}; print(*sys.modules)")
    loaded = {name.partition(".")[0] for name in said.split()}
    assert needed <= loaded
    assert spared not in loaded


@pytest.mark.processes
def test_a_game_that_comes_out_otherwise_is_refused() -> None:
    games = played(PONG, 60)
    assert isinstance(games, Savable)
    saved = games.save()
    spoilt = saved | {"frames": saved["frames"] + 1}  # other random numbers for sticky actions
    with pytest.raises(ColobusError, match="of 2 games of pong did not come out as they were"):
        resume_games(PONG, spoilt)
    with pytest.raises(ColobusError, match="did not come out"):
        ReplayedGames(replace(PONG, sticky=0.0), saved)


def test_an_environment_that_cannot_go_on_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.envs import make

    plain = make.ENVIRONMENTS["catch"]._replace(resume=None)
    monkeypatch.setitem(make.ENVIRONMENTS, "catch", plain)
    with pytest.raises(ColobusError, match="games of catch cannot go on"):
        resume_games(GameSettings(game="catch"), {})


@pytest.mark.processes
def test_modules_of_the_working_folder_are_not_taken_for_pythons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = played(PONG, 0)
    (tmp_path / "random.py").write_text("raise SystemExit('this is no random')")
    monkeypatch.chdir(tmp_path)
    on = resume_games(PONG, through_a_file(games))
    assert_equal_from_here(games, on, 30, seed=2)
