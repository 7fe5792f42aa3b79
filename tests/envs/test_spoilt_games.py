"""Saved games in progress that mean no good: each is refused by name, and none makes a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gelada.core.errors import GeladaError
from gelada.core.seeding import game_seeds
from gelada.core.types import State
from gelada.envs.api import GameSettings, Savable
from gelada.envs.catch import CatchGames
from gelada.envs.make import make_games
from gelada.envs.replayed import ReplayedGames
from gelada.envs.replayed_process import ReplayProcess
from gelada.roles.snapshot import continued, restoring

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
    with pytest.raises(GeladaError, match=rf"{part} |resets |actions |did not come out as they"):
        ReplayedGames(PONG, saved | {part: SPOILS[how](saved[part])})


@pytest.mark.processes
def test_a_seed_that_the_emulator_cannot_have_is_named(saved: State) -> None:
    seeds = np.full_like(saved["seeds"], 2**31)
    with pytest.raises(GeladaError, match=r"^seeds is not one number from 0 to 2,147,483,647 "):
        ReplayedGames(PONG, saved | {"seeds": seeds})


@pytest.mark.slow
def test_another_action_or_order_does_not_pass(saved: State) -> None:
    for part in ("actions", "checksums", "seeds"):
        with pytest.raises(GeladaError, match="did not come out as they were"):
            ReplayedGames(PONG, saved | {part: saved[part][::-1].copy()})


@pytest.mark.processes
def test_a_helper_tells_what_it_cannot_take(
    saved: State, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GeladaError, match=r"^steps is missing or no array of whole numbers$"):
        ReplayProcess(PONG, saved | {"steps": 3})
    with pytest.raises(GeladaError, match="error"):  # of OpenCV
        ReplayProcess(GameSettings(game="pong", size=0, max_frames=2000), saved)
    assert capfd.readouterr().err == ""  # no traceback of the helper


@pytest.mark.parametrize("part", ["row", "ball", "paddle", "random", "dark"])
def test_a_spoilt_game_of_catch_begins_anew_or_is_refused(part: str) -> None:
    state = CatchGames(np.array([5, 6])).save()
    del state[part]
    with pytest.warns(UserWarning, match=f"^actor-0 begins new games: '{part}'$"):
        assert continued({"games": state}, CatchGames.continued, "actor-0", exactly=False) is None
    with pytest.raises(GeladaError, match=f"^the games of actor-0 cannot go on: '{part}'$"):
        continued({"games": state}, CatchGames.continued, "actor-0", exactly=True)


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
                pytest.raises(GeladaError, match=f"actor-0 cannot go on from .*: {part} of shape"),
                restoring(lasting | {part: wrong}, "actor-0", games, stack=3),
            ):
                pytest.fail("it was taken")
        gone = {name: kept for name, kept in lasting.items() if name != part}
        with (
            pytest.raises(GeladaError, match=f"actor-0 cannot go on from .*KeyError: '{part}'"),
            restoring(gone, "actor-0", games, stack=3),
        ):
            pytest.fail("it was taken")
