"""Returns and advantages against slow transcriptions of the papers' sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colobus.ops import returns
from conftest import random_ends
from helpers.gradients import Array


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
