"""Stacks of frames, the slow and plain way."""

from __future__ import annotations

from colobus.core.types import Bytes, Ints


def stack_at(frames: Bytes, ages: Ints, t: int, depth: int) -> Bytes:
    """Return observation ``t`` as uint8[B, K, H, W] from frames [B, T + K, H, W], ages [B, T + 1].

    The slow and plain form: a copy with the older game's frames set to 0.
    """
    stacks = frames[:, t : t + depth].copy()
    for b in range(len(stacks)):
        foreign = max(depth - 1 - int(ages[b, t]), 0)
        stacks[b, :foreign] = 0
    return stacks
