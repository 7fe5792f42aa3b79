"""Settings of the network, and the initial weights that they name. Biases are 0 at first.

All initial weights except orthogonal ones are those of Distributed-BA3C (2018), with TensorFlow's
meaning: a truncated normal draws again where a weight is beyond two standard deviations, so the
standard deviation of the weights is 0.88 times the given one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import nn

from colobus.core.fields import POSITIVE, OnlyWith, Range

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


TorsoName = Literal[
    "small", "dqn2013", "nature", "resnet", "ba3c", "pooled", "padded", "tiny", "mlp"
]
"""The torsos that `NetworkSettings.torso` can name."""

Autoencoder = Literal["off", "latent", "auxiliary", "predict"]
"""Forms of the autoencoder (`colobus.nets.autoencoder`)."""

CONVOLUTIONS = OnlyWith(
    "with a --torso of convolutions",
    lambda network: network.torso not in ("tiny", "mlp") and not network.own_torso,
)
CODED = OnlyWith("with --autoencoder", lambda network: network.autoencoder != "off")
PIXELS = ("latent", "auxiliary")
"""Forms of the autoencoder that reconstruct pixels, by convolutions of their own."""
FILTERED = OnlyWith(
    "with a --torso of convolutions or an autoencoder of pixels",
    lambda network: CONVOLUTIONS.holds(network) or network.autoencoder in PIXELS,
)
NO_OWN = OnlyWith("without --own-torso", lambda network: not network.own_torso)


@dataclass(frozen=True)
class NetworkSettings:
    """Settings of the network."""

    torso: Annotated[TorsoName, NO_OWN] = "small"
    """Layers before the hidden layer: small (two convolutions for 42x42), dqn2013 and nature
    (Mnih et al. 2013, 2015), resnet (IMPALA), ba3c (DBA3C), pooled (small kernels and max
    pooling), padded (pooled with borders of zeros, which keep more places), tiny (none, for Catch),
    mlp (one dense layer, for vectors)."""
    width: Annotated[int, Range(1, 8192)] = 256
    """Units of the hidden layer."""
    hidden: Annotated[Literal["dense", "linear"], NO_OWN] = "dense"
    """Kind of the hidden layer: dense has a bias and a ReLU, linear has neither, as in DBA3C."""
    layer_norm: Annotated[bool, NO_OWN] = True
    """Apply layer normalisation to the hidden layer (Ba et al. 2016), before its ReLU."""
    conv_init: Annotated[ConvInit, FILTERED] = "orthogonal"
    """Initial weights of the convolutions (normal: standard deviation 0.03; uniform: -0.05 to
    0.05)."""
    fc_init: LinearInit = "orthogonal"
    """Initial weights of the hidden layer and the heads (normal, uniform: scaled by the number of
    inputs)."""
    stack: Annotated[int, Range(1, 16)] = 4
    """Frames in an observation."""
    recurrent: Literal["none", "lstm"] = "none"
    """Memory of earlier steps: lstm puts an LSTM of width units between hidden layer and heads."""
    policies: Literal["shared", "separate"] = "shared"
    """In a game of several agents: one policy for all of them, or heads of its own for each."""
    pad_channels: Annotated[int, Range(1, 64), CONVOLUTIONS] = 1
    """Pad the input with channels of zeros to a multiple of this (DBA3C: 16)."""
    autoencoder: Autoencoder = "off"
    """A second task for the layers before the heads, with APPO; predict also with DQN and returns
    q_lambda. latent: a convolution makes a picture of half the size for the torso, from which the
    frames are reconstructed. auxiliary: the frames are reconstructed from the hidden layer.
    predict: reward, end and hidden layer of the next steps are predicted from it."""
    autoencoder_weight: Annotated[float, POSITIVE, CODED] = 1.0
    """Weight of the autoencoder's loss."""
    autoencoder_part: Annotated[float, Range(above=0, high=1), CODED] = 0.25
    """Part of each minibatch that the autoencoder's loss takes. A decoder works at every pixel,
    where the torso works at few, so on all of it this would take longer than the rest of
    learning."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format in which the torso computes; auto measures both and takes the faster."""
    own_torso: str = ""
    """Function that makes the torso instead, module:function (docs/extending.md)."""
    own_heads: str = ""
    """Function that makes the heads of the algorithm's, module:function (docs/extending.md)."""
