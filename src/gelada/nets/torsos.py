"""Torsos: from a stack of frames [M, K, H, W] to a hidden layer [M, width]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn


class Convolution(NamedTuple):
    """Filters, kernel size and stride of one convolution without padding."""

    filters: int
    kernel: int
    stride: int


NATURE = (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1))
"""Mnih et al. 2015 (84x84)."""

SMALL = (Convolution(16, 5, 3), Convolution(32, 4, 2))
"""Two convolutions for 42x42: a third of the cost of Mnih et al. 2013 at half the side."""

TORSOS: dict[str, tuple[Convolution, ...]] = {"nature": NATURE, "small": SMALL, "tiny": ()}


def make_torso(
    name: str, stack: int, frame_shape: tuple[int, int], width: int, layer_norm: bool
) -> nn.Sequential:
    """Return convolutions with ReLU, then a hidden layer of ``width`` units with ReLU.

    Weights are orthogonal with gain sqrt(2), biases 0.

    Raises:
        ValueError: if a frame is too small for the convolutions.
    """
    layers: list[nn.Module] = []
    channels, (height, side) = stack, frame_shape
    for filters, kernel, stride in TORSOS[name]:
        layers += [nn.Conv2d(channels, filters, kernel, stride), nn.ReLU()]
        channels = filters
        height, side = (height - kernel) // stride + 1, (side - kernel) // stride + 1
        if height < 1 or side < 1:
            raise ValueError(f"frames of {frame_shape} are too small for the torso {name!r}")
    layers += [nn.Flatten(), nn.Linear(channels * height * side, width)]
    layers += [nn.LayerNorm(width), nn.ReLU()] if layer_norm else [nn.ReLU()]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(layer.weight, 2.0**0.5)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    torso = nn.Sequential(*layers)
    assert all(isinstance(p, torch.Tensor) for p in torso.parameters())
    return torso
