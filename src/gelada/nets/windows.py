"""The observations of a batch, standardised and stacked once, picked by every minibatch."""

from __future__ import annotations

import torch

from gelada.envs.stacking import all_stacks, blank
from gelada.nets.network import Network
from gelada.nets.torsos import in_blocks


class Windows:
    """All observations of a batch of ``N`` windows of ``T`` steps.

    Each frame is standardised once per batch, not once per stack and pass. The stacks are laid
    out channels-last, as convolutions read them, so a minibatch is one row copy per sample
    without any reordering (docs/speed.md). With blocks of B x B pixels, as the torso wants them,
    a block's pixels are channels: K B B of them, H / B by W / B. Observation ``t`` of window ``n``
    has the index ``n * (T + 1) + t``.

    Args:
        net: standardises; its stack depth is K.
        frames: uint8[N, T + K, H, W].
        ages: int64[N, T + 1].
    """

    def __init__(self, net: Network, frames: torch.Tensor, ages: torch.Tensor) -> None:
        self.shape = tuple(ages.shape)  # [N, T + 1]
        seen = torch.stack([net.see(window) for window in frames])  # one fits the cache
        cut = in_blocks(all_stacks(seen, net.stack), net.block)  # [N, T + 1, K, B, B, H / B, W / B]
        last = cut.permute(0, 1, 5, 6, 2, 3, 4).contiguous().flatten(0, 1)
        blank(last.permute(0, 3, 4, 5, 1, 2), ages.flatten(), in_blocks(net.black(), net.block))
        self._stacks = last.flatten(3).permute(0, 3, 1, 2)
        self._rows = last.flatten(1)  # the same memory: [N (T + 1), H W K]

    def stacks(self, index: torch.Tensor) -> torch.Tensor:
        """Return the observations [M, K B B, H / B, W / B] with these indices int64[M]."""
        _, channels, height, width = self._stacks.shape
        rows = self._rows.index_select(0, index).view(-1, height, width, channels)
        return rows.permute(0, 3, 1, 2)

    def chunks(self, size: int) -> list[torch.Tensor]:
        """Return the observations in order, cut into views [≤ size, K B B, H / B, W / B]."""
        return list(torch.split(self._stacks, size))
