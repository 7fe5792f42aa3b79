"""A second task for the layers before the heads: frames reconstructed, or the next steps predicted.

The autoencoder of pixels is that of "Accelerating Distributed Deep Reinforcement Learning" (RLDM
2019), in both forms that its branches have. *Latent*: one convolution makes a picture of half the
height and width from a stack of frames, the torso computes on it, and a transposed convolution
reconstructs the stack from it. *Auxiliary*: the torso computes on the frames, and the stack is
reconstructed from its hidden layer. `Prediction` looks ahead from the hidden layer instead.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from colobus.nets.config import RELU_GAIN, NetworkSettings, start_convolution, start_linear

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


REWARDS = 3
"""Classes of a reward: negative, none, positive."""


class Prediction(nn.Module):
    """Predicts, from a hidden layer and actions, each step's outcome and the next hidden layer.

    One layer of ``width`` units sees the hidden layer and the action; all predictions are linear
    in it, as in MR.Q (Fujimoto et al. 2025). Applied to its own predictions it looks several steps
    ahead, as in SPR (Schwarzer et al. 2021).

    Args:
        settings: width and initial weights.
        actions: number of actions.

    ``outputs`` is the memory for one step in float32 values.
    """

    def __init__(self, settings: NetworkSettings, actions: int) -> None:
        super().__init__()
        width, init = settings.width, settings.fc_init
        self.joint = nn.Linear(width, width)
        self.action = nn.Linear(actions, width, bias=False)
        self.latent = nn.Linear(width, width)
        self.outcome = nn.Linear(width, REWARDS + 1)
        self.outputs = 2 * width + REWARDS + 1
        for layer, gain in (
            (self.joint, RELU_GAIN),
            (self.action, RELU_GAIN),
            (self.latent, 1.0),
            (self.outcome, 0.01),
        ):
            start_linear(layer, init, gain)

    def forward(
        self, latents: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return hidden layers float32[M, H, width] and logits float32[M, H, REWARDS + 1], ahead.

        The first `REWARDS` logits are those of the reward's sign, the last one is that of the end.
        The time goes into the number of small operations, so actions and outcomes of all steps are
        computed at once.

        Args:
            latents: hidden layers of observations, [M, width].
            actions: int64[M, H], played from there on.
        """
        joints, predicted = [], []
        for chosen in functional.embedding(actions, self.action.weight.t()).unbind(dim=1):
            joint = (self.joint(latents) + chosen).relu()
            latents = self.latent(joint)
            joints.append(joint)
            predicted.append(latents)
        outcomes = self.outcome(torch.stack(joints, dim=1))
        return torch.stack(predicted, dim=1).float(), outcomes.float()
