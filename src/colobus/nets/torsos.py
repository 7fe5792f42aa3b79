"""Torsos: modules that compute a hidden layer [M, width] from stacks of frames [M, K, H, W]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from colobus.core.errors import ColobusError
from colobus.core.functions import find_function
from colobus.nets.config import (
    RELU_GAIN,
    ConvInit,
    NetworkSettings,
    start_convolution,
    start_linear,
)

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


class Convolution(NamedTuple):
    """Filters, kernel size and stride of one convolution.

    ``pool`` is the kernel size and stride of the max pooling after it; 1: no pooling. ``pad`` is
    the width of the border of zeros around its input.
    """

    filters: int
    kernel: int
    stride: int
    pool: int = 1
    bias: bool = True
    pad: int = 0


TORSOS: dict[str, tuple[Convolution, ...]] = {
    # Mnih et al. 2015 (84x84)
    "nature": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    # Mnih et al. 2013, and the network of A3C (Mnih et al. 2016); 84x84
    "dqn2013": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
    # for 42x42: they need a fifth of the multiplications of dqn2013 at 84x84
    "small": (Convolution(16, 5, 3), Convolution(32, 4, 2)),
    "tiny": (),
    "mlp": (),
    # Distributed-BA3C (Adamski et al. 2018). A side of 84 becomes 80, 40, 36, 18, 14, 7, 5
    "ba3c": (
        Convolution(32, 5, 1, pool=2, bias=False),
        Convolution(32, 5, 1, pool=2, bias=False),
        Convolution(64, 5, 1, pool=2, bias=False),
        Convolution(64, 3, 1, bias=False),
    ),
    # small kernels with max pooling. A side of 84 becomes 41, 20, 18, 9, 7; one of 42 ends with 2
    "pooled": (
        Convolution(16, 4, 2, pool=2),
        Convolution(32, 3, 1, pool=2),
        Convolution(64, 3, 1),
    ),
    # the same with a border of zeros. A side of 42 becomes 20, 10, 10, 5, 5
    "padded": (
        Convolution(16, 4, 2, pool=2),
        Convolution(32, 3, 1, pool=2, pad=1),
        Convolution(64, 3, 1, pad=1),
    ),
    "resnet": (),
}
"""Convolutions of each torso. Those of resnet are in `Residual`. The torso mlp has a dense layer in
their place."""


def smallest_side(torso: str) -> int:
    """Return the side in pixels of the smallest frame that leaves one pixel after ``torso``."""
    side = 1
    for layer in reversed(TORSOS[torso]):
        side = max((side * layer.pool - 1) * layer.stride + layer.kernel - 2 * layer.pad, 1)
    return side


class Torso(nn.Module):
    """Convolutions with ReLU, then a hidden layer of ``width`` units, with ReLU if it is dense.

    The forward pass calls functions instead of modules, because the calls of modules take a
    notable share of the time for the few observations of an actor (docs/speed.md). Pooling comes
    before the ReLU: the result is the same, and the ReLU has fewer values to compute.

    The input may be cut into blocks of ``block`` by ``block`` pixels, with a channel for each pixel
    of a block. The first convolution then has a stride of 1 and the same result, and its gradient
    takes half the time (docs/speed.md).

    Args:
        settings: settings of the network.
        frame_shape: (H, W) of a frame; the planes of a colour frame lie one below the other in H.
        planes: number of planes of a frame: 1 for grey, 3 for red, green and blue. Plane ``p`` of
            frame ``k`` is the channel ``k * planes + p``.

    Raises:
        ValueError: if a frame is too small for the convolutions, or H is no multiple of ``planes``.
    """

    def __init__(
        self, settings: NetworkSettings, frame_shape: tuple[int, int], planes: int = 1
    ) -> None:
        super().__init__()
        layers = TORSOS[settings.torso]
        height, side = _plane_shape(settings.torso, frame_shape, planes)
        used = settings.stack * planes
        channels = -(-used // settings.pad_channels) * settings.pad_channels
        self._planes, self._channels = planes, channels
        self._gathers = planes > 1 or channels > used
        self.block = 1 if self._gathers else block_of(layers, height, side)
        # memory for one observation in float32 values: outputs of all layers, and the gathered copy
        self.outputs = channels * height * side if self._gathers else 0
        self.convolutions = nn.ModuleList()
        for filters, kernel, stride, pool, bias, pad in layers:
            self.convolutions.append(nn.Conv2d(channels, filters, kernel, stride, pad, bias=bias))
            channels = filters
            height, side = ((size + 2 * pad - kernel) // stride + 1 for size in (height, side))
            self.outputs += channels * height * side
            height, side = height // pool, side // pool
            if pool > 1:  # each value and, for the backward pass, its index in int64
                self.outputs += 3 * channels * height * side
        self.residual: Residual | None = None
        if settings.torso == "resnet":
            self.residual = Residual(channels, height, side, settings.conv_init)
            self.outputs += self.residual.outputs
            channels, height, side = self.residual.shape
        self.strides = [layer.stride for layer in layers]
        self.pools = [layer.pool for layer in layers]
        inputs = channels * height * side
        self.first: nn.Linear | None = None
        if settings.torso == "mlp":
            self.first = nn.Linear(inputs, settings.width)
            start_linear(self.first, settings.fc_init, RELU_GAIN)
            inputs = settings.width
            self.outputs += inputs
        dense = settings.hidden == "dense"
        self.hidden = nn.Linear(inputs, settings.width, bias=dense)
        self.outputs += settings.width
        self.norm = nn.LayerNorm(settings.width) if settings.layer_norm else None
        self._rectifies = dense
        for layer in self.convolutions:
            assert isinstance(layer, nn.Conv2d)
            start_convolution(layer, settings.conv_init)
        start_linear(self.hidden, settings.fc_init, RELU_GAIN)

    def forward(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return the hidden layer [M, width] for stacks [M, K, H, W], which may be in blocks."""
        x = self._gather(stacks) if self._gathers else stacks
        for layer, stride, pool in zip(self.convolutions, self.strides, self.pools, strict=True):
            assert isinstance(layer, nn.Conv2d)
            weight = layer.weight
            if x.shape[1] != weight.shape[1]:  # in blocks
                weight, stride = in_blocks(weight, stride).flatten(1, 3), 1
            x = functional.conv2d(x, weight, layer.bias, stride, layer.padding)
            if pool > 1:
                by_torch = x.requires_grad or torch.compiler.is_compiling()  # one node of a graph
                x = torch.max_pool2d(x, pool) if by_torch else largest(x, pool)
            x = x.relu_()
        if self.residual is not None:
            x = self.residual(x)
        if x.requires_grad:
            x.register_hook(in_channels_last)
        x = x.flatten(1)
        if self.first is not None:
            x = functional.linear(x, self.first.weight, self.first.bias).relu_()
        x = functional.linear(x, self.hidden.weight, self.hidden.bias)
        if self.norm is not None:
            norm = self.norm
            x = functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias)
        return x.relu_() if self._rectifies else x

    def _gather(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return a copy [M, channels, H / planes, W], channels-last, padded with zeros."""
        count, depth, rows, width = stacks.shape
        apart = (count, depth, self._planes, rows // self._planes, width)
        copy = stacks.new_zeros(count, apart[3], width, self._channels).permute(0, 3, 1, 2)
        copy[:, : depth * self._planes].view(apart).copy_(stacks.view(apart))
        return copy


def in_channels_last(gradient: torch.Tensor) -> torch.Tensor:
    """Return a gradient in the memory format of the convolutions' outputs.

    The dense layer returns it in the format of its input. Operations on two tensors of different
    formats are slow, as they go element by element (docs/speed.md).
    """
    return gradient.contiguous(memory_format=torch.channels_last)


def largest(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return what max pooling of ``size`` by ``size`` returns, where nobody differentiates it.

    It compares whole rows, then columns. Torch's pooling also writes down where each value was, and
    takes two to three times as long for the batches of a learner (docs/speed.md).
    """
    height, width = (side // size * size for side in x.shape[2:])
    x = reduce(torch.maximum, (x[:, :, i:height:size] for i in range(size)))
    return reduce(torch.maximum, (x[:, :, :, i:width:size] for i in range(size)))


def in_blocks(image: torch.Tensor, block: int) -> torch.Tensor:
    """Return […, H, W] as a view […, B, B, H / B, W / B], one image for each pixel of a block."""
    *others, height, width = image.shape
    cut = image.view(*others, height // block, block, width // block, block)
    return cut.movedim((-3, -1), (-4, -3))


def block_of(layers: Sequence[Convolution], height: int, width: int) -> int:
    """Return the side of the blocks with which the first convolution has a stride of 1; 1: none.

    A row of a block must have the size of one number (`Observations` copies it as one).
    """
    side = layers[0].stride if layers else 1
    fits = side in (2, 4) and all(n % side == 0 for n in (layers[0].kernel, height, width))
    return side if fits else 1


def _plane_shape(torso: str, frame_shape: tuple[int, int], planes: int) -> tuple[int, int]:
    """Return (H, W) of one plane; raise ValueError if the frame does not fit."""
    rows, width = frame_shape
    if rows % planes:
        raise ValueError(f"frames of {frame_shape} cannot be cut into {planes} planes")
    height = rows // planes
    if min(height, width) < smallest_side(torso):
        raise ValueError(f"frames of {(height, width)} are too small for the torso {torso!r}")
    return height, width


class UserTorso(nn.Module):
    """A torso made by ``settings.own_torso`` (docs/extending.md).

    The function is called with the settings of the network, the shape (H of all planes together, W)
    of a frame, and the number of planes. It returns a module that computes the hidden layer
    float32[M, width] from standardised stacks [M, K, H, W].

    Raises:
        ColobusError: if the function cannot be found or makes something else.
    """

    block = 1  # stacks are not cut into blocks

    def __init__(
        self, settings: NetworkSettings, frame_shape: tuple[int, int], planes: int
    ) -> None:
        super().__init__()
        name = settings.own_torso
        made = find_function(name)(settings, frame_shape, planes)
        if not isinstance(made, nn.Module):
            raise ColobusError(
                f"--own-torso {name}: returned {type(made).__name__}, no torch module"
            )
        self.own = made
        self.outputs = settings.width  # of one observation; what lies before is not known
        kept = {key: buffer.clone() for key, buffer in made.named_buffers()}
        stacks = torch.zeros(2, settings.stack, *frame_shape)
        try:
            with torch.no_grad():
                hidden = self.own(stacks.to(memory_format=torch.channels_last))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ColobusError(
                f"--own-torso {name}: cannot take 2 stacks of {settings.stack} frames "
                f"{frame_shape}: {str(error).partition(chr(10))[0]}"
            ) from None
        if any(not torch.equal(kept[key], buffer) for key, buffer in made.named_buffers()):
            raise ColobusError(
                f"--own-torso {name}: keeps statistics while it learns, such as BatchNorm, which "
                "neither actors nor checkpoints would have; take LayerNorm or GroupNorm"
            )
        if not isinstance(hidden, torch.Tensor) or hidden.shape != (2, settings.width):
            found = (
                list(hidden.shape) if isinstance(hidden, torch.Tensor) else type(hidden).__name__
            )
            raise ColobusError(
                f"--own-torso {name}: its output for 2 stacks of {settings.stack} frames "
                f"{frame_shape} is {found}, must be [2, {settings.width}]: the --width of the "
                "hidden layer"
            )

    def forward(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return the hidden layer [M, width] for stacks [M, K, H, W]."""
        hidden: torch.Tensor = self.own(stacks)
        return hidden
