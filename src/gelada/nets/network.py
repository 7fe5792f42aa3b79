"""The network: standardised input, a torso, linear heads.

The torso may compute in bfloat16; the input statistics, the heads and everything after them are
float32. A learner keeps float32 weights and casts as it goes (autocast); an actor holds a copy
whose torso *is* bfloat16 (`Network.for_acting`).
"""

from __future__ import annotations

import copy
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from gelada.core.types import Bytes, Floats
from gelada.nets.config import NetworkSettings as NetworkSettings  # users find it here
from gelada.nets.init import start_linear
from gelada.nets.scratch import Scratch
from gelada.nets.torsos import Torso

Precision = Literal["float32", "bfloat16"]


class InputStatistics(NamedTuple):
    """Per-pixel mean and standard deviation of frames, frozen before training starts."""

    mean: Floats  # float32[H, W], grey levels
    deviation: Floats  # float32[H, W], at least `FLOOR`


FLOOR = 4.0
"""Grey levels. A pixel that never changed in the random games must not blow up when it does."""

LIMIT = 5.0
"""Standardised pixels are clipped to -5 … 5."""


def measure_input(frames: Bytes) -> InputStatistics:
    """Return the statistics of frames uint8[N, H, W]."""
    values = frames.astype(np.float32)
    deviation = np.maximum(values.std(axis=0), FLOOR)
    return InputStatistics(values.mean(axis=0), deviation.astype(np.float32))


class Network(nn.Module):
    """Torso and heads over stacks of standardised frames.

    Args:
        settings: which torso, how wide.
        frame_shape: (H, W), as frames flow: of a colour frame all planes are in H.
        heads: outputs by name, such as ``{"policy": 6, "value": 1}``.
        statistics: of the input.
        precision: what the torso computes in.
        planes: of a frame, one above the other: 1 grey; 3 red, green and blue.

    Raises:
        ValueError: if a frame is too small for the torso, or H is no multiple of ``planes``.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self,
        settings: NetworkSettings,
        frame_shape: tuple[int, int],
        heads: dict[str, int],
        statistics: InputStatistics,
        precision: Precision,
        *,
        planes: int = 1,
    ) -> None:
        super().__init__()
        self.stack = settings.stack
        self.precision = precision
        self._casts = precision == "bfloat16"
        self.register_buffer("mean", torch.from_numpy(statistics.mean))
        self.register_buffer("scale", 1.0 / torch.from_numpy(statistics.deviation))
        self.torso = Torso(settings, frame_shape, planes)
        self.block = self.torso.block
        self.scratch = Scratch()  # where a learner lays out what it looks at
        self.heads = nn.ModuleDict({k: nn.Linear(settings.width, n) for k, n in heads.items()})
        for name, head in self.heads.items():
            assert isinstance(head, nn.Linear)
            start_linear(head, settings.fc_init, gain=0.01 if name == "policy" else 1.0)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch stub

    def standardise(self, frames: torch.Tensor) -> torch.Tensor:
        """Return frames uint8[…, H, W] as float32 of the same shape, -`LIMIT` … `LIMIT`."""
        return torch.sub(frames, self.mean).mul_(self.scale).clamp_(-LIMIT, LIMIT)

    def see(self, frames: torch.Tensor) -> torch.Tensor:
        """Standardise frames uint8[…, H, W] → the torso's type, same shape."""
        seen = self.standardise(frames)
        return seen.to(torch.bfloat16) if self.precision == "bfloat16" else seen

    def black(self) -> torch.Tensor:
        """Return what a black frame looks like after `see`: [H, W]."""
        return self.see(torch.zeros_like(self.mean, dtype=torch.uint8))

    def features(self, stacks: torch.Tensor) -> torch.Tensor:
        """Return the hidden layer float32[M, width] for seen stacks [M, K, H, W], or in blocks."""
        if self._casts:
            with torch.autocast(stacks.device.type, torch.bfloat16):
                return self.torso.forward(stacks).float()
        return self.torso.forward(stacks).float()

    def forward(self, stacks: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return every head's output float32[M, n] by name for seen stacks [M, K, H, W]."""
        hidden = self.features(stacks)
        return {name: head(hidden) for name, head in self.heads.items()}

    def for_acting(self) -> Network:
        """Return a copy without gradients whose torso holds weights of its own precision."""
        acting = copy.deepcopy(self).requires_grad_(False)
        if self.precision == "bfloat16":
            acting.torso.to(torch.bfloat16)
            acting._casts = False
        return acting
