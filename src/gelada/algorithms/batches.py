"""Batches made ready for learning: in minibatches of samples, or whole."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import torch

from gelada.core.types import Batch
from gelada.nets.observations import Observations
from gelada.ops import returns

Columns = TypeVar("Columns", bound="tuple[torch.Tensor, ...]")


class Minibatch(NamedTuple, Generic[Columns]):
    """``M`` samples ready for a loss."""

    observations: torch.Tensor  # [M, K, H, W], preprocessed
    steps: Columns  # of each [M]


class Samples(Generic[Columns]):
    """All ``N * T`` steps of a batch, to be picked in minibatches.

    Args:
        observations: of the batch, ``N * (T + 1)`` of them.
        length: steps of a window (T).
        columns: a NamedTuple of tensors [N * T], what the loss needs of each step.
    """

    priorities: torch.Tensor | None = None  # experience is used once

    def __init__(self, observations: Observations, length: int, columns: Columns) -> None:
        self.size = len(columns[0])
        self._observations, self._length, self._columns = observations, length, columns

    def select(self, index: torch.Tensor) -> Minibatch[Columns]:
        """Return the samples with indices int64[M]; ``n * T + t`` is step t of window n."""
        observation = index + index // self._length  # a window has one observation more than steps
        picked = type(self._columns)(*(column[index] for column in self._columns))
        return Minibatch(self._observations.pick(observation), picked)


class WholeBatch:
    """A whole batch of ``N`` windows, of which one gradient is made.

    Args:
        observations: that the loss evaluates. Without ``partial`` all ``N * (T + 1)`` of them;
            with it the first observations of all windows, then the ``N`` after their returns.
        batch: the windows.
        partial: what the rewards of the windows give to n-step returns of their first steps.
    """

    priorities: torch.Tensor | None = None  # float32[N], written by the loss if there are any

    def __init__(
        self, observations: Observations, batch: Batch, partial: returns.Partial | None = None
    ) -> None:
        self.size = batch.actions.numel() if partial is None else len(batch.actions)
        self.observations, self.batch, self.partial = observations, batch, partial

    def select(self, index: torch.Tensor) -> WholeBatch:
        """Return the batch itself: the order of its samples does not matter."""
        assert len(index) == self.size
        return self
