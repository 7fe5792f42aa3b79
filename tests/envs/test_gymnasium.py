"""The same preprocessing in Gymnasium's wrappers: an agent may play there."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from gelada.envs.ale import AleGame
from gelada.envs.api import GameSettings
from helpers.players import make_agent

gymnasium.register_envs(ale_py)

# Gymnasium calls every environment but the newest version out of date, in a warning
OLD_NAME = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
NAMES = ["ALE/Pong-v5", pytest.param("PongNoFrameskip-v4", marks=OLD_NAME)]


def make(name: str, **arguments: Any) -> Any:
    """Return the environment as its documentation says to preprocess it."""
    env = gymnasium.make(name, frameskip=1, **arguments)
    env = AtariPreprocessing(env, noop_max=0, screen_size=42)
    return FrameStackObservation(env, stack_size=4, padding_type="zero")


@pytest.mark.parametrize("name", NAMES)
def test_frames_equal_ours_for_the_same_actions(name: str) -> None:
    """From one state of the emulator, through 200 steps of the same actions."""
    settings = GameSettings(game="pong")
    game = AleGame(settings, 3)
    game.reset()
    env = make(name, repeat_action_probability=0.0)
    env.reset(seed=1)
    env.unwrapped.restore_state(ale_py.ALEState(game.save()))
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


def test_first_stack_is_black_but_for_its_newest_frame() -> None:
    """Ms. Pac-Man has no FIRE, so both begin with the bare reset."""
    game = AleGame(GameSettings(game="ms_pacman", noop_max=0), 1)
    env = make("ALE/MsPacman-v5", repeat_action_probability=0.0)
    stack, _ = env.reset(seed=1)
    assert not stack[:3].any()
    np.testing.assert_array_equal(stack[3], game.reset())
    env.close()


@pytest.mark.parametrize("policy", ["sampled", "greedy"])
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_plays_in_a_gymnasium_environment(name: str, policy: Any) -> None:
    agent = make_agent(GameSettings(game="pong"))
    env = make(name)
    assert env.action_space.n == agent.actions
    stack, _ = env.reset(seed=1)
    assert (stack.shape, stack.dtype) == ((4, 42, 42), np.uint8)
    taken = set()
    for _ in range(30):
        action = agent.act(stack, policy)
        assert env.action_space.contains(action)
        stack = env.step(action)[0]
        taken.add(int(action))
    assert policy == "greedy" or len(taken) > 1
    env.close()


def test_an_agent_plays_in_a_vector_of_gymnasium_environments() -> None:
    agent = make_agent(GameSettings(game="pong"))
    envs = gymnasium.vector.SyncVectorEnv([lambda: make("ALE/Pong-v5")] * 2)
    stacks, _ = envs.reset(seed=1)
    for _ in range(5):
        actions = agent.act(stacks)
        assert actions.shape == (2,)
        assert envs.action_space.contains(actions)
        stacks = envs.step(actions)[0]
    envs.close()
