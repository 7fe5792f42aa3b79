"""Exploration: frequencies by counting, recorded probabilities against an enumeration.

Also how an agent of DQN acts and plays without learning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.action_values import EpsilonGreedy, epsilon_greedy, falling, ladder
from colobus.algorithms.dqn import DQN
from colobus.algorithms.exploration import Exploration, Lasting, Player, Sampled
from colobus.core.errors import ColobusError
from colobus.core.types import Ints
from colobus.evaluation.evaluator import evaluate
from helpers.players import make_agent


def bound(probability: float, count: int) -> float:
    """Return five standard deviations of a frequency."""
    return float(5 * np.sqrt(probability * (1 - probability) / count))


NET: Any = None  # these explorations leave the network alone


def rollout(exploration: Any, logits: Any, seed: int, reward: float = 0.0, steps: int = 0) -> Any:
    """Play a rollout with logits [B, T, A]; return its actions [B, T] and what is recorded."""
    length = logits.shape[1]
    exploration.begin(NET, length, steps, torch.Generator().manual_seed(seed))
    actions = torch.stack([exploration.choose(t, logits[:, t]) for t in range(length)], dim=1)
    rewards = np.full(actions.shape, reward, dtype=np.float32)
    return actions, exploration.end(logits, actions, rewards)


def test_actions_are_drawn_from_the_policy_and_recorded_with_its_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0]).expand(100, 400, 4)
    actions, recorded = rollout(Sampled(Player(0, 1, 100, 4)), logits, seed=5)
    policy = logits[0, 0].double().softmax(dim=0)
    counts = np.bincount(actions.flatten(), minlength=4)
    draws = actions.numel()
    limit = 4 * np.sqrt((draws * policy * (1 - policy)).numpy())  # four standard deviations
    assert (np.abs(counts - draws * policy.numpy()) < limit).all()
    torch.testing.assert_close(recorded.log_probs, policy.log()[actions].float(), rtol=1e-4, atol=0)
    assert recorded.independent.all()


def test_held_actions_are_recorded_with_the_probability_of_the_whole_sequence() -> None:
    """The frequencies of all sequences of three actions are e^(sum of their log-probabilities)."""
    games, length = 40_000, 3
    random = torch.Generator().manual_seed(1)
    logits = torch.randn(1, length, 2, generator=random).expand(games, length, 2)
    exploration = Sampled(Player(0, 1, games, 2), hold_after=1)
    rollout(exploration, logits, seed=2)  # no reward in it
    actions, recorded = rollout(exploration, logits, seed=3)
    assert recorded.independent.tolist() == [True, False] * (games // 2)
    held, log_probs = actions[1::2], recorded.log_probs[1::2].double().sum(dim=1)
    numbers = (held * torch.tensor([4, 2, 1])).sum(dim=1)
    seen = 0
    for number in range(8):
        rows = numbers == number
        if not rows.any():
            continue
        probability = log_probs[rows][0].exp().item()
        torch.testing.assert_close(log_probs[rows], log_probs[rows][0].expand(int(rows.sum())))
        frequency = rows.double().mean().item()
        assert frequency == pytest.approx(probability, abs=bound(probability, len(held)) + 1e-6)
        seen += 1
    assert 2 <= seen < 8  # held: fewer sequences than independent draws have
    # at each step taken alone the actions are those of the policy
    for t in range(length):
        policy = logits[0, t].double().softmax(dim=0)[1].item()
        found = held[:, t].double().mean().item()
        assert found == pytest.approx(policy, abs=bound(policy, len(held)))


def holding(by: str, games: int, hold_after: int = 0, agents: int = 1) -> Any:
    """Return an exploration by a policy, or by values with an epsilon of 0 (``lasting`` or not)."""
    player, never = Player(0, 1, games, 4, agents), falling(0.0, 0.0, 1, games)
    if by == "policy":
        return Sampled(player, hold_after)
    return epsilon_greedy(player, never, 50 if by == "lasting" else 1, hold_after)


def held_by(exploration: Any, games: int, seed: int, reward: float = 0.0) -> list[int]:
    """Play a rollout; return which games repeat one action. Others play the best or the drawn."""
    sampled = isinstance(exploration, Sampled)
    scores = torch.randn(games, 10, 4, generator=torch.Generator().manual_seed(9)) * (not sampled)
    actions, recorded = rollout(exploration, scores, seed, reward)
    repeated = (actions == actions[:, :1]).all(dim=1)
    if sampled:
        assert np.array_equal(~recorded.independent, repeated)
    else:
        assert torch.equal(actions[~repeated], scores.argmax(dim=2)[~repeated])
    if repeated.sum() > 9:
        assert set(actions[repeated, 0].tolist()) == set(range(4))
    return np.flatnonzero(repeated).tolist()


@pytest.mark.parametrize("by", ["policy", "values", "lasting"])
def test_every_second_game_is_held_while_there_is_no_reward_and_if_it_is_asked_for(by: str) -> None:
    exploration, other = (holding(by, 40, 2 * 40 * 10) for _ in range(2))  # after two rollouts
    rewards = [0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0]
    held = [held_by(exploration, 40, n, reward) for n, reward in enumerate(rewards)]
    second = list(range(1, 40, 2))
    assert held == [[], [], second, second, [], [], second]
    assert isinstance(exploration, Lasting)
    other.restore(exploration.save())
    assert held_by(other, 40, 7) == second
    for never, games in ((holding(by, 40), 40), (holding(by, 1, 1), 1)):
        assert [held_by(never, games, n) for n in range(9)] == [[]] * 9


@pytest.mark.parametrize("by", ["values", "policy"])
@pytest.mark.parametrize(
    ("games", "agents", "held"),
    [(4, 1, [1, 3]), (4, 2, [2, 3]), (6, 2, [2, 3]), (9, 3, [3, 4, 5]), (3, 3, [])],
)
def test_all_agents_of_second_games_are_held(by: str, games: int, agents: int, held: Any) -> None:
    exploration = holding(by, games, 1, agents)
    held_by(exploration, games, 1)  # no reward in it
    assert held_by(exploration, games, 2) == held


@pytest.mark.parametrize(
    ("steps", "epsilon"),
    [(0, 1.0), (1, 0.9991), (500, 0.55), (999, 0.1009), (1000, 0.1), (10**9, 0.1)],
)
def test_the_schedule_falls_in_a_straight_line_alike_for_all(steps: int, epsilon: float) -> None:
    assert falling(1.0, 0.1, 1000, 3)(steps).tolist() == pytest.approx([epsilon] * 3, rel=1e-5)
    assert falling(1.0, 0.1, 0, 1)(1).item() == pytest.approx(0.1)


@pytest.mark.parametrize(("actors", "games"), [(8, 1), (360, 1), (2, 8), (3, 5)])
def test_the_ladder_is_the_papers(actors: int, games: int) -> None:
    """epsilon_i = 0.4^(1 + 7 i / (N - 1)) (Horgan et al. 2018, section 4), whatever the steps."""
    found = [
        epsilon
        for actor in range(actors)
        for epsilon in ladder(Player(actor, actors, games, 3), 0.4, 7.0)(1000 * actor).tolist()
    ]
    number = actors * games
    assert found == pytest.approx([0.4 ** (1 + 7 * i / (number - 1)) for i in range(number)], 1e-4)
    assert found[0] == pytest.approx(0.4)
    assert found[-1] == pytest.approx(0.00065536, rel=1e-3)


def test_a_ladder_of_one_game_is_its_first_rung() -> None:
    assert ladder(Player(0, 1, 1, 3), 0.4, 7.0)(0).tolist() == pytest.approx([0.4])


GAMES, LENGTH, ACTIONS = 400, 500, 4


def made(epsilon: float, longest: int) -> Any:
    player = Player(0, 1, GAMES, ACTIONS)
    return epsilon_greedy(player, falling(epsilon, epsilon, 1, GAMES), longest)


def random_actions(exploration: Exploration, seed: int) -> Ints:
    """Play a rollout; return the random actions int[T, B], -1 where an action is not random."""
    exploration.begin(NET, LENGTH, 0, torch.Generator().manual_seed(seed))
    values = torch.randn(GAMES, ACTIONS, generator=torch.Generator().manual_seed(seed))
    found = []
    for t in range(LENGTH):  # what is taken with these values and with opposite ones is random
        one, other = exploration.choose(t, values), exploration.choose(t, -values)
        greedy = (one == values.argmax(dim=1)) & (other == values.argmin(dim=1))
        assert ((one == other) | greedy).all()
        found.append(one.masked_fill(one != other, -1))
    return torch.stack(found).numpy()


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("longest", [5, 50])
def test_the_share_of_random_steps_is_epsilon(epsilon: float, longest: int) -> None:
    exploration = made(epsilon, longest)
    random_actions(exploration, 1)  # all games begin without an action
    actions = random_actions(exploration, 2)
    assert (actions >= 0).mean() == pytest.approx(epsilon, rel=0.1)
    if epsilon:
        counts = np.bincount(actions[actions >= 0], minlength=ACTIONS)
        np.testing.assert_allclose(counts / counts.sum(), 1 / ACTIONS, atol=0.05)


def test_how_long_an_action_lasts_is_a_zeta_distribution() -> None:
    """At a small epsilon two actions seldom follow each other, so runs are their lengths."""
    exploration = made(0.02, 8)
    actions = np.concatenate([random_actions(exploration, seed) for seed in range(4)])
    lengths = []
    for game in actions.T:
        length = 0
        for action in game:
            if action >= 0:
                length += 1
            elif length:
                lengths.append(length)
                length = 0
    counts = np.bincount(lengths, minlength=9)[1:9] / len(lengths)
    want = np.arange(1, 9) ** -2.0
    np.testing.assert_allclose(counts, want / want.sum(), atol=0.02)


def test_an_action_goes_on_in_the_next_rollout_of_a_restored_exploration() -> None:
    exploration = made(0.5, 50)
    first = random_actions(exploration, 1)
    saved = exploration.save()
    second = random_actions(exploration, 2)
    restored = made(0.5, 50)
    restored.restore(saved)
    assert np.array_equal(random_actions(restored, 2), second)
    assert not np.array_equal(random_actions(made(0.5, 50), 2), second)
    across = first[-1] >= 0
    assert (first[-1, across] == second[0, across]).mean() > 0.6  # by chance an eighth


@pytest.mark.parametrize(
    ("part", "spoil"),
    [
        ("left", lambda left: left - 1),
        ("left", lambda left: left + 50),
        ("left", lambda left: left.astype(np.float64)),
        ("left", lambda left: left[:1]),
        ("left", lambda left: left[None]),
        ("actions", lambda actions: actions + ACTIONS),
        ("actions", lambda actions: actions - ACTIONS),
        ("actions", lambda actions: actions[:1]),
    ],
)
def test_a_saved_state_that_cannot_be_is_refused(part: str, spoil: Callable[[Any], Any]) -> None:
    exploration = made(0.5, 50)
    random_actions(exploration, 1)
    saved = exploration.save()
    made(0.5, 50).restore(saved)
    with pytest.raises(ValueError, match=f"^{part} is not a whole number below "):
        made(0.5, 50).restore(saved | {part: spoil(saved[part])})


DUELLING = DQN(duelling=True)
LADDER = DQN(explore="ladder")
PLAYER = Player(actor=1, actors=3, games=4, actions=3)
SHARES = torch.tensor([0.0, 0.05, 0.6, 1.0])


@pytest.mark.parametrize(
    ("exploration", "epsilons"),
    [
        (LADDER.exploration(PLAYER), ladder(PLAYER, LADDER.ladder_base, LADDER.ladder_alpha)(0)),
        (EpsilonGreedy(PLAYER, falling(1.0, 0.2, 100, 4)), torch.full((4,), 0.2)),
        (EpsilonGreedy(PLAYER, lambda _steps: SHARES), SHARES),
    ],
    ids=["ladder", "schedule", "others"],
)
def test_each_game_acts_with_its_own_epsilon_in_each_step(exploration: Any, epsilons: Any) -> None:
    """A random action is the best one, too, once in A times."""
    values = torch.randn(4, 4000, 3, generator=torch.Generator().manual_seed(4))
    chosen, recorded = rollout(exploration, values, seed=2, steps=100)
    others = (chosen != values.argmax(dim=2)).double()
    want = epsilons.double().numpy() * 2 / 3
    for found, share in ((others, want), (others[:, 1:] * others[:, :-1], want**2)):
        limit = 7 * np.sqrt(share * (1 - share) / 4000)  # seven standard deviations
        assert (np.abs(found.mean(dim=1).numpy() - share) <= limit).all()
    assert recorded.log_probs.shape == chosen.shape
    assert not recorded.log_probs.any()


def test_an_agent_without_probabilities_cannot_sample() -> None:
    agent = make_agent(algorithm=DUELLING)
    observation = np.zeros((4, 10, 5), dtype=np.uint8)
    with pytest.raises(ColobusError, match=r"policy sampled: .*; take epsilon or greedy"):
        agent.act(observation, "sampled")
    with pytest.raises(ColobusError, match="no probabilities"):
        evaluate(agent, episodes=2, policy="sampled")


@pytest.mark.parametrize(
    ("changes", "epsilon"),
    [
        ({"epsilon_end": 0.1}, 0.05),
        ({"epsilon_end": 0.005}, 0.005),
        ({"epsilon_end": 0.0}, 0.0),
        ({"explore": "ladder"}, 0.4**8),
        ({"explore": "ladder", "ladder_base": 0.9, "ladder_alpha": 1.0}, 0.05),
    ],
)
def test_an_agent_plays_with_the_last_epsilon(changes: dict[str, Any], epsilon: float) -> None:
    agent = make_agent(algorithm=replace(DUELLING, **changes))
    assert agent.epsilon == pytest.approx(epsilon)
    evaluation = evaluate(agent, episodes=2)
    assert f", epsilon-greedy {epsilon:.2g}, 3 actions" in evaluation.lines()[1]
    assert (evaluation.policy, evaluation.as_dict()["epsilon"]) == ("epsilon", agent.epsilon)
    assert evaluate(agent, "dba3c", episodes=2).as_dict()["epsilon"] is None  # it is greedy
    count = 40_000
    one = np.random.default_rng(0).integers(0, 256, (1, 4, 10, 5), dtype=np.uint8)
    seen = np.repeat(one, count, axis=0)
    best = agent.act(seen[:100], "greedy")
    assert len(set(best.tolist())) == 1
    want = np.where(np.arange(3) == best[0], 1 - epsilon * 2 / 3, epsilon / 3)
    for actions in (agent.act(seen), agent.act(seen, "epsilon")):
        found = np.bincount(actions, minlength=3) / count
        assert (np.abs(found - want) <= 5 * np.sqrt(want * (1 - want) / count)).all()
