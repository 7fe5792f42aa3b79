"""APPO's loss with three policies that all differ, against IMPACT's formula in numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import stand_in
from gelada.algorithms.appo import APPO, Steps
from gelada.algorithms.batches import Minibatch
from helpers.gradients import Array, as_float32, differences, log_softmax

M, A = 40, 4

ALGORITHM = APPO(
    advantage="vtrace",
    target_every=1,
    ratio_cap=2.0,
    clip=0.3,
    kl_adjust=1.0,
    kl_coeff=0.4,
    value_coefficient=0.7,
    entropy=0.03,
)


class Case:
    """Random samples: mu has acted, pi_old is the target policy, pi has the logits."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.logits, self.values = rng.normal(size=(M, A)), rng.normal(size=M)
        self.log_old = log_softmax(self.logits + rng.normal(scale=0.5, size=(M, A)))
        self.actions = rng.integers(A, size=M)
        own = self.log_old[np.arange(M), self.actions]
        self.log_mu = np.minimum(own + rng.normal(scale=0.8, size=M), -0.01)
        self.advantages, self.targets = rng.normal(size=M), rng.normal(size=M)
        self.weights = np.where(np.arange(M) % 5 == 2, 0.0, rng.uniform(0.5, 1.5, M))
        self.fresh = np.arange(M) % 3 > 0  # the others are of old windows

    def minibatch(self) -> Minibatch[Steps]:
        steps = Steps(
            torch.from_numpy(self.actions),
            as_float32(self.log_mu),
            as_float32(self.advantages),
            as_float32(self.targets),
            as_float32(self.weights),
            as_float32(self.fresh),
            as_float32(self.log_old),
        )
        return Minibatch(torch.zeros(M, 1, 1, 1), steps)


def slow(case: Case, logits: Array, values: Array, algorithm: APPO) -> dict[str, float]:
    """Luo et al. 2020, sample by sample, with the ratio ``pi / max(pi_old, mu / cap)``."""

    def mean(x: Array, weights: Array = case.weights) -> float:
        return float((x * weights).sum() / weights.sum())

    advantages = case.advantages
    if algorithm.normalise:
        centred = advantages - mean(advantages)
        advantages = centred / mean(centred**2) ** 0.5
    surrogate, entropy, kl, moved, ratios, clipped = np.zeros((6, M))
    for i in range(M):
        policy, old = np.exp(logits[i]) / np.exp(logits[i]).sum(), np.exp(case.log_old[i])
        action, mu, a = case.actions[i], np.exp(case.log_mu[i]), advantages[i]
        ratios[i] = policy[action] / max(old[action], mu / algorithm.ratio_cap)
        limited = min(max(ratios[i], 1 - algorithm.clip), 1 + algorithm.clip)
        clipped[i] = limited != ratios[i]
        surrogate[i] = min(ratios[i] * a, limited * a)
        entropy[i] = -sum(p * np.log(p) for p in policy)
        kl[i] = sum(o * np.log(o / p) for o, p in zip(old, policy, strict=True))
        moved[i] = policy[action] / mu - 1 - np.log(policy[action] / mu)
    measured = case.weights * case.fresh
    terms = {
        "policy_loss": -mean(surrogate),
        "value_loss": mean((values - case.targets) ** 2) / 2,
        "entropy": mean(entropy),
        "kl_term": mean(kl, measured),  # what steers: of fresh windows
        "kl": mean(moved, measured),
        "ratio_mean": mean(ratios),
        "ratio_variance": mean((ratios - mean(ratios)) ** 2),
        "clipped": mean(clipped),
    }
    terms["total"] = (
        terms["policy_loss"]
        + algorithm.value_coefficient * terms["value_loss"]
        - algorithm.entropy * terms["entropy"]
        + algorithm.kl_coeff * mean(kl)  # what is minimised: of all windows
    )
    return terms


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_its_terms_and_its_gradient_are_the_formulas(seed: int, normalise: bool) -> None:
    algorithm, case = replace(ALGORITHM, normalise=normalise), Case(seed)
    logits, values = (as_float32(x).requires_grad_(True) for x in (case.logits, case.values))
    net = stand_in(lambda _stacks: {"policy": logits, "value": values.unsqueeze(1)})
    total, terms = algorithm.loss(net, case.minibatch(), algorithm.start())
    torch.autograd.backward(total)
    want = slow(case, case.logits, case.values, algorithm)
    assert total.item() == pytest.approx(want.pop("total"), rel=1e-4, abs=1e-5)
    for name, value in want.items():
        assert terms[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), name

    def by_logits(x: Array) -> float:
        return slow(case, x, case.values, algorithm)["total"]

    def by_values(x: Array) -> float:
        return slow(case, case.logits, x, algorithm)["total"]

    for tensor, loss, at in ((logits, by_logits, case.logits), (values, by_values, case.values)):
        assert tensor.grad is not None
        np.testing.assert_allclose(tensor.grad, differences(loss, at), rtol=2e-3, atol=2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_cases_tell_the_policies_apart(seed: int) -> None:
    """The cap and the clip hold for some samples, and no policy could stand in for another."""
    case = Case(seed)
    own = case.log_old[np.arange(M), case.actions]
    counts = (case.weights > 0) & (case.log_mu - own > np.log(ALGORITHM.ratio_cap))
    assert 2 <= counts.sum() <= M // 2
    want = slow(case, case.logits, case.values, ALGORITHM)
    assert 0.1 < want["clipped"] < 0.9
    swapped, plain = Case(seed), Case(seed)
    swapped.log_old[np.arange(M), case.actions], swapped.log_mu = case.log_mu, own
    plain.log_old[np.arange(M), case.actions] = case.log_mu
    for other in (swapped, plain):
        found = slow(other, case.logits, case.values, ALGORITHM)
        assert abs(found["policy_loss"] - want["policy_loss"]) > 1e-3
