"""The outlier rule of Gorila: which losses are too far above the earlier ones (Nair et al. 2015).

The statistics of the losses are float64 scalars in ``aux``.
"""

from __future__ import annotations

import math

import torch

from gelada.core.types import Aux

LOSS_RATE = 0.001
"""Weight of the newest loss in the running mean and variance, which thus cover about the last 1,000
losses. Our choice; the paper has no number."""

LOSSES_SEEN = 100
"""Number of losses before the outlier rule applies. Our choice; the paper has no number."""


def no_losses() -> Aux:
    """Return the statistics over no losses."""
    names = ("loss_count", "loss_mean", "loss_variance")
    return {name: torch.zeros((), dtype=torch.float64) for name in names}


def is_outlier(aux: Aux, loss: float, deviations: float) -> bool:
    """Return whether an absolute loss is so many standard deviations above the running mean."""
    if float(aux["loss_count"]) < LOSSES_SEEN:
        return False
    deviation = math.sqrt(float(aux["loss_variance"]))
    return abs(loss) > float(aux["loss_mean"]) + deviations * deviation


def add_loss(aux: Aux, loss: float) -> None:
    """Add the absolute value of a loss to the statistics: to a plain mean at first, later to an
    exponential one (West 1979).
    """
    aux["loss_count"] += 1.0
    rate = max(1.0 / float(aux["loss_count"]), LOSS_RATE)
    difference = abs(loss) - float(aux["loss_mean"])
    aux["loss_mean"] += rate * difference
    spread = float(aux["loss_variance"]) + rate * difference**2
    aux["loss_variance"].fill_((1.0 - rate) * spread)
