"""Playing full games by a protocol: which games count, what is seen, what is said."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from hypothesis import given
from hypothesis import strategies as st

from colobus.core.errors import ColobusError
from colobus.core.functions import name_of
from colobus.core.seeding import game_seeds
from colobus.core.types import Bytes, Ints
from colobus.envs.ale import AleGame
from colobus.envs.api import GameSettings, Step
from colobus.envs.make import make_games
from colobus.evaluation import evaluator
from colobus.evaluation.agent import PolicyName
from colobus.evaluation.evaluator import evaluate, share_out
from colobus.evaluation.protocols import PROTOCOLS, PlayedGame
from colobus.runs.read import has_evaluation, read_evaluations
from helpers.gym_toys import OneDoor
from helpers.players import (
    BREAKOUT,
    CATCH,
    Catcher,
    Clock,
    Scripted,
    Waiting,
    make_agent,
    played_by_hand,
)


class Counting:
    """Games whose length only the seed and the number of the game decide; a point per step."""

    actions = 3
    action_names = ("LEFT", "STAY", "RIGHT")
    frame_shape = (10, 5)
    played: dict[int, list[int]]  # lengths of the games, by seed
    given: dict[int, list[int]]  # actions, by seed

    def __init__(self, seeds: Ints) -> None:
        self.count = len(seeds)
        self._random = [np.random.default_rng(int(seed)) for seed in seeds]
        self._left = np.zeros(self.count, dtype=np.int64)
        self._seeds = seeds

    def reset(self) -> Bytes:
        self._begin(np.ones(self.count, dtype=bool))
        return np.zeros((self.count, *self.frame_shape), dtype=np.uint8)

    def step(self, actions: Ints) -> Step:
        for seed, action in zip(self._seeds, actions, strict=True):
            self.given.setdefault(int(seed), []).append(int(action))
        self._left -= 1
        over = self._left == 0
        self._begin(over)
        frames = np.zeros((self.count, *self.frame_shape), dtype=np.uint8)
        never = np.zeros(self.count, dtype=bool)
        return Step(frames, np.ones(self.count, dtype=np.float32), over, never, over, never)

    def _begin(self, which: Any) -> None:
        for b in np.flatnonzero(which):
            self._left[b] = self._random[b].choice([1, 2, 60])
            self.played.setdefault(int(self._seeds[b]), []).append(int(self._left[b]))


@given(st.integers(1, 500), st.integers(1, 40))
def test_games_are_shared_out_evenly(episodes: int, at_most: int) -> None:
    quotas = share_out(episodes, at_most)
    assert quotas.sum() == episodes
    assert quotas.min() >= 1
    assert quotas.max() - quotas.min() <= 1
    assert len(quotas) <= at_most
    assert quotas.max() == math.ceil(episodes / at_most)  # nobody could wait less


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    """All games are `Counting`, and none has been played yet."""
    Counting.played, Counting.given = {}, {}
    monkeypatch.setattr(evaluator, "make_games", lambda _, seeds: Counting(seeds))
    return Counting


@pytest.mark.parametrize("episodes", [1, 7, 16, 50])
def test_first_games_count_however_long(episodes: int, counting: type[Counting]) -> None:
    """The first games to be over would mostly be short ones."""
    evaluation = evaluate(make_agent(), episodes=episodes)
    quotas = share_out(episodes, evaluator.SIDE_BY_SIDE)
    seeds = game_seeds(1, "evaluation", len(quotas))
    wanted = [
        length
        for seed, quota in zip(seeds, quotas, strict=True)
        for length in counting.played[int(seed)][:quota]
    ]
    assert sorted(evaluation.lengths) == sorted(wanted)
    assert evaluation.scores == evaluation.lengths
    assert len(wanted) == episodes


def test_catch_is_scored_by_its_rules_and_progress_ends_at_all_games() -> None:
    told: list[tuple[int, int]] = []
    won = evaluate(Catcher(), episodes=37, progress=lambda done, of: told.append((done, of)))
    lost = evaluate(Catcher(towards=False), episodes=37)
    assert told[-1] == (37, 37)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert won.scores == [1.0] * 37
    assert lost.scores == [-1.0] * 37
    assert won.lengths == lost.lengths == [9] * 37
    assert (won.mean, won.standard_error, won.median) == (1.0, 0.0, 1.0)
    assert not won.interrupted


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "limit"), [("noop", 108_000), ("training", 800)])
def test_scores_are_those_of_games_played_one_by_one(
    protocol: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads, four environments, two games each, against single games by hand.

    A wrong pixel of a stack would change the game. With the lower limit some games are cut off.
    """
    monkeypatch.setattr(evaluator, "SIDE_BY_SIDE", 4)
    own = replace(BREAKOUT, max_frames=limit)
    agent = Scripted(own)
    evaluation = evaluate(agent, protocol, episodes=8, seed=3)
    settings = PROTOCOLS[protocol].settings(own)
    quotas = share_out(8, evaluator.SIDE_BY_SIDE)
    played: list[PlayedGame] = []
    for seed, quota in zip(game_seeds(3, "evaluation", len(quotas)), quotas, strict=True):
        game = AleGame(settings, int(seed))
        played += [played_by_hand(agent, game) for _ in range(quota)]
    assert sorted(evaluation.games) == sorted(played)
    assert any(game.truncated for game in evaluation.games) == (limit == 800)
    assert len(set(evaluation.games)) > 3
    assert max(evaluation.scores) > 1


def test_the_seed_decides_games_and_actions() -> None:
    agent = make_agent()
    first = evaluate(agent, episodes=40, seed=1)
    assert 0 < sum(score > 0 for score in first.scores) < 40
    agent.act(np.zeros((4, 10, 5), dtype=np.uint8))  # the agent's own stream does not matter
    assert evaluate(agent, episodes=40, seed=1).scores == first.scores
    assert evaluate(agent, episodes=40, seed=2).scores != first.scores
    greedy = evaluate(agent, episodes=40, seed=1, policy="greedy")
    assert greedy.scores != first.scores


def test_the_policy_is_the_callers_or_the_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[PolicyName | None] = set()

    class Asked(Catcher):
        def act(self, observations: Any, policy: Any = None, *rest: Any, **more: Any) -> Any:
            asked.add(policy)
            return super().act(observations, policy, *rest, **more)

    def played(*args: Any) -> tuple[str, set[PolicyName | None]]:
        asked.clear()
        return evaluate(Asked(), *args).policy, set(asked)

    assert played("training", 2) == ("sampled", {"sampled"})
    assert played("dba3c", 2) == ("greedy", {"greedy"})
    assert played("dba3c", 2, "sampled") == ("sampled", {"sampled"})
    assert played("training", 2, "greedy") == ("greedy", {"greedy"})


def test_the_guard_presses_after_thirty_equal_actions(counting: type[Counting]) -> None:
    """Games of 1, 2 and 60 steps; no run of equal actions goes on into the next game."""
    got = evaluate(Waiting(CATCH), "dba3c")
    assert len(got.games) == 50
    assert {game.steps: game.pressed for game in got.games} == {1: 0, 2: 0, 60: 1}
    for seed, lengths in counting.played.items():
        wanted = [int(t == 30) for length in lengths for t in range(length)]
        given = counting.given[seed]
        assert given == wanted[: len(given)]
    counting.given.clear()
    unguarded = evaluate(Waiting(CATCH), "training")
    assert {game.pressed for game in unguarded.games} == {0}
    assert {action for given in counting.given.values() for action in given} == {0}


@pytest.mark.slow
def test_the_guard_serves_the_ball_in_breakout() -> None:
    """An agent that never presses FIRE plays a game to its end only with the guard."""
    settings = replace(BREAKOUT, fire_on_life_loss=False)
    agent = Waiting(settings)
    got = evaluate(agent, "dba3c", episodes=2)
    assert [game.truncated for game in got.games] == [False, False]
    assert all(game.pressed >= 4 for game in got.games)  # the reset serves the first of five balls
    assert all(game.steps >= 31 * game.pressed for game in got.games)
    alone = replace(settings, max_frames=4000)
    agent.games = alone
    assert all(game.truncated for game in evaluate(agent, "training", episodes=2).games)


def test_the_guard_presses_nothing_that_a_mask_forbids() -> None:
    games = GameSettings(game=name_of(lambda: OneDoor(key=True)))
    agent = make_agent(games, stack=1, torso="tiny")
    assert evaluate(agent, "dba3c", episodes=2).mean == 40.0


def test_environments_of_gymnasium_are_played_without_the_guard() -> None:
    """No cart waits for FIRE, and 0 for long may be right; one may have no other action."""
    agent = make_agent(GameSettings("CartPole-v1"), stack=1, torso="mlp")
    got = evaluate(agent, "dba3c", episodes=2)
    assert got.as_dict()["stuck"] is None
    assert "stuck guard" not in "\n".join(got.lines())
    assert agent.guarded(30) is None
    assert make_agent().guarded(30) == 30


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"seed": 1.5}, "^seed 1.5: must be a whole number"),
        ({"seed": "1"}, "^seed 1: must be a whole number"),
        ({"seed": -1}, "^seed -1: must be at least 0"),
        ({"minutes": "3"}, "^minutes 3: must be a number"),
        ({"minutes": math.inf}, "^minutes inf: must be a finite number"),
        ({"minutes": 0}, "^minutes 0: must be above 0"),
        ({"episodes": "4"}, "^episodes 4: must be a whole number"),
        ({"episodes": math.inf}, "^episodes inf: must be a whole number"),
        ({"episodes": 0}, "^episodes 0: must be at least 1"),
        ({"protocol": None}, "^unknown protocol None"),
        ({"protocol": "stiky"}, "^unknown protocol 'stiky': nearest known: sticky"),
        ({"protocol": "noop"}, "^protocol 'noop' is for Atari games"),
        ({"protocol": "sticky"}, "^protocol 'sticky' is for Atari games"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ColobusError, match=line):
        evaluate(make_agent(), **given)


def test_what_is_evaluated_with_numbers_of_numpy_can_be_saved(tmp_path: Path) -> None:
    """They came back as they were, and JSON refused them after all games had been played."""
    given: Any = {"episodes": np.int64(2), "seed": np.int64(3), "minutes": np.float32(9.0)}
    found = evaluate(make_agent(), **given)
    assert found == replace(evaluate(make_agent(), episodes=2, seed=3), minutes=9.0)
    (row,) = read_evaluations([found.save(tmp_path)])
    assert (row.games, row.about["seed"], row.about["minutes"]) == (2, 3, 9.0)


def test_when_the_minutes_are_over_no_game_begins_and_all_go_on_to_their_end(
    counting: type[Counting], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The time is up after the fifth step of the only row, in a game that goes on to its end.

    A second passes whenever the evaluator looks at its clock.
    """
    seconds = itertools.count(1.0)
    monkeypatch.setattr(evaluator, "SIDE_BY_SIDE", 1)
    monkeypatch.setattr(evaluator, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    got = evaluate(make_agent(), "dba3c", episodes=40, minutes=4.5 / 60)
    (lengths,) = counting.played.values()
    count = 1 + sum(sum(lengths[: n + 1]) <= 5 for n in range(len(lengths)))
    assert got.lengths == lengths[:count]
    assert (got.too_late, got.interrupted) == (40 - count, False)
    text = "\n".join(got.lines())
    assert f"; {count} full games instead of 50, raw" in text
    assert f"{count} of 40 games: after 0.075 minutes no further game was begun; those" in text
    (read,) = read_evaluations([got.save(tmp_path)])
    assert read.played == f"{count} of 40 games"
    as_asked = (got.steps, "dba3c", got.policy, 40, got.seed)
    assert has_evaluation(tmp_path, *as_asked)  # done, as far as it goes
    assert len(evaluate(make_agent(), "dba3c", episodes=4, minutes=1e9).games) == 4


def test_an_error_in_one_thread_ends_the_evaluation() -> None:
    class Broken(Catcher):
        def act(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no action")

    with pytest.raises(RuntimeError, match="no action"):
        evaluate(Broken(), episodes=5)


class Sometimes(gymnasium.Env[Any, Any]):
    """A point per step; every second game is over after three, the others never."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    games = -1

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.games = 0, self.games + 1
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.games % 2 == 0 and self.t == 3, False, {}


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(("limit", "games"), [(None, [3, 20]), (30, [3, 30, 3, 30, 3])])
def test_games_without_an_end(
    limit: int | None, games: list[int], vector: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of five games stops at the second; with a limit of their own all are played."""
    monkeypatch.setattr(evaluator, "LONGEST", 20)
    monkeypatch.setattr(evaluator, "SIDE_BY_SIDE", 4)

    def make() -> Any:
        return TimeLimit(Sometimes(), limit) if limit else Sometimes()

    def make_vector(num_envs: int) -> Any:
        return SyncVectorEnv([make] * num_envs)

    game = name_of(make_vector if vector else make)
    agent = make_agent(GameSettings(game=game), stack=1, torso="mlp")
    got = evaluate(agent, episodes=20)
    assert not got.interrupted
    assert sorted(got.lengths) == sorted(games * 4)
    assert got.scores == got.lengths
    assert [game.truncated for game in got.games] == [steps > 3 for steps in got.lengths]
    line = "4 of these games had no end and were cut off after 20 steps, so 12 others"
    assert (line in "\n".join(got.lines())) == (limit is None)


def test_a_game_that_ends_at_the_last_step_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells of the environment's own limit, which is where games without one are cut off."""
    monkeypatch.setattr(evaluator, "LONGEST", 3)

    class Cut(Sometimes):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.t += 1
            return np.zeros(2, np.float32), 1.0, False, self.t == 3, {}

    agent = make_agent(GameSettings(game=name_of(Cut)), stack=1, torso="mlp")
    got = evaluate(agent, episodes=40)
    assert (got.lengths, got.endless, got.left_out) == ([3] * 40, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most", "rounds"), [("noop", 30, 40), ("sticky", 0, 2)])
def test_as_many_noops_as_the_protocol_says(name: str, most: int, rounds: int) -> None:
    """Freeway's cars tell how many frames have passed. Games of one step, four side by side.

    Every second step is an idle one, which begins the next game.
    """
    freeway = GameSettings(game="freeway", max_frames=4)
    settings = replace(PROTOCOLS[name].settings(freeway), max_frames=4)
    alone = AleGame(replace(freeway, noop_max=0, frame_skip=1, max_frames=100), 1)
    passed = [alone.reset(), *(alone.step(0).frame for _ in range(35))]
    number = {frame.tobytes(): noops for noops, frame in enumerate(passed)}
    assert len(number) == 36
    games = make_games(settings, game_seeds(1, "no-ops", 4))
    first = [games.reset()]
    noops = np.zeros(4, dtype=np.int64)
    first += [(games.step(noops), games.step(noops))[1].frames for _ in range(rounds - 1)]
    found = [number[frame.tobytes()] for frames in first for frame in frames]
    assert (min(found), max(found)) == (0, most)
    deviation = np.sqrt(((most + 1) ** 2 - 1) / 12)
    assert abs(np.mean(found) - most / 2) <= 3 * deviation / np.sqrt(len(found))


def test_each_game_has_its_state(counting: type[Counting], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "THREADS", 1)
    agent = Clock(CATCH)
    evaluate(agent, episodes=40)
    for row, lengths in enumerate(counting.played.values()):
        found = [steps[row] for steps in agent.states]
        assert found == [t for length in lengths for t in range(length)][: len(found)]
    assert {steps[0] for steps in agent.states} != {0}
