"""Loss terms: means over samples ``[M]``. Scores of actions are ``[M, A]``."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

FORBIDDEN = -(2.0**100)
"""Score of an action that is not allowed: finite, as 0 times infinity is not 0."""

ALL = torch.empty(0, dtype=torch.bool)
"""A mask that allows all actions."""


def mean_of(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted mean of ``values`` [M]; 0 if all weights are 0."""
    return (values * weights).sum() / weights.sum().clamp(min=1e-8)


def clipped_surrogate(
    ratios: torch.Tensor, advantages: torch.Tensor, clip: float, weights: torch.Tensor
) -> torch.Tensor:
    """Return PPO's policy loss, ``-mean min(r A, clip(r, 1 - e, 1 + e) A)``.

    Schulman et al. 2017, equation 7. ``ratios`` is pi(a|x) / mu(a|x) against the behaviour policy.
    """
    clipped = ratios.clamp(1.0 - clip, 1.0 + clip)
    return -mean_of(torch.minimum(ratios * advantages, clipped * advantages), weights)


def policy_gradient(
    log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return ``-mean log pi(a|x) A``, the loss of the policy gradient (Mnih et al. 2016).

    ``log_probs`` [M] at the actions taken; ``advantages`` [M] are constants.
    """
    return -mean_of(log_probs * advantages, weights)


def value_loss(values: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return half the mean squared error of the value (Mnih et al. 2016)."""
    return 0.5 * mean_of((values - targets).square(), weights)


def huber(errors: torch.Tensor) -> torch.Tensor:
    """Return the Huber loss of each error: quadratic up to 1, linear beyond; no mean is taken.

    Its slope is the error clipped to -1 … 1 (Mnih et al. 2015, "error clipping").
    """
    sizes = errors.abs()
    return torch.where(sizes <= 1.0, 0.5 * errors.square(), sizes - 0.5)


def entropy(log_probs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the policy's mean entropy in nats; ``log_probs`` is log pi(.|x), [M, A]."""
    return mean_of(-(log_probs.exp() * log_probs).sum(dim=1), weights)


def chosen(scores: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Return the scores [M] of the actions int64[M], such as log pi(a|x), from all of them [M, A].

    From scores [M, A, n] it returns [M, n].
    """
    index = actions.view(-1, 1, *[1] * (scores.dim() - 2)).expand(-1, 1, *scores.shape[2:])
    return scores.gather(1, index).squeeze(1)


LOG_RATIO_LIMIT = 20.0
"""A ratio of probabilities beyond e^20 could make a loss infinite, whatever PPO clips."""


def log_ratios(
    log_probs: torch.Tensor, behaviour: torch.Tensor, ignored: torch.Tensor
) -> torch.Tensor:
    """Return log pi(a|x) - log mu(a|x) float32[M], at most `LOG_RATIO_LIMIT` from 0.

    Args:
        log_probs: log pi(a|x) [M], of the policy that learns.
        behaviour: log mu(a|x) [M], of the policy that acted.
        ignored: bool[M], where the result is 0 whatever is there (0 times infinity is not 0).
    """
    ratios = (log_probs - behaviour).masked_fill(ignored, 0.0)
    return ratios.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def capped_log_ratios(
    log_probs: torch.Tensor,
    behaviour: torch.Tensor,
    target: torch.Tensor,
    cap: float,
    ignored: torch.Tensor,
) -> torch.Tensor:
    """Return the log of ``min(mu / pi_old, cap) pi / mu`` float32[M], a ratio to a target policy.

    It is pi / pi_old, unless the behaviour policy gave the action more than ``cap`` times the
    probability that the target policy gives it (IMPACT, Luo et al. 2020). If the target policy is
    the behaviour policy, it is exactly what `log_ratios` returns.

    Args:
        log_probs: as in `log_ratios`, as are ``behaviour`` and ``ignored``.
        target: log pi_old(a|x) [M], of the target policy.
        cap: upper limit of mu / pi_old, at least 1.
    """
    to_target = log_ratios(behaviour, target, ignored).clamp(max=math.log(cap))
    ratios = to_target + log_ratios(log_probs, behaviour, ignored)
    return ratios.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def estimated_kl(log_ratios: torch.Tensor) -> torch.Tensor:
    """Return ``r - 1 - log r`` [M], whose mean over actions drawn from mu is KL(mu, pi).

    It is never negative (the estimator k3 of Schulman 2020, "Approximating KL Divergence").
    ``log_ratios`` [M] is log r = log pi(a|x) - log mu(a|x).
    """
    return torch.expm1(log_ratios) - log_ratios


def approximate_kl(log_ratios: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the mean of `estimated_kl`; -inf, which no mean counts, if all weights are 0."""
    return mean_of(estimated_kl(log_ratios), weights).masked_fill(~weights.any(), -math.inf)


def exact_kl(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return KL(first, second) of each observation [M] from log-probabilities [M, A]."""
    return (first.exp() * (first - second)).sum(dim=1)


def kl_statistics(log_ratios: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return mean, median and largest value of `estimated_kl` over samples of weight above 0.

    The median is not weighted. All are -inf, which no mean counts, if all weights are 0.
    """
    each, ignored = estimated_kl(log_ratios), weights == 0.0
    return {
        "kl": mean_of(each, weights).masked_fill(ignored.all(), -math.inf),
        "kl_median": median_of(each, ignored),
        "kl_max": each.masked_fill(ignored, -math.inf).amax(),
    }


def median_of(values: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
    """Return the lower median of values [M] that are not ignored; -inf if all are.

    It is found by sorting: `torch.nanmedian` would read the count from a GPU.
    """
    ordered = values.masked_fill(ignored, math.inf).sort().values
    count = (~ignored).sum()
    middle = ordered.gather(0, ((count - 1).clamp(min=0) // 2).unsqueeze(0)).squeeze(0)
    return middle.masked_fill(count == 0, -math.inf)


def ratio_statistics(ratios: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the weighted mean and variance of importance ratios [M]."""
    mean = mean_of(ratios, weights)
    return {"ratio_mean": mean, "ratio_variance": mean_of((ratios - mean).square(), weights)}


def explained_variance(
    values: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return 1 - Var(target - value) / Var(target): 1 if exact, 0 for a constant value."""
    error, mean = targets - values, mean_of(targets, weights)
    spread = mean_of((targets - mean).square(), weights)
    return 1.0 - mean_of((error - mean_of(error, weights)).square(), weights) / spread.clamp(1e-8)


def standardise(
    values: torch.Tensor, weights: torch.Tensor, moments: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``values`` less their weighted mean, divided by their standard deviation.

    ``moments`` float32[2] are mean and deviation to take instead, those of more samples.
    """
    centred = values - (mean_of(values, weights) if moments is None else moments[0])
    deviation = mean_of(centred.square(), weights).sqrt() if moments is None else moments[1]
    return centred / (deviation + 1e-8)


def weighted_sums(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return float64[3]: the sums of weights, weighted values, and weighted squares.

    Sums of several learners' samples can be added; what has weight 0 may hold anything.
    """
    double = values.masked_fill(weights == 0.0, 0.0).double()
    weighted = weights.double() * double
    return torch.stack([weights.double().sum(), weighted.sum(), (weighted * double).sum()])


def log_softmax(logits: torch.Tensor, allowed: torch.Tensor = ALL) -> torch.Tensor:
    """Return log pi(.|x) [M, A] in float32 from scores of any precision, as `masked` takes them."""
    return functional.log_softmax(masked(logits.float(), allowed), dim=-1)


def masked(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Return scores […, A] of actions, with `FORBIDDEN` for those that are not allowed.

    So they have the probability 0, no part in the entropy, and are no maximum (Huang & Ontañón
    2022, "A Closer Look at Invalid Action Masking").

    Args:
        scores: logits or values.
        allowed: bool[…, A]; bool[…, 0]: all are.
    """
    return scores.masked_fill(~allowed, FORBIDDEN) if allowed.shape[-1] else scores
