"""The rules of Catch for two agents."""

from __future__ import annotations

import numpy as np

from gelada.core.types import Ints
from gelada.envs.api import GameSettings
from gelada.envs.catch import COLUMNS, OTHERS, OWN, ROWS, CatchPairGames
from gelada.envs.make import agents, make_games

BOARDS = 16


def test_a_game_by_the_rules() -> None:
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
