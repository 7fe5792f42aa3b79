"""Munchausen's rewards and values against a slow transcription of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gelada.ops.returns import munchausen


def test_rewards_and_values_are_the_papers() -> None:
    """Vieillard et al. 2020, equation 1, with l0 = -1; its alpha is left to the caller."""
    rng, tau = np.random.default_rng(2), 0.03
    scores, actions = rng.normal(scale=0.1, size=(2, 4, 3)), rng.integers(3, size=(2, 3))
    rewards, values = munchausen(torch.from_numpy(scores), torch.from_numpy(actions), tau)
    for b in range(2):
        for t in range(4):
            weights = np.exp(scores[b, t] / tau)
            policy = weights / weights.sum()
            expected = (policy * (scores[b, t] - tau * np.log(policy))).sum()
            assert values[b, t].item() == pytest.approx(expected, abs=1e-9)
            if t < 3:
                scaled = tau * np.log(policy[actions[b, t]])
                assert rewards[b, t].item() == pytest.approx(min(max(scaled, -1.0), 0.0), abs=1e-9)


def test_the_reward_of_an_unlikely_action_is_bounded() -> None:
    scores = torch.tensor([[[50.0, 0.0], [0.0, 0.0]]])
    for action, want in ((0, 0.0), (1, -1.0)):
        rewards, values = munchausen(scores, torch.tensor([[action]]), 0.03)
        assert rewards.tolist() == [[want]]
    assert values[0, 0].item() == pytest.approx(50.0)
