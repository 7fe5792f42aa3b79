"""Torsos: from a stack of frames [M, K, H, W] to a hidden layer [M, width]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional


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


class Torso(nn.Module):
    """Convolutions with ReLU, then a hidden layer of ``width`` units with ReLU.

    Weights are orthogonal with gain sqrt(2), biases 0. The forward pass calls functions, not
    modules, which an actor with its few observations notices (docs/speed.md).

    Raises:
        ValueError: if a frame is too small for the convolutions.
    """

    def __init__(
        self, name: str, stack: int, frame_shape: tuple[int, int], width: int, layer_norm: bool
    ) -> None:
        super().__init__()
        channels, (height, side) = stack, frame_shape
        self.convolutions = nn.ModuleList()
        self.outputs = 0  # numbers that all layers put out for one observation
        for filters, kernel, stride in TORSOS[name]:
            self.convolutions.append(nn.Conv2d(channels, filters, kernel, stride))
            channels = filters
            height, side = (height - kernel) // stride + 1, (side - kernel) // stride + 1
            if height < 1 or side < 1:
                raise ValueError(f"frames of {frame_shape} are too small for the torso {name!r}")
            self.outputs += channels * height * side
        self.strides = [convolution.stride for convolution in TORSOS[name]]
        self.hidden = nn.Linear(channels * height * side, width)
        self.outputs += width
        self.norm = nn.LayerNorm(width) if layer_norm else None
        for layer in [*self.convolutions, self.hidden]:
            assert isinstance(layer, nn.Conv2d | nn.Linear)
            nn.init.orthogonal_(layer.weight, 2.0**0.5)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def forward(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return the hidden layer [M, width] for stacks [M, K, H, W]."""
        x = stacks
        for layer, stride in zip(self.convolutions, self.strides, strict=True):
            assert isinstance(layer, nn.Conv2d)
            x = functional.conv2d(x, layer.weight, layer.bias, stride).relu_()
        x = functional.linear(x.flatten(1), self.hidden.weight, self.hidden.bias)
        if self.norm is not None:
            norm = self.norm
            x = functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias)
        return x.relu_()
