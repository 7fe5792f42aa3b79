"""Returns and advantages of windows of consecutive steps.

All functions take float32 tensors ``[N, T]`` (windows, steps) and values ``[N, T + 1]``, and treat
the two ways in which an episode ends as follows:

* ``terminated``: the value after the step is 0.
* ``truncated``: the observation after the step is unknown (the next one is of another game). Such
  a step has advantage 0 and its own value as target, so the step before it bootstraps from the
  truncated step's observation. It is the idle step after a game that was cut off, whose observation
  is the game's last one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch.nn import functional


class Advantages(NamedTuple):
    """Targets of the value and advantages of the policy, each float32[N, T]."""

    targets: torch.Tensor
    advantages: torch.Tensor


class Partial(NamedTuple):
    """An n-step return without its last value: ``rewards + discounts * V(x_after)``."""

    rewards: torch.Tensor  # float32[N]: r_0 + gamma r_1 + …
    discounts: torch.Tensor  # float32[N]: gamma^k, or 0 where the game ended
    after: torch.Tensor  # int64[N]: k, the observation to bootstrap from


RewardClip = Literal["sign", "none"]
"""Learn from the sign of a reward (Mnih et al. 2015), or from the reward as it is."""


def clipped(rewards: torch.Tensor, clip: RewardClip) -> torch.Tensor:
    """Return the rewards to learn from, of the same shape."""
    return rewards.sign() if clip == "sign" else rewards


def discounts(terminated: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return float32[N, T]: 0 where the game terminated, else gamma."""
    return gamma * (~terminated).float()


def n_step(
    rewards: torch.Tensor,
    values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    n: int,
) -> torch.Tensor:
    """Return n-step returns float32[N, T] (Mnih et al. 2016, section 4).

    ``R_t = r_t + gamma r_{t+1} + … + gamma^n V(x_{t+n})``, shorter where the window or the game
    ends. Windows are cut into fragments of ``n`` steps from their start, as A3C does.
    """
    length = rewards.shape[1]
    decay = discounts(terminated, gamma)
    ends = (torch.arange(1, length + 1, device=rewards.device) % n == 0) | truncated
    ends[:, -1] = True
    terms = torch.where(ends, rewards + decay * values[:, 1:], rewards)
    terms = torch.where(truncated, values[:, :-1], terms)
    return _sums(terms, decay.masked_fill(ends, 0.0))


def partial_n_step(
    rewards: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor, gamma: float
) -> Partial:
    """Return the T-step return of every window's first step, without its last value.

    With that value it equals `n_step` at step 0, but only one of the T + 1 observations needs a
    value. That is a truncated step's own observation if there is one, so a first step that is
    truncated has its own value as target.
    """
    ended = terminated | truncated
    follows = ended.cumsum(dim=1) - ended.long() > 0  # some step before it was the last
    seen = ~(follows | truncated)
    powers = gamma ** torch.arange(rewards.shape[1], device=rewards.device)
    after = seen.sum(dim=1)
    finished = (seen & terminated).any(dim=1)
    return Partial(
        (rewards.masked_fill(~seen, 0.0) * powers).sum(dim=1),
        (gamma ** after.float()).masked_fill(finished, 0.0),
        after,
    )


def q_lambda(
    rewards: torch.Tensor,
    values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    lam: float,
) -> torch.Tensor:
    """Return the lambda returns float32[N, T] of Peng's Q(lambda) (Peng & Williams 1996).

    ``G_t = r_t + gamma ((1 - lam) V(x_{t+1}) + lam G_{t+1})`` with ``V(x) = max_a Q(x, a)`` in
    ``values``; after the window, ``G`` is V. Unlike Watkins's Q(lambda) it goes on after actions
    that were not greedy. It learns faster, and its fixed point lies between the values of the
    behaviour policy and of the greedy one (Kozuno et al. 2021).
    """
    return _accumulate(rewards, values, terminated, truncated, gamma, 1.0, lam).targets


def munchausen(
    scores: torch.Tensor, actions: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Munchausen's rewards float32[N, T] and soft values float32[N, T + 1].

    Vieillard et al. 2020, equation 1, with pi the softmax of ``scores / temperature``: the reward
    of a step is ``temperature log pi(a_t|x_t)``, at least -1, and the value of an observation is
    ``sum_a pi(a|x) (Q(x, a) - temperature log pi(a|x))``.

    The paper has one-step targets. In a return of many steps the reward belongs to its first step
    only: it tells how likely today's policy is to choose that action, and the later actions of an
    old trajectory are seldom those of today's policy, so that theirs would add up to a penalty for
    every step of it.

    Args:
        scores: action values float32[N, T + 1, A].
        actions: int64[N, T], taken.
        temperature: of the policy.
    """
    scaled = scores / temperature
    normaliser = torch.logsumexp(scaled, dim=2)
    taken = scaled[:, :-1].gather(2, actions.unsqueeze(2)).squeeze(2)
    rewards = temperature * (taken - normaliser[:, :-1])
    return rewards.clamp(-1.0, 0.0), temperature * normaliser


def gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    lam: float,
) -> Advantages:
    """Return generalised advantage estimates (Schulman et al. 2016, equation 16).

    ``A_t = delta_t + gamma lambda A_{t+1}`` with ``delta_t = r_t + gamma V(x_{t+1}) - V(x_t)``;
    the value target is ``A_t + V(x_t)``.
    """
    return _accumulate(rewards, values, terminated, truncated, gamma, 1.0, lam)


def vtrace(
    rewards: torch.Tensor,
    values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    log_ratios: torch.Tensor,
    gamma: float,
    lam: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float = 1.0,
) -> Advantages:
    """Return V-trace targets and policy-gradient advantages (Espeholt et al. 2018, section 4.1).

    ``log_ratios`` is log pi(a|x) - log mu(a|x), float32[N, T]. With
    ``rho_t = min(rho_bar, pi/mu)`` and ``c_t = lam min(c_bar, pi/mu)``:
    ``v_t = V_t + delta_t + gamma c_t (v_{t+1} - V_{t+1})``, ``delta_t = rho_t (r_t + gamma V_{t+1}
    - V_t)``, and the advantage is ``min(pg_rho_bar, pi/mu) (r_t + gamma v_{t+1} - V_t)``.
    On-policy with ``lam = 1`` this is the n-step return to the window's end.
    """
    ratios = log_ratios.exp()
    targets = _accumulate(
        rewards,
        values,
        terminated,
        truncated,
        gamma,
        ratios.clamp(max=rho_bar),
        lam * ratios.clamp(max=c_bar),
    ).targets
    following = torch.cat([targets[:, 1:], values[:, -1:]], dim=1)
    backed_up = rewards + discounts(terminated, gamma) * following
    advantages = ratios.clamp(max=pg_rho_bar) * (backed_up - values[:, :-1])
    return Advantages(targets, advantages.masked_fill(truncated, 0.0))


def _accumulate(
    rewards: torch.Tensor,
    values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    rhos: torch.Tensor | float,
    traces: torch.Tensor | float,
) -> Advantages:
    """Sum temporal differences backwards: ``x_t = rho_t delta_t + gamma trace_t x_{t+1}``."""
    decay = discounts(terminated, gamma)
    deltas = rhos * (rewards + decay * values[:, 1:] - values[:, :-1])
    deltas = deltas.masked_fill(truncated, 0.0)
    decay = (decay * traces).masked_fill(truncated, 0.0)
    out = _sums(deltas, decay)
    return Advantages(out + values[:, :-1], out)


def _sums(terms: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return what `backward_sums` returns, on a CPU by a loop over the steps."""
    if terms.device.type != "cpu":
        return backward_sums(terms, factors)
    sums, decay = terms.numpy().T.copy(), factors.numpy().T.copy()  # a row is a step
    for t in range(len(sums) - 2, -1, -1):  # numpy's calls take a seventh of torch's
        sums[t] += decay[t] * sums[t + 1]
    return torch.from_numpy(sums.T.copy())


def backward_sums(terms: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return ``x_t = terms_t + factors_t x_{t+1}`` float32[N, T], where ``x_T`` is 0.

    Each of log2(T) passes joins every sum with the one behind its end (a parallel prefix sum;
    Hillis & Steele 1986). A loop over the steps would start some thousand tiny operations on a GPU;
    a CPU does less in the loop. The two differ in how they round.
    """
    reach, length = 1, terms.shape[1]
    while reach < length:
        behind = functional.pad(terms[:, reach:], (0, reach))
        terms = terms + factors * behind
        factors = factors * functional.pad(factors[:, reach:], (0, reach))
        reach *= 2
    return terms
