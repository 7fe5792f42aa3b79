"""Returns step by step and their distributions, as the papers write them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from colobus.core.types import Batch, Trajectory
from colobus.ops import returns
from helpers.gradients import Array


def lambda_returns(
    sent: Trajectory, rewards: Array, best: Array, gamma: float, lam: float
) -> Array:
    """Gallici et al. 2024, algorithm 1: G_t = r_t + gamma (lam G_{t+1} + (1 - lam) V(x_{t+1})).

    After the end of a game nothing follows; a step that was cut off has its own value, and the
    step before it goes on with that.
    """
    games, length = rewards.shape
    targets = np.zeros((games, length))
    for b in range(games):
        for t in reversed(range(length)):
            if sent.truncated[b, t]:
                targets[b, t] = best[b, t]
                continue
            follows = best[b, t + 1] if t == length - 1 else targets[b, t + 1]
            after = lam * follows + (1 - lam) * best[b, t + 1]
            targets[b, t] = rewards[b, t] + gamma * (0.0 if sent.terminated[b, t] else after)
    return targets


def histogram_of(value: float, bins: int, most: float) -> list[float]:
    """Farebrother et al. 2024, section 3.1: a normal distribution cut into bins of equal width.

    Values are squashed first (Pohlen et al. 2018, without their linear term). The distribution is
    where its mean is the value, which is found by halving.
    """
    limit = math.sqrt(most + 1) - 1
    width = 2 * limit / bins
    variance = (0.75**2 + 1 / 12) * width**2
    middles = [-limit + (i + 0.5) * width for i in range(bins)]
    worth = [
        math.copysign((abs(m) + 1) ** 2 - 1 - variance, m) if abs(m) > 1e-9 else 0 for m in middles
    ]

    def around(middle: float) -> list[float]:
        def below(edge: float) -> float:
            return 0.5 * (1 + math.erf((edge - middle) / (0.75 * width * math.sqrt(2))))

        mass = [below(-limit + (i + 1) * width) - below(-limit + i * width) for i in range(bins)]
        return [one / sum(mass) for one in mass]

    low, high = 0.0, limit
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(p * w for p, w in zip(around(middle), worth, strict=True))
        low, high = (middle, high) if mean < abs(value) else (low, middle)
    return around(math.copysign(low, value))


def estimated(
    advantage: str, batch: Batch, rewards: Any, outputs: dict[str, Any], gamma: float, lam: float
) -> Any:
    """Return what GAE or V-trace estimates with policy [N, T + 1, A] and value [N, T + 1]."""
    given = (rewards, outputs["value"], batch.terminated, batch.truncated)
    if advantage == "gae":
        return returns.gae(*given, gamma, lam)
    log_policy = outputs["policy"][:, :-1].log_softmax(dim=2)
    now = log_policy.gather(2, batch.actions.unsqueeze(2)).squeeze(2)
    ratios = (now - batch.log_probs) * batch.mask  # both policies play what is forced
    return returns.vtrace(*given, ratios, gamma, lam)
