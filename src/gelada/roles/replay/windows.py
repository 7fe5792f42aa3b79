"""The windows that a replay buffer samples, and the batch made of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from gelada.core.types import Batch, Bools, Bytes, Floats, Ints


class Windows(NamedTuple):
    """``N`` windows of ``T`` steps; copies, with stacks of ``K`` frames."""

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


def mask_after_end(windows: Windows) -> None:
    """Set the mask of all steps after the first end of an episode in each window to False."""
    mask = windows.mask
    if mask.shape[1] > 1:
        over = windows.terminated | windows.truncated | (windows.ages[:, 1:] == 0)
        mask[:, 1:] &= ~np.logical_or.accumulate(over, axis=1)[:, :-1]


def batch_of_windows(windows: Windows, keys: Ints, weights: Floats, fresh: int) -> Batch:
    """Return a batch that takes over the arrays of the windows.

    Args:
        windows: with their masks set (`mask_after_end`).
        keys: int64[N], where the windows begin.
        weights: float32[N], importance weights.
        fresh: environment steps added since the sample before.
    """
    tensor = torch.from_numpy
    return Batch(
        frames=tensor(windows.frames),
        ages=tensor(windows.ages),
        actions=tensor(windows.actions),
        rewards=tensor(windows.rewards),
        terminated=tensor(windows.terminated),
        truncated=tensor(windows.truncated),
        mask=tensor(windows.mask),
        log_probs=tensor(windows.log_probs),
        independent=tensor(np.ones(len(keys), dtype=np.bool_)),
        state=tensor(np.empty((len(keys), 0), dtype=np.float32)),
        versions=tensor(windows.versions),
        keys=tensor(keys),
        generations=tensor(windows.generations),
        weights=tensor(weights),
        replayed=tensor(np.zeros(len(keys), dtype=np.bool_)),
        fresh=tensor(np.array(fresh)),  # torch's own constructor takes many times as long
        uses=tensor(np.array(0)),
    )
