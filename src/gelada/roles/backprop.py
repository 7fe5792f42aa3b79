"""Backprop: turns the batches of a round into gradients, minibatch by minibatch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from gelada.algorithms.api import Algorithm, Prepared
from gelada.core.errors import Diverged
from gelada.core.seeding import generator
from gelada.core.types import Aux, Batch, Version
from gelada.nets.network import Network
from gelada.ops.flat import FlatParameters
from gelada.roles.parameters.client import ParameterClient
from gelada.roles.replay.reuse import Use


class Learned(NamedTuple):
    """What was found in the fresh batch of a round."""

    values: dict[str, float]  # losses and statistics by name
    priorities: torch.Tensor | None  # float32[N]: how much is left to learn from each window


class Compute(Protocol):
    """What a learner does in a round."""

    def run(self, uses: Sequence[Use], client: ParameterClient, aux: Aux) -> Learned:
        """Offer the gradients of all batches to the client and push all but the last.

        Args:
            uses: of batches on the device of the client's parameters; the last is the fresh one.
            client: has the network, and takes the gradients.
            aux: the algorithm's own state.

        Raises:
            Diverged: if a loss is not a finite number; the last gradient is not pushed then.
        """


class Backprop:
    """Computes gradients of an algorithm's loss.

    Args:
        algorithm: what to minimise.
        index: of the learner.
        seed: of the run; with the index and the version it decides the order of the samples.
        streams: epoch in the seeds (None: that of the version).
    """

    def __init__(
        self, algorithm: Algorithm, index: int, seed: int, streams: int | None = None
    ) -> None:
        self._algorithm, self._index, self._seed = algorithm, index, seed
        self._streams = streams

    def run(self, uses: Sequence[Use], client: ParameterClient, aux: Aux) -> Learned:
        """Run all epochs over the batches; the values are the means of the last epoch.

        Each batch is prepared when its turn comes: its targets are those of the network of then.
        """
        algorithm, flat, version = self._algorithm, client.flat, client.version
        assert isinstance(flat.module, Network)
        net = flat.module
        epoch = version.epoch if self._streams is None else self._streams
        random = generator(self._seed, "learner", self._index, epoch, version.number)
        part = 0
        history: list[dict[str, torch.Tensor]] = []
        for later, (batch, count) in zip(reversed(range(len(uses))), uses, strict=True):
            client.push()  # the last gradient of the batch before, which changes the targets
            prepared = self.prepare(net, batch, aux)
            epochs = self._minibatches(prepared, count, random)
            # exact for the last batch; before it, at least one minibatch of each later batch counts
            parts = part + sum(map(len, epochs)) + later
            for minibatches in epochs:
                seen: list[dict[str, torch.Tensor]] = []
                for index in minibatches:
                    client.push()  # the gradient before; the learner pushes the round's last one
                    total, terms = self.forward(net, prepared, index, aux)
                    terms["gradient_norm"] = self.backward(flat, total)
                    seen.append(terms)
                    history.append(terms)
                    rate, samples = algorithm.learning_rate(aux), prepared.weight(index)
                    client.offer(part, parts, samples, float(total.detach()), rate)
                    part += 1
                values = _means(seen)
                _check_finite(values, history, version)
        values["learning_rate"] = algorithm.learning_rate(aux)
        values["parameter_norm"] = float(torch.linalg.vector_norm(flat.values))
        return Learned(values, prepared.priorities)

    def prepare(self, net: Network, batch: Batch, aux: Aux) -> Prepared:
        """Compute the targets of a batch."""
        return self._algorithm.prepare(net, batch, aux)

    def forward(
        self, net: Network, prepared: Prepared, index: torch.Tensor, aux: Aux
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss of a minibatch, and named scalars about it."""
        return self._algorithm.loss(net, prepared.select(index), aux)

    def backward(self, flat: FlatParameters, total: torch.Tensor) -> torch.Tensor:
        """Write the loss's gradient into the flat vector, clipped; return its norm before."""
        flat.zero_gradients()
        torch.autograd.backward(total)
        return flat.clip(self._algorithm.gradient_clip)

    def _minibatches(
        self, prepared: Prepared, epochs: int, random: torch.Generator
    ) -> list[tuple[torch.Tensor, ...]]:
        """Return the rows of each minibatch, by epoch."""
        rows = max(self._algorithm.minibatch // prepared.row, 1)
        return [
            torch.split(torch.randperm(prepared.size, generator=random), rows)
            for _ in range(epochs)
        ]


def _means(seen: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    """Return the mean of each named scalar over the minibatches; of ``…_max`` the largest."""
    names = list(seen[0])
    table = torch.stack([torch.stack([terms[name].float() for name in names]) for terms in seen])
    means, most = table.mean(dim=0).tolist(), table.amax(dim=0).tolist()
    return {
        name: largest if name.endswith("_max") else mean
        for name, mean, largest in zip(names, means, most, strict=True)
    }


def _check_finite(
    values: dict[str, float], history: list[dict[str, torch.Tensor]], version: Version
) -> None:
    """Raise Diverged if a mean is not a finite number, naming the term that was the first."""
    if all(math.isfinite(value) for value in values.values()):
        return
    for terms in history:  # one bad term soon spoils all others
        for name, value in terms.items():
            if not math.isfinite(value):
                raise Diverged(
                    f"{name} became {float(value)} at version {version.number}: training has "
                    "diverged; the last good checkpoint is kept; lower --lr or --gradient-clip"
                )
