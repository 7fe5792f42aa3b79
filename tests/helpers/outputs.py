"""A policy's network that is nothing but its outputs, and comparing what two losses made of it."""

from __future__ import annotations

from typing import Any

import torch

from colobus.core.types import AlgorithmState, Batch
from helpers.gradients import Array, as_float32


class Given:
    """A network whose outputs, for all observations, are the parameters themselves."""

    def __init__(self, logits: Array, values: Array) -> None:
        self.logits = as_float32(logits).requires_grad_(True)
        self.values = as_float32(values).requires_grad_(True)

    def __call__(self, stacks: torch.Tensor) -> dict[str, torch.Tensor]:
        values = self.values.view(-1, 1)
        assert len(stacks) == len(values)
        return {"policy": self.logits.view(len(values), -1), "value": values}

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return those of the logits and of the values."""
        logits, values = self.logits.grad, self.values.grad
        assert logits is not None
        assert values is not None
        return logits, values


def assert_same_bits(one: Any, other: Any) -> None:
    """Compare (loss, terms, network) of two losses."""
    assert torch.equal(one[0], other[0])
    for name in one[1]:
        assert torch.equal(one[1][name], other[1][name]), name
    for a, b in zip(one[2].gradients(), other[2].gradients(), strict=True):
        assert torch.equal(a, b)


def whole(algorithm: Any, net: Any, batch: Batch, state: AlgorithmState | None = None) -> Any:
    """Return a batch as one minibatch, prepared with this state (None: the algorithm's first)."""
    prepared = algorithm.prepare(net, batch, algorithm.start() if state is None else state)
    return prepared.select(torch.arange(prepared.size))


def numbers(terms: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: term.item() for name, term in terms.items()}


def loss_of(algorithm: Any, net: Any, minibatch: Any, state: Any, random: Any = None) -> Any:
    """Return the loss, its terms and the network, which has the gradients from then on."""
    total, terms = algorithm.loss(net, minibatch, state, random)
    torch.autograd.backward(total)
    return total.detach(), terms, net
