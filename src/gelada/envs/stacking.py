"""Stacks of frames out of frames that are stored once.

A game's first observation has one frame and ``K - 1`` black ones before it. In a stream of frames
the places before a game's start hold the game before, so they are blanked by age: of a stack at
age ``a`` (steps since the game's first observation) the newest ``a + 1`` frames are its own.
"""

from __future__ import annotations

import torch

from gelada.types import Bytes, Ints


def stack_at(frames: Bytes, ages: Ints, t: int, depth: int) -> Bytes:
    """Return observation ``t`` as uint8[B, K, H, W] from frames [B, T + K, H, W], ages [B, T + 1].

    The slow and plain form: a copy with the older game's frames set to 0.
    """
    stacks = frames[:, t : t + depth].copy()
    for b in range(len(stacks)):
        foreign = max(depth - 1 - int(ages[b, t]), 0)
        stacks[b, :foreign] = 0
    return stacks


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
