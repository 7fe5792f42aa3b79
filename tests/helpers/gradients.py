"""Slow gradients, layers and stacks of frames: plain functions of numpy to compare with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import nn

from colobus.core.types import Batch, Bytes, Ints, Trajectory

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


def as_array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().double().numpy()
    return array


def with_biases(module: nn.Module) -> dict[str, tuple[Array, Array]]:
    """Give layers biases other than 0; return the weight and the bias of each by name."""
    layers = {}
    with torch.no_grad():
        for name, bias in module.named_parameters():
            layer, _, kind = name.rpartition(".")
            if kind == "bias":
                bias.copy_(torch.linspace(-0.4, 0.5, bias.numel()))
                layers[layer] = as_array(module.get_parameter(f"{layer}.weight")), as_array(bias)
    return layers


def convolved(x: Array, weight: Array, bias: Any = 0.0, pad: int = 0, stride: int = 1) -> Array:
    """Return the output [M, F, H, W] of a convolution with so many zeros around its input."""
    room = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    patches = sliding_window_view(room, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    sums: Array = np.einsum("mcyxij,fcij->mfyx", patches, weight, optimize=True)
    return sums + np.reshape(bias, (-1, 1, 1))


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
