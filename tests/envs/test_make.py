"""The table of environments: what a new line in it is enough for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colobus.core.errors import ColobusError
from colobus.core.types import Bytes, Ints
from colobus.envs import make
from colobus.envs.api import GameSettings, Step
from colobus.envs.make import known_games, make_games, parse_game
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.protocols import PROTOCOLS
from colobus.experiment.check import check
from colobus.nets.network import VECTOR_FLOOR
from colobus.training.start import begin
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
def coin(monkeypatch: pytest.MonkeyPatch) -> GameSettings:
    line = make.Environment(CoinGames, CoinGames.action_names, CoinGames.frame_shape)
    assert not make.is_known("coin")  # as where a run was loaded before
    monkeypatch.setitem(make.ENVIRONMENTS, "coin", line)
    return GameSettings(game="coin", size=10)


def test_a_line_in_the_table_is_a_game(coin: GameSettings) -> None:
    assert known_games()[:4] == ("catch", "catch-dark", "catch-pair", "coin")
    assert parse_game("coin").game == "coin"
    assert (make.is_atari("coin"), make.is_atari("pong")) == (False, True)
    games = make_games(coin, np.arange(1, 4))
    assert games.reset().shape == (3, *make.frame_shape(coin))
    assert (games.action_names, make.environment_of(coin).planes) == (make.action_names(coin), 1)
    check(make_experiment(coin, stack=1))


def test_numbers_of_a_new_environment_are_standardised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Numbers(CoinGames):
        def reset(self) -> Any:
            return super().reset()[:, :1, :1].astype(np.float32) / 5000

    line = make.Environment(Numbers, Numbers.action_names, (1, 1), frame_type="float32")
    monkeypatch.setitem(make.ENVIRONMENTS, "coin", line)
    experiment = make_experiment(GameSettings(game="coin"), stack=1)
    assert begin(experiment).statistics.deviation.tolist() == [[np.float32(VECTOR_FLOOR)]]


def test_a_new_environment_is_evaluated(coin: GameSettings) -> None:
    evaluation = evaluate(make_agent(coin, stack=1), episodes=40)
    assert set(evaluation.scores) <= {0.0, 1.0}
    assert evaluation.lengths == [1] * 40
    assert "no-ops" not in "\n".join(evaluation.lines())
    with pytest.raises(ColobusError, match="this run plays coin"):
        PROTOCOLS["noop"].settings(coin)


def test_actions_and_frames_are_those_of_the_games() -> None:
    for settings in (
        GameSettings(game="catch", size=10, colour=True),  # it stays grey
        GameSettings(size=84, colour=True),
        GameSettings(game="breakout", full_actions=True),
    ):
        games = make_games(settings, np.array([1]))
        wanted = (make.action_names(settings), make.frame_shape(settings))
        assert (games.action_names, games.frame_shape) == wanted


@pytest.mark.parametrize(
    ("name", "game", "sticky", "skip"),
    [
        ("Pong", "pong", None, None),
        ("SpaceInvaders", "space_invaders", None, None),
        ("spaceinvaders", "space_invaders", None, None),
        ("Breakout-v0", "breakout", 0.25, "2 to 4"),
        ("Breakout-v4", "breakout", 0.0, "2 to 4"),
        ("BreakoutDeterministic-v0", "breakout", 0.25, None),
        ("BreakoutDeterministic-v4", "breakout", 0.0, None),
        ("PongNoFrameskip-v0", "pong", 0.25, "1"),
        ("PongNoFrameskip-v4", "pong", 0.0, "1"),
        ("ALE/Pong-v5", "pong", 0.25, None),
        ("ALE/SpaceInvaders-v5", "space_invaders", 0.25, None),
        ("ale_py:ALE/Pong-v5", "pong", 0.25, None),
        ("ale_py.env:ALE/Breakout-v5", "breakout", 0.25, None),
        ("gymnasium:ALE/Pong-v5", "pong", 0.25, None),
        ("gym:PongNoFrameskip-v4", "pong", 0.0, "1"),
    ],
)
def test_names(name: str, game: str, sticky: float | None, skip: str | None) -> None:
    """``skip``: the frame skip that the name implies, if it is not the one always played."""
    parsed = parse_game(name)
    assert (parsed.game, parsed.sticky) == (game, sticky)
    assert (f"sticky actions {sticky:g}" in parsed.note) if sticky is not None else not parsed.note
    assert ("frame skip" in parsed.note) == (skip is not None)
    assert skip is None or f"frame skip {skip} (" in parsed.note
    assert "\n" not in parsed.note


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("pogn", "pong"),
        ("brekout", "breakout"),
        ("BrekoutNoFrameskip-v4", "breakout"),
        ("ALE/SpaceInvader-v5", "space_invaders"),
        ("Pong-v7", "pong"),
        ("", "adventure"),
        ("MiniGrid-Empty-5x5-v9", "minigrid:MiniGrid-Empty-5x5-v9"),
        ("BabyAI-GoTo-v9", "minigrid:BabyAI-GoTo-v9"),
        ("FetchReach-v4", "gymnasium_robotics:FetchReach-v4"),
        ("highway-v0", "highway_env:highway-v0"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ColobusError) as error:
        parse_game(name)
    message = str(error.value)
    assert message.startswith(f"unknown game {name!r}: ")
    assert near in message.split(": ", 1)[1]
    assert "\n" not in message


@pytest.mark.parametrize("name", ["combat", "Joust", "mazecraze", "ALE/Warlords-v5"])
def test_games_that_would_end_the_process_are_one_line(name: str) -> None:
    said = f"^{name}: ale-py cannot play this game for two people; take another$"
    with pytest.raises(ColobusError, match=said):
        parse_game(name)
    assert not {"combat", "joust", "maze_craze", "warlords"} & set(known_games())


def test_games_of_pettingzoo_are_one_line() -> None:
    for name in ("pettingzoo.butterfly.pistonball_v6", "pettingzoo:chess-v6"):
        with pytest.raises(ColobusError, match="games of PettingZoo have several agents; make"):
            parse_game(name)


def test_known_games_are_the_emulators_and_catch() -> None:
    games = known_games()
    assert games[0] == "catch"
    assert len(games) == len(set(games)) > 60
    assert {"pong", "breakout", "montezuma_revenge", "video_pinball"} < set(games)
    assert all(parse_game(game) == (game, None, "") for game in games)
