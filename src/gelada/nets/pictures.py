"""Frames of a batch beside their reconstructions, for a picture that people look at."""

from __future__ import annotations

from typing import NamedTuple

import torch

from gelada.core.types import Bytes
from gelada.nets.autoencoder import Decoder
from gelada.nets.network import CODE, Network
from gelada.nets.observations import blank

SHOWN = 8
"""Frames in a picture."""


class Pictures(NamedTuple):
    """Frames and what a network makes of them, uint8[M, H, W] or in colour uint8[M, H, W, 3]."""

    frames: Bytes
    reconstructions: Bytes


def some_stacks(frames: torch.Tensor, ages: torch.Tensor, stack: int) -> torch.Tensor:
    """Return a copy of some of a batch's stacks, uint8[M, stack, H, W], M at most `SHOWN`.

    They are spread over its windows and over the steps of a window.

    Args:
        frames: uint8[N, T + stack, H, W].
        ages: int64[N, T + 1].
        stack: frames in an observation.
    """
    windows, times = ages.shape
    count = min(SHOWN, windows * times)
    places = [(i * windows // count, i * times // count) for i in range(count)]
    stacks = torch.stack([frames[n, t : t + stack] for n, t in places])
    young = torch.stack([ages[n, t] for n, t in places])
    return blank(stacks, young, torch.zeros_like(stacks[0, 0]))


@torch.no_grad()
def reconstruct(net: Network, stacks: torch.Tensor) -> Pictures:
    """Return the newest frames of stacks uint8[M, K, H, W], and their reconstructions.

    The network must have a decoder. If it is recurrent, it sees each stack as the first of a game.
    """
    decoder = net.auxiliary
    assert isinstance(decoder, Decoder)
    stacks = stacks.to(net.mean.device)
    code = net(net.as_sequences(net.preprocess(stacks), 1))[CODE]
    with net.casting():
        pixels = decoder.stacks(decoder(code).float())[:, -1]
    grey = (pixels / net.scale + net.mean).round_().clamp_(0.0, 255.0).to(torch.uint8)
    return Pictures(_in_colour(stacks[:, -1], net.planes), _in_colour(grey, net.planes))


def _in_colour(frames: torch.Tensor, planes: int) -> Bytes:
    """Return frames [M, planes * H, W] with the planes last, if there are several."""
    if planes > 1:
        frames = frames.unflatten(1, (planes, -1)).movedim(1, -1)
    array: Bytes = frames.cpu().numpy()
    return array
