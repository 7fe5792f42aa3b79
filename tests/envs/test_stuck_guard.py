"""The stuck guard against a plain loop over single games."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gelada.core.types import Ints
from gelada.envs.frames import StuckGuard

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
        played.append(guard.let_through(chosen))
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


def test_what_was_chosen_is_not_changed() -> None:
    guard = StuckGuard(1, NAMES, 2)
    chosen = np.array([0, 0])
    for _ in range(4):
        guard.let_through(chosen)
    assert chosen.tolist() == [0, 0]
