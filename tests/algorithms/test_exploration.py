"""Exploration: frequencies by counting, recorded probabilities against an enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.action_values import EpsilonGreedy, epsilon_greedy, falling, ladder
from colobus.algorithms.exploration import Exploration, Lasting, Player, Sampled, epsilon_noise

ROWS, A = 40_000, 5


def bound(probability: float, count: int) -> float:
    """Return five standard deviations of a frequency."""
    return float(5 * np.sqrt(probability * (1 - probability) / count))


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.6, 1.0])
def test_rows_explore_with_probability_epsilon_all_actions_alike(epsilon: float) -> None:
    noise = epsilon_noise((ROWS, A), epsilon, torch.Generator().manual_seed(3))
    explores = noise.isinf().any(dim=1)
    assert explores.double().mean().item() == pytest.approx(epsilon, abs=bound(epsilon, ROWS))
    assert not noise[~explores].any()
    assert (noise[explores].isposinf().sum(dim=1) == 1).all()
    assert not noise[noise.isfinite()].any()
    if epsilon >= 0.05:
        count = int(explores.sum())
        chosen = np.bincount(noise[explores].argmax(dim=1), minlength=A) / count
        np.testing.assert_allclose(chosen, 1 / A, atol=bound(1 / A, count))


def test_exploring_takes_the_drawn_action_however_large_the_values_are() -> None:
    noise = epsilon_noise((1000, A), 1.0, torch.Generator().manual_seed(4))
    values = torch.randn(1000, A) * 1e30
    assert torch.equal((values + noise).argmax(dim=1), noise.argmax(dim=1))


def test_each_game_has_its_own_epsilon_and_steps_are_independent() -> None:
    epsilons = torch.tensor([0.0, 0.5, 1.0])
    noise = epsilon_noise((ROWS, 3, A), epsilons, torch.Generator().manual_seed(5))
    explores = noise.isinf().any(dim=2).double()
    found = explores.mean(dim=0).tolist()
    assert (found[0], found[2]) == (0.0, 1.0)
    assert found[1] == pytest.approx(0.5, abs=bound(0.5, ROWS))
    both = (explores[1:, 1] * explores[:-1, 1]).mean().item()
    assert both == pytest.approx(0.25, abs=bound(0.25, ROWS) * 1.5)


NET: Any = None  # these explorations leave the network alone


def rollout(exploration: Exploration, logits: torch.Tensor, seed: int, reward: float = 0.0) -> Any:
    """Play a rollout with logits [B, T, A]; return its actions [B, T] and what is recorded."""
    length = logits.shape[1]
    exploration.begin(NET, length, 0, torch.Generator().manual_seed(seed))
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
    torch.testing.assert_close(
        recorded.log_probs.double(), policy.log()[actions], rtol=1e-4, atol=0
    )
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


def test_games_are_held_only_while_an_actor_meets_no_reward_and_if_it_is_asked_for() -> None:
    player, logits = Player(0, 1, 3, 2), torch.zeros(3, 10, 2)
    exploration = Sampled(player, hold_after=60)  # two rollouts of three games
    held = []
    for number, reward in enumerate([0, 0, 0, -1, 0, 0, 0]):
        recorded = rollout(exploration, logits, number, float(reward))[1]
        held.append((~recorded.independent).tolist())
    nobody, second = [False] * 3, [False, True, False]
    assert held == [nobody, nobody, second, second, nobody, nobody, second]
    never = Sampled(player)
    assert all(rollout(never, logits, n)[1].independent.all() for n in range(9))
    alone = Sampled(Player(0, 1, 1, 2), hold_after=1)
    assert all(rollout(alone, logits[:1], n)[1].independent.all() for n in range(9))


def test_epsilon_greedy_takes_the_best_value_or_what_was_drawn() -> None:
    games, actions, length = 50, 3, 200
    player = Player(0, 1, games, actions)
    exploration = EpsilonGreedy(player, falling(1.0, 0.2, 100, games))
    exploration.begin(NET, length, 100, torch.Generator().manual_seed(3))
    values = torch.randn(games, length, actions, generator=torch.Generator().manual_seed(4))
    chosen = torch.stack([exploration.choose(t, values[:, t]) for t in range(length)], dim=1)
    others = (chosen != values.argmax(dim=2)).double().mean().item()
    want = 0.2 * 2 / 3
    assert others == pytest.approx(want, abs=bound(want, games * length))
    recorded = exploration.end(values, chosen, np.zeros((games, length), dtype=np.float32))
    assert recorded.log_probs.shape == (games, length)
    assert not recorded.log_probs.any()


@pytest.mark.parametrize("longest", [1, 50])
def test_without_a_reward_every_second_game_repeats_an_action_for_a_rollout(longest: int) -> None:
    games, actions, length = 40, 4, 10
    player = Player(0, 1, games, actions)
    never = falling(0.0, 0.0, 1, games)

    def play(exploration: Any, seed: int, reward: float) -> list[bool]:
        """Return which games played a single action; the others must have played the best ones."""
        values = torch.randn(games, length, actions, generator=torch.Generator().manual_seed(9))
        chosen, _ = rollout(exploration, values, seed, reward)
        best = values.argmax(dim=2)
        assert (chosen[::2] == best[::2]).all()
        repeated = (chosen == chosen[:, :1]).all(dim=1)
        assert (repeated | (chosen == best).all(dim=1)).all()
        if repeated.any():
            assert set(chosen[repeated, 0].tolist()) == set(range(actions))
        return [bool(one) for one in repeated]

    nobody, second = [False] * games, [False, True] * (games // 2)
    exploration = epsilon_greedy(player, never, longest, hold_after=2 * games * length)
    found = [play(exploration, n, r) for n, r in enumerate([0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0])]
    assert found == [nobody, nobody, second, second, nobody, nobody, second]
    other = epsilon_greedy(player, never, longest, hold_after=2 * games * length)
    assert isinstance(exploration, Lasting)
    assert isinstance(other, Lasting)
    other.restore(exploration.save())
    assert play(other, 7, 0.0) == second
    always = epsilon_greedy(player, never, longest)
    assert [play(always, n, 0.0) for n in range(5)] == [nobody] * 5
    alone = epsilon_greedy(player._replace(games=1), falling(0.0, 0.0, 1, 1), longest, 1)
    values = torch.randn(1, length, actions)
    for seed in range(3):
        assert torch.equal(rollout(alone, values, seed)[0], values.argmax(dim=2))


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
