"""The observations of a batch, standardised and stacked once, picked by every minibatch."""

from __future__ import annotations

import torch

from gelada.nets.network import Network
from gelada.nets.torsos import in_blocks

NUMBERS = {2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Types by their bytes: several pixels are copied as one number."""

AT_ONCE = 32
"""Frames that are standardised together: they fit the cache."""


class Observations:
    """All observations of a batch of ``N`` windows of ``T`` steps.

    Each frame is standardised once per batch, not once per stack and pass. The stacks are laid
    out channels-last, as convolutions read them, so a minibatch is one row copy per sample
    without any reordering. With blocks of B x B pixels, as the torso wants them, a block's pixels
    are channels: K B B of them, H / B by W / B. All this is for speed (docs/speed.md).
    Observation ``t`` of window ``n`` has the index ``n * (T + 1) + t``.

    The stacks lie in the network's `Scratch` memory, where its next observations overwrite them.

    Args:
        net: standardises; its stack depth is K.
        frames: uint8[N, T + K, H, W].
        ages: int64[N, T + 1].
    """

    def __init__(self, net: Network, frames: torch.Tensor, ages: torch.Tensor) -> None:
        self.shape = tuple(ages.shape)  # [N, T + 1]
        block, (height, width) = net.block, frames.shape[-2:]
        high, wide = height // block, width // block
        black = net.black()
        number = NUMBERS[black.element_size() * block]  # one for a row of a block
        flat, device = frames.flatten(0, 1), frames.device
        blocks = net.scratch.take("frames", (len(flat), high, wide, block), number, device)
        rooms = torch.split(blocks, AT_ONCE)
        for part, room in zip(torch.split(flat, AT_ONCE), rooms, strict=True):
            rows = net.preprocess(part).view(number)
            room.copy_(rows.view(-1, high, block, wide).transpose(2, 3))
        stacks = all_stacks(blocks.view(*frames.shape[:2], high, -1), net.stack)
        stacks = stacks.view(*stacks.shape[:-1], wide, block).permute(0, 1, 3, 4, 2, 5)
        last = net.scratch.take("stacks", stacks.shape, number, device).copy_(stacks)
        last = last.view(black.dtype).view(-1, high, wide, net.stack, block, block)
        blank(last.permute(0, 3, 4, 5, 1, 2), ages.flatten(), in_blocks(black, block))
        self._stacks = last.flatten(3).permute(0, 3, 1, 2)
        self._rows = last.flatten(1)  # the same memory: [N (T + 1), H W K]

    def pick(self, index: torch.Tensor) -> torch.Tensor:
        """Return the observations [M, K B B, H / B, W / B] with these indices int64[M]."""
        _, channels, height, width = self._stacks.shape
        rows = self._rows.index_select(0, index).view(-1, height, width, channels)
        return rows.permute(0, 3, 1, 2)

    def chunks(self, size: int) -> list[torch.Tensor]:
        """Return the observations in order, cut into views [≤ size, K B B, H / B, W / B]."""
        return list(torch.split(self._stacks, size))


def all_stacks(frames: torch.Tensor, depth: int) -> torch.Tensor:
    """Return every stack as a view [N, T + 1, K, H, W] of frames [N, T + K, H, W] (no copy)."""
    n, length, height, width = frames.shape
    a, b, c, d = frames.stride()
    return frames.as_strided((n, length - depth + 1, depth, height, width), (a, b, b, c, d))


def blank(stacks: torch.Tensor, ages: torch.Tensor, black: torch.Tensor) -> torch.Tensor:
    """Blank the frames of an earlier game in place, and return ``stacks`` [M, K, …].

    ``ages`` is int64[M]; ``black`` […] is what a black frame looks like to the network. Only the
    few young stacks are touched.
    """
    depth = stacks.shape[1]
    young = torch.nonzero(ages < depth - 1).squeeze(1)
    for i, age in zip(young.tolist(), ages[young].tolist(), strict=True):
        stacks[i, : depth - 1 - age] = black
    return stacks
