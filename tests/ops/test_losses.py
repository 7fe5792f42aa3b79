"""What the losses are made of, and values as distributions, against the papers' formulas.

The losses themselves are compared with the papers in `algorithms`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from colobus.ops import distributions, losses
from helpers.gradients import Array, as_float32, differences, gradient_of, log_softmax
from helpers.returns import histogram_of


def test_mean_of_weighs_and_survives_weights_that_are_all_0() -> None:
    values = torch.tensor([1.0, 7.0, 4.0])
    assert losses.mean_of(values, torch.tensor([0.5, 0.0, 1.0])).item() == 3.0
    assert losses.mean_of(values, torch.zeros(3)).item() == 0.0


def test_log_softmax_is_float32_whatever_it_is_given() -> None:
    logits = as_float32(np.random.default_rng(7).normal(size=(11, 4))).to(torch.bfloat16)
    found = losses.log_softmax(logits)
    assert found.dtype == torch.float32
    want = log_softmax(logits.double().numpy())
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


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


def test_the_mean_of_the_estimate_has_the_gradient_of_the_divergence() -> None:
    """Over actions drawn from mu; so the estimate may be minimised in its place."""
    mu, logits = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.4, -0.1])
    rng = np.random.default_rng(7)
    actions = torch.from_numpy(rng.choice(3, size=400_000, p=mu))
    log_mu = as_float32(np.log(mu))[actions]

    def found(z: torch.Tensor) -> torch.Tensor:
        log_ratios = losses.log_softmax(z)[actions] - log_mu
        return losses.approximate_kl(log_ratios, torch.ones(len(actions)))

    def slow(z: Array) -> float:
        return float((mu * (np.log(mu) - log_softmax(z))).sum())

    slope = differences(slow, logits)
    np.testing.assert_allclose(gradient_of(found, logits), slope, atol=3e-3)


@pytest.mark.parametrize(("bins", "limit"), [(21, 100.0), (51, 100.0), (101, 100.0), (51, 20.0)])
def test_targets_are_normal_distributions_cut_into_bins(bins: int, limit: float) -> None:
    values = [-130.0, -100.0, -7.3, -0.4, 0.0, 0.02, 1.0, 3.5, 40.0, 99.0, 250.0]
    found = distributions.histograms_of(torch.tensor(values), bins, limit)
    want = np.array([histogram_of(value, bins, limit) for value in values])
    np.testing.assert_allclose(found.numpy(), want, atol=2e-6)


@pytest.mark.parametrize(("bins", "limit"), [(20, 100.0), (51, 100.0), (101, 100.0), (51, 1e3)])
def test_the_mean_of_a_target_is_the_return(bins: int, limit: float) -> None:
    """A mean that is too large would grow with every bootstrap, so shares of it count."""
    sizes = torch.logspace(-3.0, math.log10(0.85 * limit), 2401)
    for returns in (sizes, -sizes):
        target = distributions.histograms_of(returns, bins, limit)
        found = distributions.means_of("histograms", target.log(), limit)
        torch.testing.assert_close(found, returns, rtol=1e-3, atol=2e-6)


def test_a_value_without_rewards_falls_to_0() -> None:
    """Each bootstrap multiplies it by the discount, and nothing else."""
    value = torch.tensor([1.0])
    for _ in range(200):
        target = distributions.histograms_of(0.97 * value, 51)
        value = distributions.means_of("histograms", target.log())
    assert value.item() == pytest.approx(0.97**200, rel=0.01)


def test_returns_beyond_the_limit_and_none_have_targets() -> None:
    returns = torch.tensor([math.inf, -1e9, 100.0, math.nan])
    found = distributions.histograms_of(returns, 51)
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[2].flip(0))
    assert found[3].isnan().all()  # an error is to be seen


def test_who_only_acts_first_does_not_hinder_who_learns() -> None:
    logits = torch.zeros(3, 17, requires_grad=True)
    distributions.edges.cache_clear()
    distributions.centres.cache_clear()
    with torch.inference_mode():
        distributions.means_of("histograms", logits)
    distributions.means_of("histograms", logits).sum().backward()
    assert logits.grad is not None
