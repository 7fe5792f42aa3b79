"""Windows cut out of a store's streams, and the batch that a learner gets of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from gelada.core.types import Batch, Bools, Bytes, Floats, Ints


class Windows(NamedTuple):
    """``N`` windows, copied."""

    frames: Bytes  # uint8[N, T + K, H, W]
    ages: Ints  # int64[N, T + 1]
    actions: Ints  # int64[N, T]
    rewards: Floats  # float32[N, T]
    terminated: Bools  # bool[N, T]
    truncated: Bools  # bool[N, T]
    mask: Bools  # bool[N, T]
    log_probs: Floats  # float32[N, T]
    versions: Ints  # int64[N]: of the first step
    generations: Ints  # int64[N]: of the first step


def as_batch(windows: Windows, keys: Ints, weights: Floats, fresh: int) -> Batch:
    """Return a batch of windows; what comes after the first end in each counts for nothing.

    Args:
        windows: copies, which become the batch's own.
        keys: int64[N], where they begin.
        weights: float32[N], of importance.
        fresh: environment steps added since the sample before.
    """
    terminated, truncated, mask = windows.terminated, windows.truncated, windows.mask
    if mask.shape[1] > 1:
        over = terminated | truncated | (windows.ages[:, 1:] == 0)
        mask[:, 1:] &= ~np.logical_or.accumulate(over, axis=1)[:, :-1]
    tensor = torch.from_numpy
    return Batch(
        frames=tensor(windows.frames),
        ages=tensor(windows.ages),
        actions=tensor(windows.actions),
        rewards=tensor(windows.rewards),
        terminated=tensor(terminated),
        truncated=tensor(truncated),
        mask=tensor(mask),
        log_probs=tensor(windows.log_probs),
        state=tensor(np.empty((len(keys), 0), dtype=np.float32)),
        versions=tensor(windows.versions),
        keys=tensor(keys),
        generations=tensor(windows.generations),
        weights=tensor(weights),
        fresh=tensor(np.array(fresh)),  # torch's own constructor takes many times as long
    )
