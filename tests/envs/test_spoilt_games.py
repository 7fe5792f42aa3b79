"""Saved games in progress that mean no good: each is refused by name, and none makes a hang."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds
from colobus.core.types import Ints, State
from colobus.envs.api import GameSettings, Savable
from colobus.envs.catch import CatchGames
from colobus.envs.frames import StuckGuard
from colobus.envs.make import make_games
from colobus.envs.replayed import ReplayedGames
from colobus.envs.replayed_process import ReplayProcess
from colobus.roles.snapshot import restoring, resumed_games

PONG = GameSettings(game="pong", sticky=0.25, max_frames=2000)


@pytest.fixture(scope="module")
def saved() -> State:
    """Two games of Pong after 150 steps."""
    games = make_games(PONG, game_seeds(3, "go on", 2))
    games.reset()
    random = np.random.default_rng(1)
    for _ in range(150):
        games.step(random.integers(games.actions, size=2))
    assert isinstance(games, Savable)
    ReplayedGames(PONG, games.save())
    return games.save()


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
        ReplayedGames(PONG, saved | {part: SPOILS[how](saved[part])})


@pytest.mark.processes
def test_a_seed_that_the_emulator_cannot_have_is_named(saved: State) -> None:
    seeds = np.full_like(saved["seeds"], 2**31)
    with pytest.raises(ColobusError, match=r"^seeds is not one number from 0 to 2,147,483,647 "):
        ReplayedGames(PONG, saved | {"seeds": seeds})


@pytest.mark.slow
def test_another_action_or_order_does_not_pass(saved: State) -> None:
    for part in ("actions", "checksums", "seeds"):
        with pytest.raises(ColobusError, match="did not come out as they were"):
            ReplayedGames(PONG, saved | {part: saved[part][::-1].copy()})


@pytest.mark.processes
def test_a_helper_says_what_it_cannot_take(saved: State, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ColobusError, match=r"^steps is missing or no array of whole numbers$"):
        ReplayProcess(PONG, saved | {"steps": 3})
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


def by_hand(
    actions: Sequence[int], over: Sequence[bool], limit: int
) -> tuple[list[int], list[int]]:
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
        wanted = by_hand(actions[:, b].tolist(), over[:, b].tolist(), limit)
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
