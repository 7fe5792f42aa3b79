"""`Agent.predict` is what Stable-Baselines3 calls of a model: its ``evaluate_policy`` plays one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from colobus.algorithms.dqn import DQN
from colobus.core.functions import name_of
from colobus.envs.api import GameSettings
from helpers.gym_toys import Doors
from helpers.players import make_agent


def evaluate_policy(model: Any, env: Any, n_eval_episodes: int, deterministic: bool) -> list[float]:
    """Stable-Baselines3 2.9's loop (common/evaluation.py), on a vector of Gymnasium.

    Its own vectors show the first observation of the next game where one is over, as
    ``SAME_STEP`` does.
    """
    rewards_of_games: list[float] = []
    n_envs = env.num_envs
    episode_counts = np.zeros(n_envs, dtype="int")
    targets = np.array([(n_eval_episodes + i) // n_envs for i in range(n_envs)], dtype="int")
    current_rewards = np.zeros(n_envs)
    observations, _ = env.reset(seed=1)
    states = None
    episode_starts = np.ones((n_envs,), dtype=bool)
    while (episode_counts < targets).any():
        actions, states = model.predict(
            observations, state=states, episode_start=episode_starts, deterministic=deterministic
        )
        observations, rewards, ended, cut, _ = env.step(actions)
        current_rewards += rewards
        episode_starts = ended | cut
        for i in np.flatnonzero(episode_starts & (episode_counts < targets)):
            rewards_of_games.append(current_rewards[i])
            episode_counts[i] += 1
        current_rewards[episode_starts] = 0
    return rewards_of_games


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_the_loop_of_stable_baselines_plays_as_act_does(
    recurrent: str, deterministic: bool
) -> None:
    """A vector of three games against one that `act` plays, state by state."""
    agent, other = make_agent(recurrent=recurrent), make_agent(recurrent=recurrent)
    scores = evaluate_policy(agent, agent.make_env(num_envs=3), 6, deterministic)
    env, state = other.make_env(num_envs=3), other.initial_state(3)
    seen, _ = env.reset(seed=1)
    wanted: list[float] = []
    while len(wanted) < 6:
        policy: Any = "greedy" if deterministic else None
        actions, state = other.act(seen, policy, state=state)
        seen, rewards, ended, _, _ = env.step(actions)
        state = state.copy()
        state[ended] = 0.0
        wanted += [float(reward) for reward in rewards[ended]]
    assert scores == wanted  # games of Catch are equally long


def test_one_observation_and_stacks_with_their_frames_last() -> None:
    agent = make_agent()
    seen = np.random.default_rng(0).integers(0, 256, (32, 4, 10, 5), dtype=np.uint8)
    wanted = agent.act(seen, "greedy")
    last = np.moveaxis(seen, 1, -1)  # as VecFrameStack has them
    for batch in (seen, last):
        actions, state = agent.predict(batch, deterministic=True)
        np.testing.assert_array_equal(actions, wanted)
        assert state is None
        one, state = agent.predict(batch[5], deterministic=True)
        assert (np.shape(one), int(one), state) == ((), wanted[5], None)
    with pytest.raises(ValueError, match=r"observations are uint8\[3, 10, 5, 5\]"):
        agent.predict(np.zeros((3, 10, 5, 5), np.uint8))


@pytest.mark.parametrize("picture", [False, True])
def test_masks_that_are_given_take_the_place_of_those_that_are_seen(picture: bool) -> None:
    games = GameSettings(game=name_of(lambda: Doors(key=True, picture=picture)))
    agent = make_agent(games, stack=1, torso="tiny")
    seen = agent.make_env(num_envs=3).reset(seed=1)[0]  # doors 0 and 2 are open
    assert set(agent.predict(np.repeat(seen, 50, 0))[0].tolist()) == {0, 2}
    one = np.eye(4, dtype=bool)[[3, 1, 0]]
    assert agent.predict(seen, action_masks=one)[0].tolist() == [3, 1, 0]
    assert agent.predict(seen[0], action_masks=one[1])[0] == 1
    with pytest.raises(ValueError, match=r"\[3, 2\], the agent was trained with masks of 3 x 4$"):
        agent.predict(seen, action_masks=one[:, :2])
    with pytest.raises(ValueError, match=r"\[1, 3\], the agent was trained with no masks$"):
        make_agent().predict(np.zeros((4, 10, 5), np.uint8), action_masks=np.ones(3))


def test_values_without_probabilities_explore_unless_told_not_to() -> None:
    agent = make_agent(algorithm=DQN(epsilon_end=1.0))
    seen = np.zeros((500, 4, 10, 5), dtype=np.uint8)
    assert len(set(agent.predict(seen, deterministic=True)[0].tolist())) == 1
    assert len(set(agent.predict(seen)[0].tolist())) == 3


def test_the_state_of_a_game_that_begins_does_not_count() -> None:
    agent = make_agent(recurrent="lstm")
    seen = np.random.default_rng(0).integers(0, 256, (2, 4, 10, 5), dtype=np.uint8)
    _, state = agent.predict(seen, None, None, True)
    assert state is not None
    kept = state.copy()
    _, after = agent.predict(seen, state, np.array([True, False]), True)
    np.testing.assert_array_equal(state, kept)  # it is the caller's
    begun = agent.predict(seen, None, None, True)[1]
    assert after is not None
    assert begun is not None
    np.testing.assert_array_equal(after[0], begun[0])
    np.testing.assert_array_equal(after[1], agent.act(seen, "greedy", state=state)[1][1])
    one = agent.predict(seen[0], kept[:1], np.array([True]), True)[1]
    assert one is not None
    np.testing.assert_allclose(one[0], after[0], atol=1e-6)
    with pytest.raises(ValueError, match="broadcast"):
        agent.predict(seen, state, np.ones(3, bool))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_stable_baselines_itself(recurrent: str) -> None:
    """Where it is installed; the stand-in above has its loop."""
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    agent = make_agent(recurrent=recurrent)
    env: gymnasium.Env[Any, Any] = agent.make_env()
    mean, deviation = evaluation.evaluate_policy(agent, env, n_eval_episodes=6)
    assert -1 <= mean <= 1
    assert deviation >= 0
