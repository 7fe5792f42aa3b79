"""The table of environments: what a new line in it is enough for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gelada.core.errors import GeladaError
from gelada.core.types import Bytes, Ints
from gelada.envs import make
from gelada.envs.api import GameSettings, Step
from gelada.envs.make import (
    action_names,
    frame_shape,
    is_atari,
    known_games,
    make_games,
    parse_game,
    planes,
)
from gelada.evaluation.evaluator import evaluate
from gelada.evaluation.protocols import PROTOCOLS
from gelada.experiment.check import check
from helpers.players import make_agent, make_experiment


class CoinGames:
    """Guess a coin that is shown: one step a game, a point if right."""

    actions = 2
    action_names: tuple[str, ...] = ("HEADS", "TAILS")
    frame_shape = (10, 10)

    def __init__(self, settings: GameSettings, seeds: Ints) -> None:
        assert settings.game == "coin"
        self.count = len(seeds)
        self._random = np.random.default_rng(seeds)

    def reset(self) -> Bytes:
        self._coins = self._random.integers(2, size=self.count)
        return np.full((self.count, 10, 10), self._coins[:, None, None] * 255, dtype=np.uint8)

    def step(self, actions: Ints) -> Step:
        rewards = (actions == self._coins).astype(np.float32)
        over, never = np.ones(self.count, dtype=bool), np.zeros(self.count, dtype=bool)
        return Step(self.reset(), rewards, over, never, over, never)


@pytest.fixture
def coin(monkeypatch: pytest.MonkeyPatch) -> Iterator[GameSettings]:
    """A game that one line in the table adds."""
    line = make.Environment(CoinGames, CoinGames.action_names, CoinGames.frame_shape)
    monkeypatch.setitem(make.ENVIRONMENTS, "coin", line)
    known_games.cache_clear()
    yield GameSettings(game="coin", size=10)
    known_games.cache_clear()


def test_a_line_in_the_table_is_a_game(coin: GameSettings) -> None:
    assert known_games()[:4] == ("catch", "catch-dark", "catch-pair", "coin")
    assert parse_game("coin").game == "coin"
    assert not is_atari("coin")
    assert is_atari("pong")
    games = make_games(coin, np.arange(1, 4))
    assert games.reset().shape == (3, *frame_shape(coin))
    assert (games.action_names, planes(coin)) == (action_names(coin), 1)
    check(make_experiment(coin, stack=1))


def test_a_new_environment_is_evaluated(coin: GameSettings) -> None:
    evaluation = evaluate(make_agent(coin, stack=1), episodes=40)
    assert set(evaluation.scores) <= {0.0, 1.0}
    assert evaluation.lengths == [1] * 40
    assert "no-ops" not in "\n".join(evaluation.lines())
    with pytest.raises(GeladaError, match="this run plays coin"):
        PROTOCOLS["noop"].settings(coin)


def test_actions_and_frames_are_those_of_the_games() -> None:
    for settings in (
        GameSettings(game="catch", size=10),
        GameSettings(size=84, colour=True),
        GameSettings(game="breakout", full_actions=True),
    ):
        games = make_games(settings, np.array([1]))
        assert (games.action_names, games.frame_shape) == (
            action_names(settings),
            frame_shape(settings),
        )
