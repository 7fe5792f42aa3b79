"""Batches that are ready for learning, in minibatches of samples or as a whole."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import torch

from gelada.algorithms.auxiliary import Ahead, Future
from gelada.core.types import Batch
from gelada.nets.network import Observed
from gelada.nets.observations import Observations
from gelada.ops import returns
from gelada.ops.losses import weighted_sums

Columns = TypeVar("Columns", bound="tuple[torch.Tensor, ...]")


class Minibatch(NamedTuple, Generic[Columns]):
    """``M`` samples, as a loss takes them."""

    observations: torch.Tensor | Observed  # [M, K, H, W], preprocessed; what the network takes
    steps: Columns  # a NamedTuple of tensors [M]
    ahead: Ahead | None = None  # what followed the first of them, for a prediction
    moments: torch.Tensor | None = None  # float32[2], to standardise by instead of its own


class Samples(Generic[Columns]):
    """All ``N * T`` steps of a batch, from which minibatches are selected.

    Args:
        observations: the ``N * (T + 1)`` observations of the batch.
        length: steps of a window (T).
        columns: a NamedTuple of tensors [N * T], the data of the steps that the loss needs.
        weights: float32[N * T] of the steps in the loss.
        future: what follows each step, for a prediction.
        policies: separate ones of the network, for the agents whose windows are neighbours.
        standardised: float32[N * T], what the loss standardises in each minibatch, if anything.
    """

    row = 1
    priorities: torch.Tensor | None = None  # experience is used once

    def __init__(
        self,
        observations: Observations,
        length: int,
        columns: Columns,
        weights: torch.Tensor,
        future: Future | None = None,
        policies: int = 1,
        standardised: torch.Tensor | None = None,
    ) -> None:
        self._policies, self._standardised = policies, standardised
        self.size = len(weights)
        self._future = future
        self._observations, self._length, self._columns = observations, length, columns
        self._weights, self.device = weights, weights.device

    def select(
        self, index: torch.Tensor, moments: torch.Tensor | None = None
    ) -> Minibatch[Columns]:
        """Return the samples with indices int64[M]; ``n * T + t`` is step t of window n."""
        window = index // self._length
        picked = type(self._columns)(*(column[index] for column in self._columns))
        ahead = None if self._future is None else self._future.select(index)
        stacks = self._observations.pick(index + window)  # a window has one more than steps
        if self._policies == 1:
            return Minibatch(stacks, picked, ahead, moments)
        seen = Observed(stacks, agents=window % self._policies)
        return Minibatch(seen, picked, ahead, moments)

    def sums(self, index: torch.Tensor) -> torch.Tensor | None:
        """Return the sums of what the loss of these samples standardises; None if nothing."""
        if self._standardised is None:
            return None
        return weighted_sums(self._standardised[index], self._weights[index])

    def weight(self, index: torch.Tensor) -> torch.Tensor:
        """Return the sum of the weights of these samples, a scalar float32."""
        return self._weights[index].sum()


class WholeBatch:
    """A whole batch of ``N`` windows, which gives one gradient.

    Args:
        observations: the observations that the loss evaluates. Without ``partial`` these are all
            ``N * (T + 1)``; with it the ``N`` first observations of the windows, then the ``N``
            from which their n-step returns bootstrap.
        batch: the windows.
        partial: sums of rewards and discounts for the n-step returns of the windows' first steps.
    """

    row = 1
    priorities: torch.Tensor | None = None  # float32[N], written by the loss if there are any

    def __init__(
        self, observations: Observations, batch: Batch, partial: returns.Partial | None = None
    ) -> None:
        self.size = batch.actions.numel() if partial is None else len(batch.actions)
        self.observations, self.batch, self.partial = observations, batch, partial
        self.device = batch.actions.device

    def select(self, index: torch.Tensor, moments: torch.Tensor | None = None) -> WholeBatch:  # noqa: ARG002 - the protocol
        """Return the whole batch, as the order of its samples does not matter."""
        assert len(index) == self.size
        return self

    def sums(self, index: torch.Tensor) -> torch.Tensor | None:  # noqa: ARG002 - the protocol
        """Return None: the losses of whole batches standardise nothing."""
        return None

    def weight(self, index: torch.Tensor) -> torch.Tensor:
        """Return the number of its steps in the loss mask, of n-step returns the first ones."""
        assert len(index) == self.size
        mask = self.batch.mask if self.partial is None else self.batch.mask[:, :1]
        return mask.sum(dtype=torch.float32)
