"""The residual convolutions of IMPALA (Espeholt et al. 2018, figure 3, right)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from gelada.nets.init import ConvInit, start_convolution

SECTIONS = (16, 32, 32)
"""Filters of each section. A section is a convolution, max pooling (3x3, stride 2) and two
residual blocks."""

BLOCKS = 2
"""Residual blocks of a section. A block applies ReLU and a 3x3 convolution twice and adds its
input."""


class Residual(nn.Module):
    """15 convolutions (3x3) that keep the size, and 3 poolings that halve it (rounded up).

    Args:
        channels: channels of the input.
        height: height of the input in pixels.
        width: width of the input in pixels.
        init: initial weights of the convolutions.

    ``shape`` is the shape of the output, (channels, height, width). ``outputs`` is the memory that
    the backward pass needs for one observation, as a number of float32 values; the int64 index of
    a pooled value counts as two.
    """

    def __init__(self, channels: int, height: int, width: int, init: ConvInit) -> None:
        super().__init__()
        self.sections = nn.ModuleList()
        self.outputs = 0
        for filters in SECTIONS:
            layers = [nn.Conv2d(channels, filters, 3, padding=1)]
            layers += [nn.Conv2d(filters, filters, 3, padding=1) for _ in range(2 * BLOCKS)]
            self.outputs += filters * height * width
            height, width, channels = (height + 1) // 2, (width + 1) // 2, filters
            self.outputs += (3 + 4 * BLOCKS) * filters * height * width
            self.sections.append(nn.ModuleList(layers))
        self.shape = channels, height, width
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                start_convolution(layer, init)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [M, *shape] for [M, channels, height, width]."""
        for section in self.sections:
            assert isinstance(section, nn.ModuleList)
            first, *pairs = section
            x = functional.max_pool2d(first(x), 3, 2, padding=1)
            for one, two in zip(pairs[::2], pairs[1::2], strict=True):
                x = x + two(one(x.relu()).relu_())
        return x.relu_()
