"""Slow gradients, for losses that are compared with float64 functions of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


def as_float32(array: Array) -> torch.Tensor:
    """Return an array as a tensor."""
    return torch.from_numpy(array.astype(np.float32))


def log_softmax(logits: Array) -> Array:
    """Return log pi_a = z_a - log sum_b exp(z_b), over the last axis."""
    out: Array = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return out


def gradient_of(loss: Callable[[torch.Tensor], torch.Tensor], at: Array) -> Array:
    """Return the loss's gradient float32 at a point."""
    point = as_float32(at).requires_grad_(True)
    torch.autograd.backward(loss(point))
    assert point.grad is not None
    return point.grad.numpy()


def differences(loss: Callable[[Array], float], at: Array) -> Array:
    """Return central differences of a float64 function."""
    out = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        out[i] = (loss(up) - loss(down)) / 2e-6
    return out
