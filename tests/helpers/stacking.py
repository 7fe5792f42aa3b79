"""Stacks of frames, the slow and plain way."""

from __future__ import annotations

import numpy as np
import torch

from colobus.core.types import Batch, Bytes, Ints, Trajectory


def stack_at(frames: Bytes, ages: Ints, t: int, depth: int) -> Bytes:
    """Return observation ``t`` as uint8[B, K, H, W] from frames [B, T + K, H, W], ages [B, T + 1].

    The slow and plain form: a copy with the older game's frames set to 0.
    """
    stacks = frames[:, t : t + depth].copy()
    for b in range(len(stacks)):
        foreign = max(depth - 1 - int(ages[b, t]), 0)
        stacks[b, :foreign] = 0
    return stacks


def stacks_of(played: Trajectory | Batch, depth: int) -> torch.Tensor:
    """Return all observations uint8[B, T + 1, K, H, W] of a trajectory or a batch (`stack_at`)."""
    frames, ages = np.asarray(played.frames), np.asarray(played.ages)
    every = [stack_at(frames, ages, t, depth) for t in range(ages.shape[1])]
    return torch.from_numpy(np.stack(every, axis=1))
