"""Loss terms against weighted sums written from the papers, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from colobus.ops import losses
from helpers.gradients import Array, as_float32, differences, gradient_of, log_softmax

M, A = 11, 4


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def some_weights(rng: np.random.Generator) -> Array:
    """Return weights float64[M], some of them 0."""
    return np.where(rng.random(M) < 0.3, 0.0, rng.uniform(0.5, 2.0, M))


def slow_mean(values: Array, weights: Array) -> float:
    return float(sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights))


def test_mean_of_weighs_and_survives_weights_that_are_all_0(rng: np.random.Generator) -> None:
    values, weights = rng.normal(size=M), some_weights(rng)
    found = losses.mean_of(as_float32(values), as_float32(weights))
    assert found.item() == pytest.approx(slow_mean(values, weights), rel=1e-5)
    assert losses.mean_of(as_float32(values), torch.zeros(M)).item() == 0.0


def slow_surrogate(ratios: Array, advantages: Array, clip: float, weights: Array) -> float:
    """-E[min(r A, clip(r, 1 - e, 1 + e) A)] (Schulman et al. 2017, equation 7)."""
    terms = [
        min(r * a, min(max(r, 1 - clip), 1 + clip) * a)
        for r, a in zip(ratios, advantages, strict=True)
    ]
    return -slow_mean(np.array(terms), weights)


def test_clipped_surrogate_and_its_gradient(rng: np.random.Generator) -> None:
    ratios, advantages, weights = rng.uniform(0.5, 1.6, M), rng.normal(size=M), some_weights(rng)

    def found(r: torch.Tensor) -> torch.Tensor:
        return losses.clipped_surrogate(r, as_float32(advantages), 0.2, as_float32(weights))

    want = slow_surrogate(ratios, advantages, 0.2, weights)
    assert found(as_float32(ratios)).item() == pytest.approx(want, rel=1e-5)
    slope = differences(lambda r: slow_surrogate(r, advantages, 0.2, weights), ratios)
    np.testing.assert_allclose(gradient_of(found, ratios), slope, rtol=1e-4, atol=1e-6)


def test_value_loss_and_its_gradient(rng: np.random.Generator) -> None:
    values, targets, weights = rng.normal(size=M), rng.normal(size=M), some_weights(rng)

    def found(v: torch.Tensor) -> torch.Tensor:
        return losses.value_loss(v, as_float32(targets), as_float32(weights))

    want = slow_mean((values - targets) ** 2 / 2, weights)
    assert found(as_float32(values)).item() == pytest.approx(want, rel=1e-5)
    slope = weights * (values - targets) / weights.sum()
    np.testing.assert_allclose(gradient_of(found, values), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("error", "loss", "slope"),
    [
        (0.0, 0.0, 0.0),
        (0.6, 0.18, 0.6),
        (-0.6, 0.18, -0.6),
        (1.0, 0.5, 1.0),
        (-1.0, 0.5, -1.0),
        (4.0, 3.5, 1.0),
        (-4.0, 3.5, -1.0),
    ],
)
def test_huber_is_half_the_square_and_then_straight(
    error: float, loss: float, slope: float
) -> None:
    assert losses.huber(torch.tensor([error])).item() == pytest.approx(loss)
    found = gradient_of(lambda e: losses.huber(e).sum(), np.array([error]))
    assert found[0] == pytest.approx(slope)


def slow_entropy(logits: Array, weights: Array) -> float:
    """-sum_a pi log pi, with pi = exp(z_a) / sum_b exp(z_b)."""
    policy = np.exp(log_softmax(logits))
    return slow_mean(np.array([-sum(p * np.log(p) for p in row) for row in policy]), weights)


def test_entropy_and_its_gradient_through_the_softmax(rng: np.random.Generator) -> None:
    logits, weights = rng.normal(size=(M, A)), some_weights(rng)

    def found(z: torch.Tensor) -> torch.Tensor:
        return losses.entropy(losses.log_softmax(z), as_float32(weights))

    assert found(as_float32(logits)).item() == pytest.approx(slow_entropy(logits, weights), 1e-5)
    slope = differences(lambda z: slow_entropy(z, weights), logits)
    np.testing.assert_allclose(gradient_of(found, logits), slope, rtol=1e-3, atol=1e-6)


def test_a_uniform_policy_has_entropy_log_of_the_actions() -> None:
    found = losses.entropy(losses.log_softmax(torch.full((3, 6), 2.5)), torch.ones(3))
    assert found.item() == pytest.approx(np.log(6), rel=1e-6)


def test_log_softmax_is_float32_whatever_it_is_given(rng: np.random.Generator) -> None:
    logits = as_float32(rng.normal(size=(M, A))).to(torch.bfloat16)
    found = losses.log_softmax(logits)
    assert found.dtype == torch.float32
    want = log_softmax(logits.double().numpy())
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_chosen_picks_each_samples_own_action() -> None:
    table = torch.arange(12.0).view(3, 4)
    assert losses.chosen(table, torch.tensor([3, 0, 2])).tolist() == [3.0, 4.0, 10.0]


def test_approximate_kl_estimates_the_kl_divergence(rng: np.random.Generator) -> None:
    mu, pi = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
    actions = rng.choice(3, size=200_000, p=mu)
    found = losses.approximate_kl(as_float32(np.log(pi / mu)[actions]), torch.ones(200_000))
    assert found.item() == pytest.approx(float((mu * np.log(mu / pi)).sum()), rel=0.02)


def test_explained_variance_is_one_minus_a_quotient_of_variances(rng: np.random.Generator) -> None:
    values, targets, weights = rng.normal(size=M), rng.normal(size=M), some_weights(rng)

    def variance(x: Array) -> float:
        return slow_mean((x - slow_mean(x, weights)) ** 2, weights)

    want = 1 - variance(targets - values) / variance(targets)
    found = losses.explained_variance(*map(as_float32, (values, targets, weights)))
    assert found.item() == pytest.approx(want, rel=1e-4)


def test_standardise_gives_weighted_mean_0_and_deviation_1(rng: np.random.Generator) -> None:
    values, weights = 5 + 3 * rng.normal(size=M), some_weights(rng)
    found = losses.standardise(as_float32(values), as_float32(weights)).double().numpy()
    assert slow_mean(found, weights) == pytest.approx(0.0, abs=1e-6)
    assert slow_mean(found**2, weights) == pytest.approx(1.0, rel=1e-5)
    mean = slow_mean(values, weights)
    deviation = slow_mean((values - mean) ** 2, weights) ** 0.5
    np.testing.assert_allclose(found, (values - mean) / deviation, rtol=1e-4, atol=1e-5)
