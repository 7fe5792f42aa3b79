"""The autoencoder of pixels: an encoder before the torso, or a decoder behind it.

After the autoencoder of "Accelerating Distributed Deep Reinforcement Learning" (RLDM 2019), in both
forms that its branches have. *Latent*: one convolution makes a picture of half the height and width
from a stack of frames, the torso computes on it, and a transposed convolution reconstructs the
stack from it. *Auxiliary*: the torso computes on the frames, and the stack is reconstructed from
its hidden layer.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from gelada.nets.config import NetworkSettings
from gelada.nets.init import RELU_GAIN, start_convolution, start_linear

FILTERS, KERNEL, STRIDE, PADDING = 4, 8, 2, 3
"""Of the encoder and of the transposed convolution: 42 pixels become 21, and 84 become 42."""

MAPS = 2
"""Pictures of half the size into which the auxiliary form spreads the hidden layer."""


class Encoder(nn.Module):
    """A convolution with ReLU that halves the sides of the frames (rounded down).

    Args:
        settings: stack depth and initial weights.
        frame_shape: (H, W) of a frame, at least 2 pixels wide and high; the planes of a colour
            frame lie one below the other in H.
        planes: number of planes of a frame.

    ``shape`` is the (H, W) of the latent picture, which has `FILTERS` channels. ``outputs`` is the
    memory for it in float32 values.

    Raises:
        ValueError: if H is no multiple of ``planes``.
    """

    def __init__(
        self, settings: NetworkSettings, frame_shape: tuple[int, int], planes: int
    ) -> None:
        super().__init__()
        rows, width = frame_shape
        if rows % planes:
            raise ValueError(f"frames of {frame_shape} cannot be cut into {planes} planes")
        self._planes = planes
        self.shape = rows // planes // STRIDE, width // STRIDE
        self.outputs = FILTERS * self.shape[0] * self.shape[1]
        channels = settings.stack * planes
        self.convolution = nn.Conv2d(channels, FILTERS, KERNEL, STRIDE, PADDING)
        start_convolution(self.convolution, settings.conv_init)

    def forward(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return the latent pictures [M, FILTERS, H / 2, W / 2] of stacks [M, K, H, W]."""
        layer, seen = self.convolution, by_plane(stacks, self._planes)
        return functional.conv2d(seen, layer.weight, layer.bias, STRIDE, PADDING).relu_()


class Decoder(nn.Module):
    """Reconstructs the standardised pixels of a stack, by a transposed convolution.

    Args:
        settings: form of the autoencoder, stack depth, width and initial weights.
        frame_shape: (H, W) of a frame, as for `Encoder`.
        planes: number of planes of a frame.
        block: side of the blocks of pixels in which the torso takes its observations; 1: none.

    ``outputs`` is the memory for one reconstruction in float32 values.
    """

    def __init__(
        self, settings: NetworkSettings, frame_shape: tuple[int, int], planes: int, block: int
    ) -> None:
        super().__init__()
        self._planes, self._block = planes, block
        height, width = frame_shape[0] // planes, frame_shape[1]
        self._half = height // STRIDE, width // STRIDE
        channels, maps = settings.stack * planes, FILTERS
        self.outputs = channels * height * width
        self.spread: nn.Linear | None = None
        if settings.autoencoder == "auxiliary":
            maps = MAPS
            self.spread = nn.Linear(settings.width, maps * self._half[0] * self._half[1])
            self.outputs += self.spread.out_features
            start_linear(self.spread, settings.fc_init, RELU_GAIN)
        odd = height % STRIDE, width % STRIDE
        self.convolution = nn.ConvTranspose2d(
            maps, channels, KERNEL, STRIDE, PADDING, output_padding=odd
        )
        start_convolution(self.convolution, settings.conv_init)

    def forward(self, code: torch.Tensor) -> torch.Tensor:
        """Return the reconstructed pixels [M, K * planes, H, W].

        Args:
            code: latent pictures [M, FILTERS, H / 2, W / 2], or with the auxiliary form hidden
                layers [M, width].
        """
        if self.spread is not None:
            maps = self.spread(code).relu_().view(len(code), *self._half, MAPS)
            code = maps.permute(0, 3, 1, 2)
        found: torch.Tensor = self.convolution(code)
        return found

    def wanted(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the pixels [M, K * planes, H, W] of observations, which may be in blocks."""
        if self._block > 1:
            observations = functional.pixel_shuffle(observations, self._block)
        return by_plane(observations, self._planes)

    def stacks(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return pixels [M, K * planes, H, W] as stacks of frames [M, K, planes * H, W]."""
        stacks: torch.Tensor = pixels.unflatten(1, (-1, self._planes)).flatten(2, 3)
        return stacks


def by_plane(stacks: torch.Tensor, planes: int) -> torch.Tensor:
    """Return stacks [M, K, planes * H, W] with a channel for each plane: [M, K * planes, H, W]."""
    return stacks if planes == 1 else stacks.unflatten(2, (planes, -1)).flatten(1, 2)
