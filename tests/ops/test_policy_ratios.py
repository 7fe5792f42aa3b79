"""Ratios to a target policy, KL divergences and their statistics against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from colobus.ops import losses
from helpers.gradients import Array, as_float32, differences, gradient_of, log_softmax

M, A = 40, 4


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def slow_capped_loss(
    log_pi: Array, log_mu: Array, log_old: Array, advantages: Array, cap: float, clip: float
) -> float:
    """-mean min(r A, clip(r) A) with r = min(mu / pi_old, cap) pi / mu, sample by sample."""
    total = 0.0
    for i in range(len(log_pi)):
        pi, mu, old = np.exp(log_pi[i]), np.exp(log_mu[i]), np.exp(log_old[i])
        ratio = min(mu / old, cap) * pi / mu
        clipped = min(max(ratio, 1 - clip), 1 + clip)
        total -= min(ratio * advantages[i], clipped * advantages[i])
    return total / len(log_pi)


@pytest.mark.parametrize("cap", [1.0, 2.0, 1e6])
def test_the_capped_loss_and_its_gradient(rng: np.random.Generator, cap: float) -> None:
    log_mu, log_old = np.log(rng.uniform(0.05, 0.95, (2, M)))
    log_pi = log_old + rng.normal(scale=0.3, size=M)
    advantages = rng.normal(size=M)
    assert 5 < (np.exp(log_mu - log_old) > 2.0).sum() < M - 5  # the cap of 2 holds for some

    def found(pi: torch.Tensor) -> torch.Tensor:
        others = as_float32(log_mu), as_float32(log_old)
        ignored = torch.zeros(M, dtype=torch.bool)
        ratios = losses.capped_log_ratios(pi, *others, cap, ignored).exp()
        return losses.clipped_surrogate(ratios, as_float32(advantages), 0.2, torch.ones(M))

    def slow(pi: Array) -> float:
        return slow_capped_loss(pi, log_mu, log_old, advantages, cap, 0.2)

    assert found(as_float32(log_pi)).item() == pytest.approx(slow(log_pi), rel=1e-4)
    slope = differences(slow, log_pi)
    np.testing.assert_allclose(gradient_of(found, log_pi), slope, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("mu", "old", "pi", "ratio"),
    [
        (0.3, 0.3, 0.6, 2.0),  # the target policy is the behaviour policy: pi / mu
        (0.3, 0.2, 0.6, 3.0),  # mu / old is 1.5: pi / old
        (0.9, 0.3, 0.3, 2.0 / 3.0),  # mu / old would be 3: 2 pi / mu
        (0.1, 0.4, 0.2, 0.5),  # below 1 nothing is capped: pi / old
    ],
)
def test_the_capped_ratio_as_a_table(mu: float, old: float, pi: float, ratio: float) -> None:
    log_pi, log_mu, log_old = (torch.tensor([x]).log() for x in (pi, mu, old))
    ignored = torch.zeros(1, dtype=torch.bool)
    found = losses.capped_log_ratios(log_pi, log_mu, log_old, 2.0, ignored).exp()
    assert found.item() == pytest.approx(ratio, rel=1e-5)


def slow_kl(first: Array, logits: Array, weights: Array) -> float:
    """The weighted mean of sum_a p log(p / q), observation by observation."""
    second, total = np.exp(log_softmax(logits)), 0.0
    for p, q, weight in zip(np.exp(first), second, weights, strict=True):
        total += weight * sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))
    return float(total / weights.sum())


def test_the_exact_divergence_and_its_gradient_through_the_softmax(
    rng: np.random.Generator,
) -> None:
    first, logits = log_softmax(rng.normal(size=(M, A))), rng.normal(size=(M, A))
    weights = np.where(np.arange(M) % 3 == 0, 0.0, rng.uniform(0.5, 2.0, M))

    def found(z: torch.Tensor) -> torch.Tensor:
        each = losses.exact_kl(as_float32(first), losses.log_softmax(z))
        return losses.mean_of(each, as_float32(weights))

    want = slow_kl(first, logits, weights)
    assert want > 0.1
    assert found(as_float32(logits)).item() == pytest.approx(want, rel=1e-4)
    slope = differences(lambda z: slow_kl(first, z, weights), logits)
    np.testing.assert_allclose(gradient_of(found, logits), slope, rtol=1e-3, atol=1e-6)
    own = as_float32(first)
    assert losses.exact_kl(own, own).abs().max() == 0.0


def test_the_mean_of_the_estimate_has_the_gradient_of_the_divergence(
    rng: np.random.Generator,
) -> None:
    """Over actions drawn from mu; so the estimate may be minimised in its place."""
    mu, logits = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.4, -0.1])
    actions = torch.from_numpy(rng.choice(3, size=400_000, p=mu))
    log_mu = as_float32(np.log(mu))[actions]

    def found(z: torch.Tensor) -> torch.Tensor:
        log_ratios = losses.log_softmax(z)[actions] - log_mu
        return losses.approximate_kl(log_ratios, torch.ones(len(actions)))

    def slow(z: Array) -> float:
        return float((mu * (np.log(mu) - log_softmax(z))).sum())

    slope = differences(slow, logits)
    np.testing.assert_allclose(gradient_of(found, logits), slope, atol=3e-3)


def test_statistics_of_divergence_and_ratios(rng: np.random.Generator) -> None:
    log_ratios = rng.normal(scale=0.5, size=M)
    weights = np.where(np.arange(M) % 4 == 0, 0.0, rng.uniform(0.5, 2.0, M))
    log_ratios[0] = 9.0  # of weight 0
    each = np.exp(log_ratios) - 1 - log_ratios
    found = losses.kl_statistics(as_float32(log_ratios), as_float32(weights))
    kept = np.sort(each[weights > 0])
    assert found["kl"].item() == pytest.approx(np.average(each, weights=weights), rel=1e-4)
    assert found["kl_median"].item() == pytest.approx(kept[(len(kept) - 1) // 2], rel=1e-4)
    assert found["kl_max"].item() == pytest.approx(kept[-1], rel=1e-4)
    ratios = np.exp(log_ratios)
    found = losses.ratio_statistics(as_float32(ratios), as_float32(weights))
    mean = np.average(ratios, weights=weights)
    assert found["ratio_mean"].item() == pytest.approx(mean, rel=1e-4)
    variance = np.average((ratios - mean) ** 2, weights=weights)
    assert found["ratio_variance"].item() == pytest.approx(variance, rel=1e-4)
