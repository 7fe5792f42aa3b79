"""Environments in which an agent plays: they show what it was trained on."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from colobus.core.errors import ColobusError
from colobus.core.functions import name_of
from colobus.envs.api import GameSettings
from colobus.envs.playing import FireAfterLifeLoss, FireAtReset, make_env, make_vector
from helpers import gym_toys
from helpers.players import CATCH, make_agent

WALK = GameSettings(game=name_of(gym_toys.walk))


@pytest.mark.parametrize(
    ("settings", "stack", "shape"),
    [
        (GameSettings(game="pong"), 4, (4, 42, 42)),
        (GameSettings(game="breakout", size=84, colour=True), 2, (2, 252, 84)),
        (GameSettings(game="backgammon"), 1, (1, 42, 42)),
        (CATCH, 3, (3, 10, 5)),
        (GameSettings(game=name_of(gym_toys.grid)), 2, (2, 49, 6)),
        (WALK, 1, (2,)),
        (WALK, 3, (3, 1, 2)),
    ],
)
def test_observations_are_those_of_training(settings: GameSettings, stack: int, shape: Any) -> None:
    env = make_env(settings, stack)
    observation, _ = env.reset(seed=3)
    kind = np.float32 if settings == WALK else np.uint8
    assert (observation.shape, observation.dtype) == (shape, kind)
    assert env.observation_space.shape == shape
    if stack > 1:
        assert not observation[:-1].any()
    again, _ = make_env(settings, stack).reset(seed=3)
    np.testing.assert_array_equal(observation, again)
    after = env.step(env.action_space.sample())[0]
    if stack > 1:
        np.testing.assert_array_equal(after[-2], observation[-1])
    env.close()


@pytest.mark.parametrize("number", [None, 2])
@pytest.mark.parametrize("settings", [GameSettings(game="pong"), CATCH, WALK])
def test_an_agent_plays_in_its_own_environment(settings: GameSettings, number: int | None) -> None:
    agent = make_agent(WALK, stack=1, torso="mlp") if settings == WALK else make_agent(settings)
    env = agent.make_env(number)
    observations, _ = env.reset(seed=1)
    for _ in range(15):
        actions = agent.act(observations)
        assert env.action_space.contains(actions)
        observations = env.step(actions)[0]
    env.close()


def test_environments_that_are_not_seeded_play_different_games() -> None:
    envs = make_vector(CATCH, 1, 8)
    first = envs.reset()[0]
    assert len(np.unique(first, axis=0)) > 1
    envs.close()
    wrong: Any = {0: "0: must be at least 1", 2.0: r"2\.0: must be at least 1 and a"}
    for count, said in wrong.items():
        with pytest.raises(ColobusError, match=f"num_envs {said}"):
            make_vector(CATCH, 1, count)


class Presses(gymnasium.Env[Any, Any]):
    """Keeps the actions; a life is lost at the third step."""

    def __init__(self) -> None:
        self.actions: list[int] = []

    def reset(self, **_: Any) -> Any:
        self.actions.append(-1)
        return 0, {"lives": 3}

    def step(self, action: Any) -> Any:
        self.actions.append(int(action))
        return 0, 0.0, False, False, {"lives": 3 if len(self.actions) < 5 else 2}


def test_fire_is_pressed_as_in_training() -> None:
    inner = Presses()
    env = FireAfterLifeLoss(FireAtReset(inner, 7), 7)
    env.reset(seed=1)
    for action in range(5):
        env.step(action)
    assert inner.actions == [-1, 7, 0, 1, 2, 7, 4]


def test_vectors_may_have_any_type_of_number_and_a_batch_axis_or_none() -> None:
    agent = make_agent(WALK, stack=1, torso="mlp")
    seen = np.array([[1.0, 5.0], [2.0, 8.0], [0.0, 2.0]])
    wanted = agent.act(seen.astype(np.float32), "greedy")
    assert (wanted.shape, wanted.dtype) == ((3,), np.dtype(np.int64))
    for other in (seen, seen.astype(np.int64), seen[:, None, None].astype(np.float32)):
        np.testing.assert_array_equal(agent.act(other, "greedy"), wanted)
    assert agent.act(seen[1], "greedy") == wanted[1]
    with pytest.raises(ValueError, match=r"float64\[3\], .* trained on float32\[N, 2\]"):
        agent.act(np.zeros(3))


def test_tensors_give_tensors() -> None:
    agent = make_agent()
    seen = np.random.default_rng(0).integers(0, 256, (6, 4, 10, 5), dtype=np.uint8)
    wanted = agent.act(seen, "greedy")
    actions = agent.act(torch.from_numpy(seen), "greedy")
    assert isinstance(actions, torch.Tensor)
    assert actions.dtype == torch.int64
    np.testing.assert_array_equal(actions.numpy(), wanted)
    assert agent.act(torch.from_numpy(seen[2]), "greedy") == wanted[2]


def test_an_unknown_policy_is_refused() -> None:
    agent = make_agent()
    policy: Any = "argmax"
    with pytest.raises(ColobusError, match=r"^policy 'argmax': must be one of sampled, "):
        agent.act(np.zeros((4, 10, 5), dtype=np.uint8), policy)


def test_few_observations_give_the_threads_of_torch_back() -> None:
    torch.set_num_threads(2)
    make_agent().act(np.zeros((4, 10, 5), dtype=np.uint8))
    assert torch.get_num_threads() == 2
