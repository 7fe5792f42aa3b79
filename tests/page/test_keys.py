"""From the keys that are held down to an action."""

from __future__ import annotations

import pytest

from gelada.envs.api import GameSettings
from gelada.envs.make import action_names
from gelada.page.live import action_of

PONG = action_names(GameSettings(game="pong"))
ALL = action_names(GameSettings(game="seaquest"))


def name_of(keys: str, names: tuple[str, ...]) -> str:
    return names[action_of(frozenset(keys.split()), names)]


@pytest.mark.parametrize(
    ("keys", "action"),
    {
        "": "NOOP",
        "up": "RIGHT",  # in a game without up and down
        "down": "LEFT",
        "right fire": "RIGHTFIRE",
        "fire": "FIRE",
        "left right": "NOOP",
        "up left": "NOOP",
    }.items(),
)
def test_pong(keys: str, action: str) -> None:
    assert name_of(keys, PONG) == action


@pytest.mark.parametrize(
    ("keys", "action"),
    {
        "": "NOOP",
        "up": "UP",
        "up right": "UPRIGHT",
        "down left fire": "DOWNLEFTFIRE",
        "up down left": "LEFT",
        "3": "NOOP",
    }.items(),
)
def test_all_actions_of_an_atari(keys: str, action: str) -> None:
    assert len(ALL) == 18
    assert name_of(keys, ALL) == action


def test_what_a_game_has_not_is_left_out() -> None:
    names = ("NOOP", "UP", "RIGHT", "UPRIGHT")
    assert name_of("up right fire", names) == "UPRIGHT"
    assert name_of("down right", names) == "RIGHT"
    assert name_of("fire", names) == "NOOP"


def test_catch_stays_without_a_key() -> None:
    names = ("LEFT", "STAY", "RIGHT")
    assert [name_of(keys, names) for keys in ("", "left", "right")] == ["STAY", "LEFT", "RIGHT"]


def test_digits_choose_numbered_actions() -> None:
    names = tuple(map(str, range(4)))
    assert [action_of(frozenset(key), names) for key in ("", "2", "3", "9")] == [0, 2, 3, 0]
