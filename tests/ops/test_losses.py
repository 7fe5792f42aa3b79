"""What the losses are made of, and values as distributions, against the papers' formulas.

The losses themselves are compared with the papers in `algorithms`. At the end returns and
advantages, against slow transcriptions of sums and products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colobus.ops import distributions, losses, returns
from conftest import random_ends
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
    for wanted in (sizes, -sizes):
        target = distributions.histograms_of(wanted, bins, limit)
        found = distributions.means_of("histograms", target.log(), limit)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-6)


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


class Window:
    """One random window in float64; step t has reward r[t] and leads from v[t] to v[t + 1]."""

    def __init__(self, seed: int, length: int) -> None:
        rng = np.random.default_rng(seed)
        self.length = length
        self.r = rng.normal(size=length)
        self.v = rng.normal(size=length + 1)
        self.log_ratio = rng.normal(scale=0.7, size=length)
        ends = random_ends(rng, (1, length))
        self.terminated, self.truncated = ends[0][0], ends[1][0]

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        r, v, terminated, truncated = tensors(self.r, self.v, self.terminated, self.truncated)
        return r, v, terminated, truncated


windows = st.builds(Window, st.integers(0, 2**32 - 1), st.integers(1, 9))
discounts = st.sampled_from([0.0, 0.9, 1.0])


def tensors(*arrays: Array) -> Any:
    """Return arrays as tensors with a leading axis of one window."""
    return tuple(
        torch.from_numpy(a if a.dtype == bool else a.astype(np.float32))[None] for a in arrays
    )


def steps_from(w: Window, s: int) -> list[int]:
    """Return the steps after s whose rewards count for s: to the game's or the window's end.

    A truncated step does not count (what it leads to was not seen); a terminated one is the last.
    """
    steps = []
    for t in range(s, w.length):
        if w.truncated[t]:
            break
        steps.append(t)
        if w.terminated[t]:
            break
    return steps


def slow_return(w: Window, s: int, last: int, gamma: float) -> float:
    """R_s = sum_i gamma^i r_{s+i} + gamma^k V(x_{s+k}) (Mnih et al. 2016), up to x_last."""
    steps = [t for t in steps_from(w, s) if t < last]
    total = sum(gamma ** (t - s) * w.r[t] for t in steps)
    if steps and w.terminated[steps[-1]]:
        return float(total)
    return float(total + gamma ** len(steps) * w.v[s + len(steps)])


def slow_gae(w: Window, s: int, gamma: float, lam: float) -> float:
    """A_s = sum_l (gamma lam)^l delta_{s+l} (Schulman et al. 2016, equation 16)."""
    total = 0.0
    for t in steps_from(w, s):
        following = 0.0 if w.terminated[t] else w.v[t + 1]
        total += (gamma * lam) ** (t - s) * (w.r[t] + gamma * following - w.v[t])
    return total


def slow_vtrace(w: Window, s: int, gamma: float, lam: float, rho_bar: float, c_bar: float) -> float:
    """v_s = V_s + sum_t gamma^(t-s) (prod_{i=s}^{t-1} c_i) delta_t (Espeholt et al. 2018, 1)."""
    ratio = np.exp(w.log_ratio)
    total = w.v[s]
    for t in steps_from(w, s):
        product = np.prod([lam * min(c_bar, ratio[i]) for i in range(s, t)])
        following = 0.0 if w.terminated[t] else w.v[t + 1]
        delta = min(rho_bar, ratio[t]) * (w.r[t] + gamma * following - w.v[t])
        total += gamma ** (t - s) * product * delta
    return float(total)


@given(w=windows, n=st.integers(1, 12), gamma=discounts)
def test_n_step_returns_are_the_formulas(w: Window, n: int, gamma: float) -> None:
    found = returns.n_step(*w.tensors(), gamma, n)[0]
    want = [slow_return(w, s, min((s // n + 1) * n, w.length), gamma) for s in range(w.length)]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@given(w=windows, gamma=discounts, lam=st.floats(0, 1))
def test_gae_is_the_formula(w: Window, gamma: float, lam: float) -> None:
    found = returns.gae(*w.tensors(), gamma, lam)
    want = np.array([slow_gae(w, s, gamma, lam) for s in range(w.length)])
    np.testing.assert_allclose(found.advantages[0], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.targets[0], want + w.v[:-1], rtol=1e-4, atol=1e-5)


@given(
    w=windows,
    gamma=discounts,
    lam=st.floats(0, 1),
    limits=st.sampled_from([(1.0, 1.0, 1.0), (2.0, 0.7, 1.3), (0.5, 0.5, 0.5)]),
)
def test_vtrace_is_the_formula(
    w: Window, gamma: float, lam: float, limits: tuple[float, float, float]
) -> None:
    rho_bar, c_bar, pg_rho_bar = limits
    (log_ratios,) = tensors(w.log_ratio)
    found = returns.vtrace(*w.tensors(), log_ratios, gamma, lam, rho_bar, c_bar, pg_rho_bar)
    v = [slow_vtrace(w, s, gamma, lam, rho_bar, c_bar) for s in range(w.length)] + [w.v[-1]]
    np.testing.assert_allclose(found.targets[0], v[:-1], rtol=1e-4, atol=1e-5)
    advantages = [
        0.0
        if w.truncated[s]
        else min(pg_rho_bar, np.exp(w.log_ratio[s]))
        * (w.r[s] + gamma * (0.0 if w.terminated[s] else v[s + 1]) - w.v[s])
        for s in range(w.length)
    ]
    np.testing.assert_allclose(found.advantages[0], advantages, rtol=1e-4, atol=1e-5)


def slow_lambda_return(w: Window, s: int, gamma: float, lam: float) -> float:
    """(1 - lam) sum_n lam^(n-1) G^(n) + lam^(L-1) G^(L), up to the end (Peng & Williams 1996)."""
    left = max(len(steps_from(w, s)), 1)
    total = sum(
        (1 - lam) * lam ** (n - 1) * slow_return(w, s, s + n, gamma) for n in range(1, left)
    )
    return float(total + lam ** (left - 1) * slow_return(w, s, s + left, gamma))


@given(w=windows, gamma=discounts, lam=st.sampled_from([0.0, 0.4, 0.9, 1.0]))
def test_lambda_returns_mix_n_step_returns(w: Window, gamma: float, lam: float) -> None:
    found = returns.q_lambda(*w.tensors(), gamma, lam)[0]
    want = [slow_lambda_return(w, s, gamma, lam) for s in range(w.length)]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@given(w=windows, gamma=discounts)
def test_partial_returns_and_the_value_after_are_n_step_returns(w: Window, gamma: float) -> None:
    rewards, _, terminated, truncated = w.tensors()
    partial = returns.partial_n_step(rewards, terminated, truncated, gamma)
    after = int(partial.after)
    assert after == len(steps_from(w, 0))
    found = float(partial.rewards) + float(partial.discounts) * w.v[after]
    assert found == pytest.approx(slow_return(w, 0, w.length, gamma), rel=1e-4, abs=1e-5)


def test_the_reward_of_an_unlikely_action_is_bounded() -> None:
    scores = torch.tensor([[[50.0, 0.0], [0.0, 0.0]]])
    for action, want in ((0, 0.0), (1, -1.0)):
        rewards, values = returns.munchausen(scores, torch.tensor([[action]]), 0.03)
        assert rewards.tolist() == [[want]]
    assert values[0, 0].item() == pytest.approx(50.0)
