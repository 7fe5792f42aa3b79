"""The observations of a batch, standardised once and stacked when a minibatch asks for them."""

from __future__ import annotations

import torch

from gelada.envs.stacking import all_stacks, blank
from gelada.nets.network import Network
from gelada.types import Batch


class Windows:
    """All observations of a batch of ``N`` windows of ``T`` steps.

    Frames are standardised once per batch, not once per stack and pass: a stack of four shares
    three frames with its neighbour. Observation ``t`` of window ``n`` has the index
    ``n * (T + 1) + t``.
    """

    def __init__(self, net: Network, batch: Batch) -> None:
        self.shape = tuple(batch.ages.shape)  # [N, T + 1]
        self._stacks = all_stacks(net.see(batch.frames), net.stack)
        self._ages = batch.ages.flatten()
        self._black = net.black()
        windows, observations = self.shape
        self._window = torch.arange(windows, device=batch.ages.device).repeat_interleave(
            observations
        )
        self._time = torch.arange(observations, device=batch.ages.device).repeat(windows)

    def stacks(self, index: torch.Tensor) -> torch.Tensor:
        """Return the observations [M, K, H, W] with these indices int64[M]."""
        picked = self._stacks[self._window[index], self._time[index]]
        return blank(picked, self._ages[index], self._black)

    def chunks(self, size: int) -> list[torch.Tensor]:
        """Return the indices of all observations in order, cut into pieces of ``size``."""
        return list(torch.split(torch.arange(self._ages.numel(), device=self._ages.device), size))
