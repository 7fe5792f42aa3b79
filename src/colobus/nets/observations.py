"""The observations of a batch: standardised and stacked once for all minibatches, and for people.

A network with a decoder has pictures: frames of a batch beside their reconstructions.
"""

from __future__ import annotations

import torch

from colobus.core.arrays import apart
from colobus.core.types import Bytes
from colobus.nets.autoencoder import Decoder
from colobus.nets.network import CODE, Network
from colobus.nets.torsos import in_blocks

NUMBERS = {2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Dtypes by their size in bytes. Pixels of a block are copied as one number of such a dtype."""

AT_ONCE = 32
"""Number of frames that a CPU standardises together: so many fit into its cache."""


class Observations:
    """All observations of a batch of ``N`` windows of ``T`` steps.

    Each frame is standardised once per batch, not once per stack and epoch. The stacks are in the
    memory format channels-last, which convolutions read fastest, so a minibatch copies one row
    per sample and reorders nothing. If the torso takes blocks of B x B pixels, each pixel of a
    block is a channel: a stack then has K B B channels of H / B by W / B pixels. All this is for
    speed (docs/speed.md). Observation ``t`` of window ``n`` has the index ``n * (T + 1) + t``.

    The stacks are in the network's `Scratch` memory. The next `Observations` of the same network
    overwrite them.

    Args:
        net: standardises the frames; its stack depth is K.
        frames: uint8[N, T + K, H, W].
        ages: int64[N, T + 1].

    ``allowed`` bool[N, T + 1, A] says which actions each observation allows (A = 0: all).
    """

    def __init__(self, net: Network, frames: torch.Tensor, ages: torch.Tensor) -> None:
        self.shape = tuple(ages.shape)  # [N, T + 1]
        self.allowed: torch.Tensor = apart(frames[:, net.stack - 1 :], net.masks)[1]
        black = apart(net.black(), net.masks)[0]
        block, (height, width) = net.block, black.shape
        high, wide = height // block, width // block
        number = NUMBERS[black.element_size() * block]  # one number holds a row of a block
        flat, device = frames.flatten(0, 1), frames.device
        blocks = net.scratch.take("frames", (len(flat), high, wide, block), number, device)
        at_once = AT_ONCE if device.type == "cpu" else len(flat)
        targets = torch.split(blocks, at_once)
        for part, target in zip(torch.split(flat, at_once), targets, strict=True):
            rows = apart(net.preprocess(part), net.masks)[0].contiguous().view(number)
            target.copy_(rows.view(-1, high, block, wide).transpose(2, 3))
        # all rows of a block in one number if there is such a dtype: copies many small pieces
        number = NUMBERS.get(black.element_size() * block * block, number)
        blocks = blocks.view(number)
        # every stack [N, T + 1, K, …] as a view of the frames [N, T + K, …]
        stacks = blocks.unflatten(0, frames.shape[:2]).unfold(1, net.stack, 1)
        stacks = stacks.permute(0, 1, 2, 3, 5, 4)
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


def blank(stacks: torch.Tensor, ages: torch.Tensor, black: torch.Tensor) -> torch.Tensor:
    """Overwrite the frames of an earlier game with ``black``, in place; return ``stacks``.

    Only stacks of a game's first steps change.

    Args:
        stacks: [M, K, …].
        ages: int64[M], steps since the beginning of the game.
        black: […], a preprocessed black frame.
    """
    depth = stacks.shape[1]
    if stacks.device.type != "cpu":
        return blank_by_age(stacks, ages, black)
    young = torch.nonzero(ages < depth - 1).squeeze(1)
    for i, age in zip(young.tolist(), ages[young].tolist(), strict=True):
        stacks[i, : depth - 1 - age] = black
    return stacks


def blank_by_age(stacks: torch.Tensor, ages: torch.Tensor, black: torch.Tensor) -> torch.Tensor:
    """Do what `blank` does, to all stacks: on a GPU that is faster than to ask which are young."""
    rows = (len(stacks), *[1] * (stacks.dim() - 2))
    for place in range(stacks.shape[1] - 1):
        young = (ages < stacks.shape[1] - 1 - place).view(rows)
        stacks[:, place] = torch.where(young, black, stacks[:, place])
    return stacks


SHOWN = 8
"""Frames in a picture."""


def some_stacks(
    frames: torch.Tensor, ages: torch.Tensor, stack: int, most: int = SHOWN
) -> torch.Tensor:
    """Return a copy of some of a batch's stacks, uint8[M, stack, H, W], M at most ``most``.

    They are spread over its windows and over the steps of a window. Windows are taken in turn, and
    so are the agents of a game.

    Args:
        frames: uint8[N, T + stack, H, W].
        ages: int64[N, T + 1].
        stack: frames in an observation.
        most: of them.
    """
    windows, times = ages.shape
    count = min(most, windows * times)
    places = [(i % windows, i * times // count) for i in range(count)]
    stacks = torch.stack([frames[n, t : t + stack] for n, t in places])
    young = torch.stack([ages[n, t] for n, t in places])
    return blank(stacks, young, torch.zeros_like(stacks[0, 0]))


@torch.no_grad()
def reconstruct(net: Network, stacks: torch.Tensor) -> tuple[Bytes, Bytes]:
    """Return the newest frames of stacks uint8[M, K, H, W], and their reconstructions.

    Both are uint8[M, H, W], or in colour uint8[M, H, W, 3]; of floats the largest is white. The
    network must have a decoder. If it is recurrent, it sees each stack as the first of a game.
    """
    decoder = net.auxiliary
    assert isinstance(decoder, Decoder)
    seen = net.apart(net.preprocess(stacks.to(net.mean.device)))[0]
    with net.casting(), net.as_played():
        pixels = decoder.stacks(decoder(net(net.as_sequences(seen, 1))[CODE]).float())[:, -1]
    newest, scale, mean = (apart(x, net.masks)[0] for x in (stacks[:, -1], net.scale, net.mean))
    white = 255.0 if newest.dtype == torch.uint8 else max(float(newest.max()), 1e-9)

    def shown(values: torch.Tensor) -> Bytes:
        frames = (values.float() * (255.0 / white)).round_().clamp_(0.0, 255.0).to(torch.uint8)
        if net.planes == 3:  # red, green and blue, which come last in a picture
            frames = frames.unflatten(1, (net.planes, -1)).movedim(1, -1)
        array: Bytes = frames.cpu().numpy()
        return array

    return shown(newest), shown(pixels / scale + mean)
