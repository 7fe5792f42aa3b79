"""Slices of an optimizer's state, which checkpoints store by the names of parameters."""

from __future__ import annotations

import torch

from gelada.ops.flat import FlatParameters


def by_name(tensors: dict[str, torch.Tensor]) -> list[tuple[str, dict[str, torch.Tensor]]]:
    """Group "mean/torso.0.weight" and the like by their first part; scalars have no second."""
    groups: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, parameter = name.partition("/")
        groups.setdefault(kind, {})[parameter] = tensor
    return list(groups.items())


def slice_of(flat: FlatParameters, cut: slice, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return one server's part of an optimizer state that is stored by parameter name."""
    if "" in tensors:
        return tensors[""]
    whole = torch.zeros_like(flat.values)
    flat.layout.fill(whole, tensors)
    return whole[cut]
