"""The vector of Atari games against what ale-py itself says about the same games."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ale_py import Action, ALEVectorInterface

from colobus.core.seeding import game_seeds
from colobus.core.types import Bytes, Ints
from colobus.envs import atari
from colobus.envs.api import GameSettings, Step
from colobus.envs.atari import AtariGames
from colobus.envs.frames import FrameStack
from colobus.envs.make import make_games
from helpers.gradients import stack_at
from helpers.players import BREAKOUT, raw_step, raw_vector

SEEDS = game_seeds(1, "test", 3)


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "fires"), [(False, True), (True, True), (False, False)])
def test_a_lost_life_is_not_a_lost_game(ends: bool, fires: bool) -> None:
    """Breakout has five lives; only the emulator's count of frames says that a game is over."""
    settings = replace(BREAKOUT, life_loss_ends=ends, fire_on_life_loss=fires)
    games = AtariGames(settings, SEEDS)
    ale = raw_vector(BREAKOUT, len(SEEDS), 1)
    fire = list(ale.get_action_set()).index(Action.FIRE)
    games.reset()
    _, info = ale.reset(np.arange(len(SEEDS)), SEEDS)
    lives, frame = info["lives"].copy(), info["episode_frame_number"].copy()
    lost = np.zeros(len(SEEDS), dtype=bool)
    rng = np.random.default_rng(1)
    lost_lives, lost_games = 0, 0
    for _ in range(450):
        actions = rng.integers(games.actions, size=len(SEEDS))
        step = games.step(actions)
        np.testing.assert_array_equal(step.forced, lost & fires)
        _, rewards, terminated, _, info = raw_step(ale, np.where(step.forced, fire, actions))
        over = info["episode_frame_number"] < frame
        np.testing.assert_array_equal(step.over, over)
        np.testing.assert_array_equal(step.over, terminated)
        lost = (info["lives"] < lives) & ~over
        np.testing.assert_array_equal(step.terminated, over | lost & ends)
        np.testing.assert_array_equal(step.rewards, rewards)
        assert not step.truncated.any()
        lives, frame = info["lives"].copy(), info["episode_frame_number"].copy()
        lost_lives += int(lost.sum())
        lost_games += int(over.sum())
    assert lost_games >= 3
    assert lost_lives >= 4 * lost_games


@pytest.mark.slow
@pytest.mark.parametrize(("max_frames", "steps"), [(80, 20), (82, 21)])
def test_a_game_that_is_cut_off_goes_on_to_its_last_frame(max_frames: int, steps: int) -> None:
    """Then an idle step begins the next game; a longer limit shows the same frames."""
    games, longer = (make_games(GameSettings(max_frames=n), SEEDS) for n in (max_frames, 1000))
    first = games.reset()
    np.testing.assert_array_equal(longer.reset(), first)
    stay = np.zeros(len(SEEDS), dtype=np.int64)
    for t in range(1, 3 * (steps + 1) + 1):
        step, idle = games.step(stay), np.full(len(SEEDS), t % (steps + 1) == 0)
        for field in (step.idle, step.truncated, step.over, step.forced):
            np.testing.assert_array_equal(field, idle)
        assert not step.terminated.any()
        assert not (step.rewards != 0)[idle].any()
        if t <= steps:
            other = longer.step(stay)
            np.testing.assert_array_equal(step.frames, other.frames)
            np.testing.assert_array_equal(step.rewards, other.rewards)
    assert step.frames.shape == first.shape == (len(SEEDS), 42, 42)


class MoreLives:
    """ale-py's vector environment with three more lives in each first game."""

    def __init__(self, **settings: Any) -> None:
        emulator: Any = ALEVectorInterface
        self.ale = emulator(**settings)
        self.get_action_set, self.send = self.ale.get_action_set, self.ale.send
        self.more = np.full(settings["num_envs"], 3)

    def reset(self, *words: Ints) -> Any:
        frames, info = self.ale.reset(*words)
        return frames, {**info, "lives": info["lives"] + self.more}

    def recv(self) -> Any:
        *step, info = self.ale.recv()
        self.more[step[2] | step[3]] = 0
        return *step, {**info, "lives": info["lives"] + self.more}


def twelve_steps(kind: Any, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Return the first steps of games of ten steps in a vector environment of this kind."""
    monkeypatch.setattr(atari, "ALEVectorInterface", kind)
    games = AtariGames(replace(BREAKOUT, max_frames=40, life_loss_ends=True), SEEDS)
    games.reset()
    return [games.step(np.zeros(3, dtype=np.int64)) for _ in range(12)]


@pytest.mark.slow
def test_lives_at_the_end_of_a_game_are_the_next_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """With extra lives won, the next game begins with fewer: no life was lost by that."""
    steps = twelve_steps(MoreLives, monkeypatch)
    assert not any(step.over.any() for step in steps[:10])
    assert steps[10].over.all()
    assert not steps[10].terminated.any()
    assert not steps[11].forced.any()


class LastLives(MoreLives):
    """ale-py's vector environment with a life lost in the tenth step of each game."""

    def recv(self) -> Any:
        *step, info = super().recv()
        late = info["episode_frame_number"] - self.opening >= 40
        return *step, {**info, "lives": info["lives"] - late}

    def reset(self, *words: Ints) -> Any:
        frames, info = super().reset(*words)
        self.opening = info["episode_frame_number"]
        return frames, info


@pytest.mark.slow
def test_a_life_lost_at_the_frame_limit_ends_the_return(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = twelve_steps(LastLives, monkeypatch)
    assert not any(step.terminated.any() or step.over.any() for step in steps[:9])
    assert steps[9].terminated.all()
    assert not steps[9].over.any()
    assert steps[10].over.all()
    assert not steps[10].terminated.any()
    assert steps[10].truncated.all()


@pytest.mark.slow
@pytest.mark.parametrize("colour", [False, True])
def test_steps_may_be_kept(colour: bool) -> None:
    """No array of a step is a view of a buffer that a later step writes again."""
    games = AtariGames(replace(BREAKOUT, colour=colour), SEEDS)
    games.reset()
    kept, copies = [], []
    for t in range(40):
        kept.append(games.step(np.full(3, t % games.actions)))
        copies.append([field.tobytes() for field in kept[-1] if field is not None])
    for step, copy in zip(kept, copies, strict=True):
        assert [field.tobytes() for field in step if field is not None] == copy


@pytest.mark.slow
def test_a_seed_gives_the_same_games_whatever_else_is_played() -> None:
    together = AtariGames(BREAKOUT, SEEDS, threads=2)
    alone = AtariGames(BREAKOUT, SEEDS[1:2])
    np.testing.assert_array_equal(together.reset()[1], alone.reset()[0])
    rng = np.random.default_rng(0)
    for actions in rng.integers(4, size=(250, 3)):
        ours, theirs = together.step(actions), alone.step(actions[1:2])
        assert theirs.learned is None
        for name in theirs._fields[:-1]:
            np.testing.assert_array_equal(getattr(ours, name)[1], getattr(theirs, name)[0])


def test_seeds_are_in_range_and_all_different() -> None:
    roles = ("games", "random", "evaluation", "film")
    numbers = [(), *itertools.product(range(4), (0, 1), (0, 1))]
    drawn = itertools.product((0, 1, 2, 5), roles, numbers)
    seeds = np.concatenate([game_seeds(seed, role, 5, *more) for seed, role, more in drawn])
    assert seeds.dtype == np.int64
    assert 1 <= seeds.min() <= seeds.max() <= 2**31 - 2
    assert np.diff(np.sort(seeds)).min() > 100  # neither equal nor neighbours
    np.testing.assert_array_equal(game_seeds(1, "games", 8, 2), game_seeds(1, "games", 8, 2))


DEPTH = 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "steps"),
    [(BREAKOUT, 300), (GameSettings(game="pong", max_frames=18), 100)],
    ids=["games lost", "games cut off"],
)
def test_stacks_are_those_of_the_emulator(settings: GameSettings, steps: int) -> None:
    """The plain ones, which the stacks of actors and learners are compared with elsewhere."""
    seeds = game_seeds(2, "stacks", 3)
    games = AtariGames(replace(settings, fire_on_life_loss=False), seeds)
    # the emulator shows a game that we cut off one step longer, in which we are idle
    longer = replace(settings, max_frames=settings.max_frames + settings.frame_skip - 1)
    ale = raw_vector(longer, 3, DEPTH)
    frames = np.full((3, steps + DEPTH, 42, 42), 200, dtype=np.uint8)  # must never be seen
    frames[:, DEPTH - 1] = games.reset()
    ages = np.zeros((3, steps + 1), dtype=np.int64)
    stacks = ale.reset(np.arange(3), seeds)[0]
    rng = np.random.default_rng(0)
    for t in range(steps):
        np.testing.assert_array_equal(stack_at(frames, ages, t, DEPTH), stacks)
        actions = rng.integers(games.actions, size=3)
        step = games.step(actions)
        frames[:, t + DEPTH] = step.frames
        ages[:, t + 1] = np.where(step.over, 0, ages[:, t] + 1)
        stacks = raw_step(ale, actions)[0]
    assert (ages[:, 1:] == 0).sum() >= 3


def frame(value: int) -> Bytes:
    return np.full((2, 2, 3), [[[value]], [[value + 100]]], dtype=np.uint8)


def test_a_stack_has_the_newest_frames_and_is_black_before_the_start() -> None:
    stack = FrameStack(3, frame(1))
    assert stack.stacks[:, :, 0, 0].tolist() == [[0, 0, 1], [0, 0, 101]]
    stack.push(frame(2))
    stack.push(frame(3), over=np.array([False, True]))
    stack.push(frame(4), over=np.array([False, False]))
    assert (stack.stacks.shape, stack.stacks.dtype.name) == ((2, 3, 2, 3), "uint8")
    assert stack.stacks[:, :, 0, 0].tolist() == [[2, 3, 4], [0, 103, 104]]
    alone = FrameStack(1, frame(1))
    alone.push(frame(2), over=np.array([True, False]))
    np.testing.assert_array_equal(alone.stacks[:, 0], frame(2))
