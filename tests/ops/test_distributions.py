"""Values as histograms and as quantiles, against slow transcriptions of the papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from colobus.ops import distributions


def slow_target(value: float, bins: int, most: float) -> list[float]:
    """Farebrother et al. 2024, section 3.1: a normal distribution cut into bins of equal width.

    Values are squashed first (Pohlen et al. 2018, without their linear term).
    """
    limit = math.sqrt(most + 1) - 1
    width = 2 * limit / bins
    value = min(max(value, -most), most)
    middle = math.copysign(math.sqrt(abs(value) + 1) - 1, value)
    deviation = 0.75 * width

    def below(edge: float) -> float:
        return 0.5 * (1 + math.erf((edge - middle) / (deviation * math.sqrt(2))))

    mass = [below(-limit + (i + 1) * width) - below(-limit + i * width) for i in range(bins)]
    return [one / sum(mass) for one in mass]


VALUES = [-130.0, -100.0, -7.3, -0.4, 0.0, 0.02, 1.0, 3.5, 40.0, 99.0, 250.0]


@pytest.mark.parametrize(("bins", "limit"), [(21, 100.0), (51, 100.0), (101, 100.0), (51, 20.0)])
def test_targets_are_normal_distributions_cut_into_bins(bins: int, limit: float) -> None:
    found = distributions.histograms_of(torch.tensor(VALUES), bins, limit)
    want = np.array([slow_target(value, bins, limit) for value in VALUES])
    np.testing.assert_allclose(found.numpy(), want, atol=2e-6)


@pytest.mark.parametrize(("bins", "limit"), [(51, 100.0), (101, 100.0), (51, 20.0)])
def test_the_mean_of_a_target_is_the_return(bins: int, limit: float) -> None:
    """A mean that is too high would grow with every bootstrap."""
    returns = torch.linspace(-0.6 * limit, 0.6 * limit, 2401)
    target = distributions.histograms_of(returns, bins, limit)
    found = distributions.histogram_means(target.log(), limit)
    assert (found - returns).abs().max() < 0.025
    larger = (found - returns)[returns > 0].mean().item()
    assert abs(larger) < 0.003  # not on one side


def test_the_mean_of_two_returns_is_that_of_the_mixture() -> None:
    returns = torch.tensor([1.0, 30.0])
    both = distributions.histograms_of(returns, 51).mean(dim=0)
    assert distributions.histogram_means(both.log()).item() == pytest.approx(15.5, abs=0.02)


def test_bins_stand_for_rising_values() -> None:
    for bins in (21, 51, 101):
        values = distributions.centres(bins)
        assert (values.diff() > 0).all()
        assert values[bins // 2] == 0.0


def test_who_only_acts_first_does_not_hinder_who_learns() -> None:
    logits = torch.zeros(3, 17, requires_grad=True)
    distributions.edges.cache_clear()
    distributions.centres.cache_clear()
    with torch.inference_mode():
        distributions.histogram_means(logits)
    distributions.histogram_means(logits).sum().backward()
    assert logits.grad is not None
