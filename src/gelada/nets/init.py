"""Initial weights of a network's layers. Biases are 0.

All choices except orthogonal are those of Distributed-BA3C (2018), with TensorFlow's meaning: a
truncated normal draws again where a weight is beyond two standard deviations, so the standard
deviation of the weights is 0.88 times the given one.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

ConvInit = Literal["orthogonal", "normal", "uniform", "xavier"]
LinearInit = Literal["orthogonal", "normal", "uniform"]

RELU_GAIN = 2.0**0.5
"""Gain before a ReLU (He et al. 2015), here of orthogonal weights (Saxe et al. 2014)."""


def start_convolution(layer: nn.Conv2d | nn.ConvTranspose2d, init: ConvInit) -> None:
    """Draw the weights [filters, channels, h, w]. Orthogonal weights have the gain sqrt(2).

    Those of a transposed convolution are [channels, filters, h, w].
    """
    if init == "orthogonal":
        nn.init.orthogonal_(layer.weight, RELU_GAIN)
    elif init == "normal":
        _truncated_normal(layer.weight, 0.03)
    elif init == "uniform":
        nn.init.uniform_(layer.weight, -0.05, 0.05)
    else:
        nn.init.xavier_uniform_(layer.weight)
    _clear(layer.bias)


def start_linear(layer: nn.Linear, init: LinearInit, gain: float) -> None:
    """Draw the weights [outputs, inputs]. Only orthogonal weights use ``gain``."""
    if init == "orthogonal":
        nn.init.orthogonal_(layer.weight, gain)
    elif init == "normal":
        _truncated_normal(layer.weight, layer.in_features**-0.5)
    else:
        limit = 1.43 * (3.0 / layer.in_features) ** 0.5
        nn.init.uniform_(layer.weight, -limit, limit)
    _clear(layer.bias)


def _truncated_normal(weight: torch.Tensor, deviation: float) -> None:
    nn.init.trunc_normal_(weight, std=deviation, a=-2.0 * deviation, b=2.0 * deviation)


def _clear(bias: torch.Tensor | None) -> None:
    if bias is not None:
        nn.init.zeros_(bias)
