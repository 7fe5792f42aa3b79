"""What an exported folder holds of an agent: its weights, as they are or rounded to 8 bits.

The weights are written and read as checkpoints are (`colobus.core.checkpoint`): a file of tensors
and a JSON with counters and checksums. Nothing is in them that only training needs.
"""

from __future__ import annotations

from typing import Literal

import torch

from colobus.core.checkpoint import Checkpoint
from colobus.core.errors import ColobusError

Weights = Literal["float32", "int8"]
"""How weights are exported; see `packed`."""

COUNTERS = ("games", "seconds", "score", "best", "parameters")
"""Counters of a checkpoint that are exported with its weights."""

LARGEST = 127
"""Largest absolute value of a rounded weight."""


def packed(checkpoint: Checkpoint, weights: Weights = "float32") -> Checkpoint:
    """Return a checkpoint with nothing but weights and input statistics.

    With int8, each weight w of a matrix or of filters is rounded to a whole number q of
    -127 … 127, with w ≈ q * scale and a scale for each row (unit or filter) of it. Biases and all
    other vectors stay float32. The tensors are then called ``int8/NAME`` and ``scale/NAME``
    instead of ``parameter/NAME``.
    """
    tensors = {f"input/{name}": value for name, value in checkpoint.group("input").items()}
    for name, value in checkpoint.playing().items():
        if weights == "float32" or value.dim() < 2:
            tensors[f"parameter/{name}"] = value
            continue
        scale = value.flatten(1).abs().amax(dim=1).clamp(min=1e-12) / LARGEST
        tensors[f"int8/{name}"] = (value / _beside(scale, value)).round().to(torch.int8)
        tensors[f"scale/{name}"] = scale
    counters = {name: checkpoint.counters[name] for name in COUNTERS if name in checkpoint.counters}
    if weights == "int8":
        counters.pop("parameters", None)  # those that are there are counted
    return checkpoint._replace(tensors=tensors, counters=counters)


def unpacked(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with float32 weights, whatever `packed` made of them.

    Raises:
        ColobusError: if a rounded weight has no scale that fits; without the checkpoint's name.
    """
    rounded, scales = checkpoint.group("int8"), checkpoint.group("scale")
    if not rounded:
        return checkpoint
    tensors = dict(checkpoint.tensors)
    for name, value in rounded.items():
        scale = scales.get(name, torch.empty(0))
        fits = value.dtype == torch.int8 and scale.dtype == torch.float32 and value.dim() > 1
        if not fits or scale.shape != value.shape[:1] or not bool(scale.isfinite().all()):
            raise ColobusError(f"has int8/{name} without a scale/{name} that fits")
        tensors[f"parameter/{name}"] = value.float() * _beside(scale, value)
    return checkpoint._replace(tensors=tensors)


def _beside(scale: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a scale for each row in the shape that multiplies a tensor of so many axes."""
    return scale.reshape(-1, *[1] * (value.dim() - 1))
