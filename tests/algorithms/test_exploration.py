"""Noise with which the best of the scores is epsilon-greedy, by counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gelada.algorithms import exploration as acting

ROWS, A = 40_000, 5


def bound(probability: float, count: int) -> float:
    """Return five standard deviations of a frequency."""
    return float(5 * np.sqrt(probability * (1 - probability) / count))


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.6, 1.0])
def test_rows_explore_with_probability_epsilon_all_actions_alike(epsilon: float) -> None:
    noise = acting.epsilon_greedy((ROWS, A), epsilon, torch.Generator().manual_seed(3))
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
    noise = acting.epsilon_greedy((1000, A), 1.0, torch.Generator().manual_seed(4))
    values = torch.randn(1000, A) * 1e30
    assert torch.equal((values + noise).argmax(dim=1), noise.argmax(dim=1))


def test_each_game_has_its_own_epsilon_and_steps_are_independent() -> None:
    epsilons = torch.tensor([0.0, 0.5, 1.0])
    noise = acting.epsilon_greedy((ROWS, 3, A), epsilons, torch.Generator().manual_seed(5))
    explores = noise.isinf().any(dim=2).double()
    found = explores.mean(dim=0).tolist()
    assert (found[0], found[2]) == (0.0, 1.0)
    assert found[1] == pytest.approx(0.5, abs=bound(0.5, ROWS))
    both = (explores[1:, 1] * explores[:-1, 1]).mean().item()
    assert both == pytest.approx(0.25, abs=bound(0.25, ROWS) * 1.5)
