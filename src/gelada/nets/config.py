"""Which network looks at the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from gelada.core.settings import OnlyWith, Range
from gelada.nets.init import ConvInit, LinearInit

TorsoName = Literal["small", "dqn2013", "nature", "resnet", "ba3c", "tiny"]
"""The torsos that `NetworkSettings.torso` can name."""

CONVOLUTIONS = OnlyWith("with another --torso than tiny", lambda network: network.torso != "tiny")


@dataclass(frozen=True)
class NetworkSettings:
    """Which network looks at the screen."""

    torso: TorsoName = "small"
    """small (two convolutions for 42x42), dqn2013 and nature (Mnih et al. 2013, 2015), resnet
    (IMPALA), ba3c (DBA3C), tiny (Catch)."""
    width: Annotated[int, Range(1, 8192)] = 256
    """Units of the hidden layer."""
    hidden: Literal["dense", "linear"] = "dense"
    """The hidden layer has a bias and a ReLU, or (linear) neither, as DBA3C has it."""
    layer_norm: bool = True
    """Normalise the hidden layer (Ba et al. 2016), before its ReLU if it has one."""
    conv_init: Annotated[ConvInit, CONVOLUTIONS] = "orthogonal"
    """First weights of the convolutions (normal: deviation 0.03; uniform: up to 0.05)."""
    fc_init: LinearInit = "orthogonal"
    """First weights of hidden layer and heads (normal, uniform: by their number of inputs)."""
    stack: Annotated[int, Range(1, 16)] = 4
    """Frames in an observation."""
    pad_channels: Annotated[int, Range(1, 64), CONVOLUTIONS] = 1
    """Input channels are filled up with zeros to a multiple of this (DBA3C: 16)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the torso computes in; auto measures both at the start and takes the faster."""
