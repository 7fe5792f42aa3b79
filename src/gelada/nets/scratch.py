"""Memory that is reused for every batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


class Scratch:
    """Memory for large tensors that are computed again for each batch.

    New memory of that size comes from the operating system page by page, which takes longer than
    writing the tensor (docs/speed.md). A copy of a `Scratch` is empty.
    """

    def __init__(self) -> None:
        self._memory: dict[str, torch.Tensor] = {}  # by name

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()

    def take(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return a tensor with undefined content. Tensors of the same name share their memory."""
        size, memory = math.prod(shape), self._memory.get(name)
        fits = memory is not None and memory.dtype == dtype and memory.device == device
        if memory is None or not fits or len(memory) < size:
            memory = self._memory[name] = torch.empty(size, dtype=dtype, device=device)
        return memory[:size].view(*shape)
