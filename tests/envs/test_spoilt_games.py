"""Saved games in progress: they go on as if never stopped, and spoilt ones are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colobus.core.arrays import join, split
from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds
from colobus.core.types import Ints, State
from colobus.envs.api import Games, GameSettings
from colobus.envs.catch import CatchGames
from colobus.envs.frames import StuckGuard
from colobus.envs.make import is_atari, make_games, resume_games
from colobus.envs.replayed import ReplayedGames
from colobus.envs.replayed_process import ReplayProcess
from colobus.roles.snapshot import restoring, resumed_games
from helpers.launching import python

PONG = GameSettings(game="pong", sticky=0.25, max_frames=400)
LONG = replace(PONG, max_frames=2000)


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


def through_a_file(games: Any) -> State:
    """Return the state as a checkpoint gives it back."""
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
def test_helpers_do_without_what_is_large(modules: str, needed: set[str], spared: str) -> None:
    said = python("-c", f"import sys, {modules}; print(*sys.modules)")
    loaded = {name.partition(".")[0] for name in said.split()}
    assert needed <= loaded
    assert spared not in loaded


def test_an_environment_that_cannot_go_on_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.envs import make

    plain = make.ENVIRONMENTS["catch"]._replace(resume=None)
    monkeypatch.setitem(make.ENVIRONMENTS, "catch", plain)
    with pytest.raises(ColobusError, match="games of catch cannot go on"):
        resume_games(GameSettings(game="catch"), {})


@pytest.mark.processes
def test_modules_of_the_working_folder_are_not_taken_for_pythons_own(here: Path) -> None:
    games = played(PONG, 0)
    (here / "random.py").write_text("raise SystemExit('this is no random')")
    on = resume_games(PONG, through_a_file(games))
    assert_equal_from_here(games, on, 30, seed=2)


@pytest.fixture(scope="module")
def saved() -> State:
    """Two games of Pong after 150 steps."""
    state = through_a_file(played(LONG, 150))
    ReplayedGames(LONG, state)
    return state


SPOILS: dict[str, Callable[[Any], Any]] = {
    "missing": lambda _: None,
    "a text": lambda _: "x",
    "a list": lambda value: value.tolist(),
    "empty": lambda value: value[:0],
    "of one game": lambda value: value[:1],
    "twice": lambda value: np.concatenate([value, value]),
    "a number": lambda _: np.int64(1),
    "a matrix": lambda value: value[None],
    "fractions": lambda value: value.astype(np.float64),
    "bytes": lambda value: value.astype(np.int8),
    "negative": lambda value: -1 - value.astype(np.int64),
    "huge": lambda value: np.full_like(value, np.iinfo(value.dtype).max),
}


@pytest.mark.processes
@pytest.mark.parametrize("how", SPOILS)
@pytest.mark.parametrize(
    "part", ["seeds", "resets", "frames", "opening", "steps", "actions", "checksums"]
)
def test_a_spoilt_part_of_an_atari_game_is_named(part: str, how: str, saved: State) -> None:
    with pytest.raises(ColobusError, match=rf"{part} |resets |actions |did not come out as they"):
        ReplayedGames(LONG, saved | {part: SPOILS[how](saved[part])})


@pytest.mark.processes
def test_a_seed_that_the_emulator_cannot_have_is_named(saved: State) -> None:
    seeds = np.full_like(saved["seeds"], 2**31)
    with pytest.raises(ColobusError, match=r"^seeds is not one number from 0 to 2,147,483,647 "):
        ReplayedGames(LONG, saved | {"seeds": seeds})


@pytest.mark.slow
@pytest.mark.processes
def test_a_game_that_comes_out_otherwise_is_refused(saved: State) -> None:
    """With another action or order, or other random numbers for sticky actions."""
    with pytest.raises(ColobusError, match="of 2 games of pong did not come out as they were"):
        resume_games(LONG, saved | {"frames": saved["frames"] + 1})
    for part in ("actions", "checksums", "seeds"):
        with pytest.raises(ColobusError, match="did not come out as they were"):
            ReplayedGames(LONG, saved | {part: saved[part][::-1].copy()})
    with pytest.raises(ColobusError, match="did not come out"):
        ReplayedGames(replace(LONG, sticky=0.0), saved)


@pytest.mark.processes
def test_a_helper_says_what_it_cannot_take(saved: State, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ColobusError, match=r"^steps is missing or no array of whole numbers$"):
        ReplayProcess(LONG, saved | {"steps": 3})
    with pytest.raises(ColobusError, match="error"):  # of OpenCV
        ReplayProcess(GameSettings(game="pong", size=0, max_frames=2000), saved)
    assert capfd.readouterr().err == ""  # no traceback of the helper


@pytest.mark.parametrize("part", ["row", "ball", "paddle", "random", "dark"])
def test_a_spoilt_game_of_catch_begins_anew_or_is_refused(part: str) -> None:
    state = CatchGames(np.array([5, 6])).save()
    del state[part]
    with pytest.warns(UserWarning, match=f"^actor-0 begins new games: '{part}'$"):
        assert resumed_games({"games": state}, CatchGames.resumed, "actor-0", exactly=False) is None
    with pytest.raises(ColobusError, match=f"^the games of actor-0 cannot go on: '{part}'$"):
        resumed_games({"games": state}, CatchGames.resumed, "actor-0", exactly=True)


def test_what_lasts_beside_the_games_has_their_shape() -> None:
    games = CatchGames(np.array([5, 6]))
    rows = np.zeros(2, dtype=np.int64)
    lasting = {"ages": rows, "lengths": rows, "scores": np.zeros(2)}
    lasting["frames"] = np.zeros((2, 3, *games.frame_shape), dtype=np.uint8)
    with restoring(lasting, "actor-0", games, stack=3):
        pass
    for part, value in lasting.items():
        for wrong in (value[:1], value[None]):
            with (
                pytest.raises(ColobusError, match=f"actor-0 cannot go on from .*: {part} of shape"),
                restoring(lasting | {part: wrong}, "actor-0", games, stack=3),
            ):
                pytest.fail("it was taken")
        gone = {name: kept for name, kept in lasting.items() if name != part}
        with (
            pytest.raises(ColobusError, match=f"actor-0 cannot go on from .*KeyError: '{part}'"),
            restoring(gone, "actor-0", games, stack=3),
        ):
            pytest.fail("it was taken")


NAMES = ("NOOP", "RIGHT", "FIRE", "LEFT")


def slow(actions: Sequence[int], over: Sequence[bool], limit: int) -> tuple[list[int], list[int]]:
    """Return what one game is given, and how often FIRE was pressed in each game that ended."""
    given_to_game: list[int] = []
    pressed: list[int] = []
    row: list[int] = []
    presses = 0
    for action, ended in zip(actions, over, strict=True):
        row = [*row, action] if row and row[-1] == action else [action]
        if len(row) > limit:
            given_to_game.append(2)
            presses, row = presses + 1, []
        else:
            given_to_game.append(action)
        if ended:
            pressed.append(presses)
            presses, row = 0, []
    return given_to_game, pressed


@pytest.mark.slow
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_equals_a_loop_over_single_games(limit: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, steps = 3, 60
    actions = rng.choice(4, size=(steps, count), p=[0.7, 0.1, 0.1, 0.1])
    over = rng.random((steps, count)) < 0.05
    guard = StuckGuard(limit, NAMES, count)
    played: list[Ints] = []
    pressed: list[list[int]] = [[] for _ in range(count)]
    for chosen, ended in zip(actions, over, strict=True):
        before = chosen.copy()
        played.append(guard.let_through(chosen))
        np.testing.assert_array_equal(chosen, before)
        for b in np.flatnonzero(ended).tolist():
            pressed[b].append(int(guard.pressed[b]))
        guard.begin(ended)
    got = np.stack(played)
    for b in range(count):
        wanted = slow(actions[:, b].tolist(), over[:, b].tolist(), limit)
        assert (got[:, b].tolist(), pressed[b]) == wanted


def test_thirty_equal_actions_are_let_through_and_then_one_fire() -> None:
    guard = StuckGuard(30, NAMES, 1)
    played = [int(guard.let_through(np.array([3]))[0]) for _ in range(62)]
    assert played == [3] * 30 + [2] + [3] * 30 + [2]
    assert guard.pressed.tolist() == [2]


@pytest.mark.parametrize(
    ("names", "action"), [(("NOOP", "FIRE", "UP"), 1), (("NOOP", "UP", "LEFT"), 1), (NAMES, 2)]
)
def test_a_game_without_fire_gets_its_action_1(names: tuple[str, ...], action: int) -> None:
    guard = StuckGuard(2, names, 1)
    played = [int(guard.let_through(np.array([0]))[0]) for _ in range(3)]
    assert played == [0, 0, action]
