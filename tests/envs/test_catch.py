"""The rules of Catch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colobus.core.types import Bytes, Ints
from colobus.envs.api import GameSettings
from colobus.envs.catch import COLUMNS, LIT, OTHERS, OWN, ROWS, CatchGames, CatchPairGames
from colobus.envs.make import make_games

BOARDS = 16


def own_at(frame: Bytes, row: int) -> int:
    return int(np.flatnonzero(frame[row] == OWN)[0])


def drawn(row: int, balls: list[int], paddles: list[int], player: int, players: int) -> Bytes:
    """Return what a player sees of its board: its own ball and paddle are in front."""
    frame = np.zeros((ROWS, COLUMNS), dtype=np.uint8)
    first = player // players * players
    for other in sorted(range(first, first + players), key=lambda one: one == player):
        frame[row, balls[other]] = OWN if other == player else OTHERS
        frame[ROWS - 1, paddles[other]] = OWN if other == player else OTHERS
    return frame


@pytest.mark.parametrize(("kind", "players"), [(CatchGames, 1), (CatchPairGames, 2)])
def test_games_by_the_rules(kind: Any, players: int) -> None:
    """Board by board in plain Python, over three games."""
    games, count = kind(np.arange(1, BOARDS + 1)), players * BOARDS
    frames = games.reset()
    assert games.count == count
    assert (frames.shape, frames.dtype) == ((count, 10, 5), np.uint8)
    assert (OWN, OTHERS) == (255, 128)
    rng = np.random.default_rng(0)
    rewards = set()
    for _ in range(3):
        balls, paddles = [own_at(frame, 0) for frame in frames], [2] * count
        for row in range(ROWS - 1):
            wanted = [drawn(row, balls, paddles, player, players) for player in range(count)]
            np.testing.assert_array_equal(frames, wanted)
            actions: Ints = rng.integers(3, size=count)
            step = games.step(actions)
            frames = step.frames
            moved = [paddle + int(a) - 1 for paddle, a in zip(paddles, actions, strict=True)]
            paddles = [min(max(place, 0), COLUMNS - 1) for place in moved]
            for first in range(0, count, players):
                board = range(first, first + players)
                caught = [1 if balls[p] == paddles[p] else -1 for p in board]
                want = sum(caught) / players if row == ROWS - 2 else 0.0
                assert step.rewards[first : first + players].tolist() == [want] * players
            rewards |= set(step.rewards.tolist())
            assert step.rewards.dtype == np.float32
            assert step.over.tolist() == [row == ROWS - 2] * count
            np.testing.assert_array_equal(step.terminated, step.over)
            assert not (step.truncated | step.forced).any()
    assert rewards == {-1.0, 0.0, 1.0}


def test_balls_fall_anywhere() -> None:
    games = CatchGames(np.arange(1, 65))
    columns = []
    frames = games.reset()
    for _ in range(20):
        columns += [own_at(frame, 0) for frame in frames]
        for _ in range(ROWS - 1):
            frames = games.step(np.ones(64, dtype=np.int64)).frames
    counts = np.bincount(columns, minlength=5)
    expected = len(columns) / 5
    assert ((counts - expected) ** 2 / expected).sum() < 18.5  # chi-square, 4 degrees, 99.9 %


def test_the_dark_catch_shows_the_ball_three_times_and_then_lets_the_paddle_move() -> None:
    settings = GameSettings(game="catch-dark", size=10)
    games, open_games = make_games(settings, np.arange(1, 65)), CatchGames(np.arange(1, 65))
    frames, lit = games.reset(), open_games.reset()
    rng = np.random.default_rng(0)
    scores = []
    for t in range(3 * (ROWS - 1)):
        row = t % (ROWS - 1)
        np.testing.assert_array_equal(frames[:, :-1], lit[:, :-1] if row < LIT else 0)
        np.testing.assert_array_equal(frames[:, -1], lit[:, -1])
        actions: Ints = rng.integers(3, size=64)
        allowed = actions if row >= LIT else np.ones(64, dtype=np.int64)
        step, other = games.step(actions), open_games.step(allowed)
        for name in ("rewards", "over", "terminated"):
            np.testing.assert_array_equal(getattr(step, name), getattr(other, name))
        scores += step.rewards[step.over].tolist()
        frames, lit = step.frames, other.frames
    assert LIT == 3
    assert set(scores) == {-1.0, 1.0}
