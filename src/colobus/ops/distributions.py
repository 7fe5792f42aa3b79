"""Values as distributions: outputs that describe one, its mean, and a loss for scalar returns.

*Histograms* (HL-Gauss, Farebrother et al. 2024) are classified: the target of a return is a normal
distribution around it, cut into bins, and the loss is the cross-entropy. The bins have equal width
after ``h(x) = sign(x) (sqrt(|x| + 1) - 1)`` (Pohlen et al. 2018, without its linear term), so small
returns are told apart finely and large ones still fit.

*Quantiles* (Dabney et al. 2018, QR-DQN) are regressed: the i-th of N outputs is the quantile of
``(i + 1/2) / N``. A return is one sample of the distribution.

Outputs are ``[…, atoms]`` for values ``[…]``.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Literal

import torch

from colobus.core.fields import OnlyWith, Range
from colobus.ops.losses import huber

Values = Literal["numbers", "histograms", "quantiles"]
"""What a network computes: values, or distributions of which they are the means."""

Atoms = Annotated[
    int,
    Range(8, 1001),
    OnlyWith("with --values histograms or quantiles", lambda own: own.values != "numbers"),
]
"""Outputs for a value: bins of a histogram, or number of quantiles."""

FEWEST_BINS = 20
"""Bins of a histogram at least. Near `LIMIT` a target is cut off at the last edge; with 19 bins its
mean misses a return of 100 by 13.2, with 51 by 4.9."""

LIMIT = 100.0
"""Largest return that histograms hold, unless a setting says otherwise: rewards of 1 at each step
with a discount of 0.99."""

PLACES = 4097
"""Places of a target for which its mean is known; between them it is interpolated."""

SPREAD = 0.75
"""Standard deviation of a target in widths of a bin (Farebrother et al. 2024, section 3.1)."""


@cache
@torch.inference_mode(False)  # who asks first may only act, and others learn with the same tensors
def edges(bins: int, device: torch.device | None = None, limit: float = LIMIT) -> torch.Tensor:
    """Return the edges float32[bins + 1] of the bins, as values of h; nobody changes them."""
    last = math.sqrt(limit + 1.0) - 1.0
    return torch.linspace(-last, last, bins + 1, device=device)


@cache
@torch.inference_mode(False)
def centres(bins: int, device: torch.device | None = None, limit: float = LIMIT) -> torch.Tensor:
    """Return the value float32[bins] that each bin stands for; nobody changes them.

    The inverse of h squares, so with the bins' middles the mean of a target would be larger than
    the return by the target's variance: that of the normal distribution, and a twelfth of a bin's
    squared width because it is cut into bins. Each value is smaller by that.
    """
    cuts = edges(bins, device, limit)
    middle, width = (cuts[1:] + cuts[:-1]) / 2.0, cuts[1] - cuts[0]
    variance = (SPREAD**2 + 1.0 / 12.0) * width.square()
    return middle.sign() * ((middle.abs() + 1.0).square() - 1.0 - variance)


@cache
@torch.inference_mode(False)
def means_by_place(
    bins: int, device: torch.device | None = None, limit: float = LIMIT
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return places of a normal distribution from 0 up, as values of h, and its mean at each.

    Both are float32[P] and rising. Nobody changes them.
    """
    last = math.sqrt(limit + 1.0) - 1.0
    places = torch.linspace(0.0, last, PLACES, dtype=torch.float64)
    cuts, values = edges(bins, None, limit).double(), centres(bins, None, limit).double()
    means = normals_at(places, cuts) @ values
    rising = int(means.argmax()) + 1  # near the last edge so much is cut off that it may fall
    return places[:rising].float().to(device), means[:rising].float().to(device)


def normals_at(places: torch.Tensor, cuts: torch.Tensor) -> torch.Tensor:
    """Return the probabilities […, bins] of normal distributions around places […]."""
    deviation = SPREAD * (cuts[1] - cuts[0])
    below = torch.erf((cuts - places.unsqueeze(-1)) / (math.sqrt(2.0) * deviation))
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


def histograms_of(returns: torch.Tensor, bins: int, limit: float = LIMIT) -> torch.Tensor:
    """Return the target's probabilities float32[…, bins] for returns float32[…].

    The normal distribution is not around h of the return but where its mean is the return, up to
    the largest mean. h turns at 0, so around h of a small return the mean would be up to 1.13
    times the return (51 bins), and values that should be 0 would grow with every bootstrap.
    """
    places, means = means_by_place(bins, returns.device, limit)
    sizes = torch.minimum(returns.abs(), means[-1])
    above = torch.searchsorted(means, sizes.contiguous()).clamp(1, len(means) - 1)
    low, high = means[above - 1], means[above]
    place = torch.lerp(places[above - 1], places[above], (sizes - low) / (high - low))
    return normals_at(returns.sign() * place, edges(bins, returns.device, limit))


def quantile_losses(quantiles: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Return the quantile Huber loss float32[…] of quantiles float32[…, N] and returns float32[…].

    Dabney et al. 2018, equation 10 with kappa 1; the mean over the quantiles, where the paper has
    the sum.
    """
    count = quantiles.shape[-1]
    shares = (torch.arange(count, device=quantiles.device) + 0.5) / count
    errors = returns.unsqueeze(-1) - quantiles
    return ((shares - (errors < 0).float()).abs() * huber(errors)).mean(dim=-1)


def means_of(values: Values, outputs: torch.Tensor, limit: float = LIMIT) -> torch.Tensor:
    """Return the values […] that outputs describe; numbers are values themselves.

    Args:
        values: what the outputs are.
        outputs: float32[…, atoms] of distributions, float32[…] of numbers.
        limit: largest return that histograms hold.
    """
    if values == "histograms":
        return torch.softmax(outputs, dim=-1) @ centres(outputs.shape[-1], outputs.device, limit)
    return outputs.mean(dim=-1) if values == "quantiles" else outputs


def losses_of(
    values: Values, outputs: torch.Tensor, returns: torch.Tensor, limit: float = LIMIT
) -> torch.Tensor:
    """Return the losses […] of what outputs describe for returns […]; see `means_of`.

    That of a number is half the squared error, that of a histogram its cross-entropy and the
    target's.
    """
    if values == "numbers":
        return 0.5 * (outputs - returns).square()
    if values == "quantiles":
        return quantile_losses(outputs, returns)
    wanted = histograms_of(returns, outputs.shape[-1], limit)
    return -(wanted * torch.log_softmax(outputs, dim=-1)).sum(dim=-1)
