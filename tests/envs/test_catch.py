"""The rules of Catch."""

from __future__ import annotations

import numpy as np

from colobus.core.types import Bytes, Ints
from colobus.envs.api import GameSettings
from colobus.envs.catch import COLUMNS, LIT, OTHERS, OWN, ROWS, CatchGames, CatchPairGames
from colobus.envs.make import agents, make_games


def ball(frame: Bytes) -> tuple[int, int]:
    """Return row and column of the ball, which is above the paddle's row."""
    row, column = np.argwhere(frame[:-1])[0]
    return int(row), int(column)


def paddle(frame: Bytes) -> int:
    return int(np.flatnonzero(frame[-1])[0])


def test_a_game_by_the_rules() -> None:
    games = CatchGames(np.arange(1, 17))
    frames = games.reset()
    assert frames.shape == (16, ROWS, COLUMNS) == (16, 10, 5)
    assert frames.dtype == np.uint8
    assert set(np.unique(frames)) == {0, 255}
    assert ((frames > 0).sum(axis=(1, 2)) == 2).all()
    rng = np.random.default_rng(0)
    start = frames
    scores = np.zeros(16)
    for t in range(1, ROWS):
        actions: Ints = rng.integers(3, size=16)
        step = games.step(actions)
        wanted = [np.clip(paddle(f) + a - 1, 0, 4) for f, a in zip(frames, actions, strict=True)]
        assert step.rewards.dtype == np.float32
        assert not step.truncated.any()
        assert not step.forced.any()
        np.testing.assert_array_equal(step.over, step.terminated)
        assert step.over.all() == step.over.any() == (t == ROWS - 1)
        for b in range(16):
            column = ball(start[b])[1]
            if t < ROWS - 1:
                assert ball(step.frames[b]) == (t, column)
                assert paddle(step.frames[b]) == wanted[b]
                assert step.rewards[b] == 0
            else:
                assert step.rewards[b] == (1.0 if wanted[b] == column else -1.0)
                assert ball(step.frames[b])[0] == 0  # the next game has begun
                assert paddle(step.frames[b]) == 2
        scores += step.rewards
        frames = step.frames
    assert set(scores) == {-1.0, 1.0}


def test_balls_fall_anywhere() -> None:
    games = CatchGames(np.arange(1, 65))
    columns = []
    frames = games.reset()
    for _ in range(20):
        columns += [ball(frame)[1] for frame in frames]
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


BOARDS = 16


def test_a_game_of_two_by_the_rules() -> None:
    """Board by board in plain Python, over three games."""
    games = CatchPairGames(np.arange(1, BOARDS + 1))
    frames = games.reset()
    assert games.count == 2 * BOARDS
    rng = np.random.default_rng(0)
    rewards = set()
    for _ in range(3):
        balls = [[own_at(frames[2 * b + p], 0) for p in (0, 1)] for b in range(BOARDS)]
        paddles = [[2, 2] for _ in range(BOARDS)]
        for row in range(ROWS - 1):
            for b in range(BOARDS):
                for p in (0, 1):
                    wanted = drawn(row, balls[b], paddles[b], p)
                    np.testing.assert_array_equal(frames[2 * b + p], wanted)
            actions: Ints = rng.integers(3, size=2 * BOARDS)
            step = games.step(actions)
            frames = step.frames
            for b in range(BOARDS):
                for p in (0, 1):
                    moved = paddles[b][p] + int(actions[2 * b + p]) - 1
                    paddles[b][p] = min(max(moved, 0), COLUMNS - 1)
                caught = [1 if balls[b][p] == paddles[b][p] else -1 for p in (0, 1)]
                want = sum(caught) / 2 if row == ROWS - 2 else 0.0
                assert step.rewards[2 * b : 2 * b + 2].tolist() == [want, want]
            rewards |= set(step.rewards.tolist())
            assert step.over.tolist() == [row == ROWS - 2] * 2 * BOARDS
            np.testing.assert_array_equal(step.terminated, step.over)
            assert not step.truncated.any()
            assert not step.forced.any()
    assert rewards == {-1.0, 0.0, 1.0}


def own_at(frame: np.ndarray, row: int) -> int:
    return int(np.flatnonzero(frame[row] == OWN)[0])


def drawn(row: int, balls: list[int], paddles: list[int], agent: int) -> np.ndarray:
    frame = np.zeros((ROWS, COLUMNS), dtype=np.uint8)
    frame[row, balls[1 - agent]] = OTHERS
    frame[ROWS - 1, paddles[1 - agent]] = OTHERS
    frame[row, balls[agent]] = OWN
    frame[ROWS - 1, paddles[agent]] = OWN
    return frame


def test_a_vector_has_a_row_for_each_agent_of_each_game() -> None:
    pair = GameSettings(game="catch-pair", size=10)
    games = make_games(pair, np.arange(1, 4))
    assert (agents(pair), games.count, games.reset().shape) == (2, 6, (6, 10, 5))
    assert agents(GameSettings(game="catch", size=10)) == agents(GameSettings(game="pong")) == 1
