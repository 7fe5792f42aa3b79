"""Backprop: turns the batches of a round into gradients, minibatch by minibatch.

On a GPU the host queues the operations of a whole round and reads their results once, at its end:
each number that is read in between would let the GPU wait for the host.

Backprop by CUDA graphs: one for the targets of a batch, one for each size of minibatch.

The first graph ends with a prepared batch, which is in the same memory each time, so the others
find it there. Rows of a minibatch, moments and the algorithm's own numbers are copied to memory on
the device before a replay. The optimizer's step is not in a graph: the parameter server that takes
it owns the parameters, and Adam's is one operation anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from colobus.algorithms.api import Algorithm, Prepared
from colobus.core.errors import Diverged
from colobus.core.seeding import generator
from colobus.core.types import AlgorithmState, Batch, Version
from colobus.nets.network import Network, Scratch
from colobus.ops.flat import FlatParameters
from colobus.roles.allreduce import Member
from colobus.roles.parameters.client import ParameterClient
from colobus.roles.replay.minibatch_buffer import Use
from colobus.runtime.devices import Recorded

NORM = "gradient_norm"
"""Name of the norm of a minibatch's gradient before it is clipped."""

CLIPPED = "gradient_clipped"
"""Name of the share of gradients that were clipped."""


class Found(NamedTuple):
    """What was found in a minibatch, on the device."""

    names: Sequence[str]
    values: torch.Tensor  # float32[n], losses and statistics in the order of their names
    weight: torch.Tensor  # sum of the samples' weights


class Learned(NamedTuple):
    """What was found in the fresh batch of a round."""

    values: dict[str, float]  # losses and statistics by name
    priorities: torch.Tensor | None  # float32[N], on the host: each window's new priority


Send = Callable[[int, int, "float | torch.Tensor"], None]
"""Takes over the gradient in the flat vector: its number in the round, the gradients of the round,
and the samples behind it."""


@dataclass
class Backprop:
    """Computes gradients of an algorithm's loss."""

    algorithm: Algorithm  # says what to minimise
    index: int  # of the learner
    seed: int  # of the run; with the index and the version it decides the order of the samples
    streams: int | None = None  # incarnation in the seeds (None: that of the version)

    def run(
        self,
        uses: Sequence[Use],
        client: ParameterClient,
        algorithm_state: AlgorithmState,
        send: Send,
    ) -> Learned:
        """Compute the gradients of all batches, one after the other, in all their epochs.

        Each batch is prepared when its turn comes: its targets are those of the network of then.

        Args:
            uses: of batches on the device of the client's parameters; the last is the fresh one.
            client: has the network and the version of its parameters.
            algorithm_state: the algorithm's own state.
            send: is called with each gradient before the next one is computed.

        Returns:
            What was found in the fresh batch; the values are the means of the last epoch's samples.

        Raises:
            Diverged: if a loss is not a finite number.
        """
        flat, version = client.flat, client.version
        assert isinstance(flat.module, Network)
        net = flat.module
        incarnation = version.incarnation if self.streams is None else self.streams
        random = generator(self.seed, "learner", self.index, incarnation, version.number)
        part = 0
        history: list[Found] = []  # by minibatch
        sizes: list[float] = []  # of the minibatches of the last epoch, of which the first is 1
        for later, (batch, count) in zip(reversed(range(len(uses))), uses, strict=True):
            prepared = self.prepare(net, batch, algorithm_state)
            epochs = self._minibatches(prepared, count, random)
            # exact for the last batch; before it, later batches count as one minibatch each
            parts = part + sum(map(len, epochs)) + later
            for minibatches in epochs:
                moments = _moments(client.member, prepared, minibatches)
                for index, moment in zip(minibatches, moments, strict=True):
                    found = self.minibatch(
                        flat, prepared, index, algorithm_state, moment, client.member, random
                    )
                    history.append(found)
                    send(part, parts, found.weight)
                    part += 1
                sizes = [len(index) / len(minibatches[0]) for index in minibatches]
        return _read(history, sizes, flat.values, prepared.priorities, version)

    def prepare(self, net: Network, batch: Batch, algorithm_state: AlgorithmState) -> Prepared:
        """Compute the targets of a batch."""
        return self.algorithm.prepare(net, batch, algorithm_state)

    def minibatch(
        self,
        flat: FlatParameters,
        prepared: Prepared,
        index: torch.Tensor,
        algorithm_state: AlgorithmState,
        moments: torch.Tensor | None,
        member: Member | None,
        random: torch.Generator | None = None,
    ) -> Found:
        """Write the gradient of a minibatch, clipped; return what was found in it.

        Its norm is that before. In a group it is the mean gradient of all its learners, weighted by
        the samples' weights.

        Args:
            flat: the network and its gradients.
            prepared: the batch.
            index: int64[M], rows of the minibatch.
            algorithm_state: the algorithm's own state.
            moments: float32[2], by what a group standardises (None: alone).
            member: in a group of learners, whose mean gradient it is.
            random: generator of the loss's random numbers.
        """
        alone = member is None
        found = self.gradient(flat, prepared, alone, algorithm_state, random, index, moments)
        if member is None:
            return found
        member.average(flat.gradients, found.weight)
        clipped = self.algorithm.clip_gradient(flat)
        values = torch.cat([found.values, torch.stack(clipped)])
        return Found([*found.names, NORM, CLIPPED], values, found.weight)

    def gradient(
        self,
        flat: FlatParameters,
        prepared: Prepared,
        alone: bool,
        algorithm_state: AlgorithmState,
        random: torch.Generator | None,
        index: torch.Tensor,
        moments: torch.Tensor | None,
    ) -> Found:
        """Write the gradient of a minibatch, clipped unless a group averages it first."""
        assert isinstance(flat.module, Network)
        minibatch = prepared.select(index, moments)
        total, terms = self.algorithm.loss(flat.module, minibatch, algorithm_state, random)
        weight = prepared.weight(index)
        self.backward(flat, total)
        if alone:
            terms[NORM], terms[CLIPPED] = self.algorithm.clip_gradient(flat)
        values = torch.stack([value.float() for value in terms.values()]).detach()
        return Found(list(terms), values, weight)

    def backward(self, flat: FlatParameters, total: torch.Tensor) -> None:
        """Write the gradient of a loss (a range of profiles)."""
        flat.zero_gradients()
        torch.autograd.backward(total)

    def _minibatches(
        self, prepared: Prepared, epochs: int, random: torch.Generator
    ) -> list[tuple[torch.Tensor, ...]]:
        """Return the rows of each minibatch on the device of the batch, by epoch."""
        rows = max(self.algorithm.minibatch // prepared.row, 1)
        orders = [torch.randperm(prepared.size, generator=random) for _ in range(epochs)]
        return [torch.split(order.to(prepared.device, non_blocking=True), rows) for order in orders]


def _moments(
    member: Member | None, prepared: Prepared, minibatches: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    """Return by what the loss of each minibatch standardises in a group; None: by its own."""
    alone: list[torch.Tensor | None] = [None] * len(minibatches)
    if member is None:
        return alone
    sums = [prepared.sums(index) for index in minibatches]
    found = [one for one in sums if one is not None]
    return member.moments(torch.stack(found)).unbind() if found else alone


def _read(
    history: list[Found],
    sizes: list[float],
    parameters: torch.Tensor,
    priorities: torch.Tensor | None,
    version: Version,
) -> Learned:
    """Read everything that the host wants to know of a round, in one copy.

    Args:
        history: what was found in each minibatch.
        sizes: of the minibatches of the last epoch, which are their weights.
        parameters: of the network.
        priorities: of the windows of the last batch.
        version: of the parameters that the round began with.

    Returns:
        The mean of each scalar over the last epoch (of ``…_max`` the largest), without minibatches
        where it is -inf (-inf if it is that in all of them); the norm of the parameters; and the
        priorities.

    Raises:
        Diverged: if a scalar of any epoch is nan or infinite; -inf says that nothing was measured.
    """
    names, every = history[-1].names, torch.stack([found.values for found in history])
    table, shares = every[-len(sizes) :], every.new_tensor(sizes).unsqueeze(1)
    shares, table = shares * ~table.isneginf(), table.masked_fill(table.isneginf(), 0.0)
    nothing = (shares == 0.0).all(dim=0)
    mean = (table * shares).sum(dim=0) / shares.sum(dim=0).clamp(min=1e-8)
    mean, most = (v.masked_fill(nothing, -math.inf) for v in (mean, table.amax(dim=0)))
    facts = torch.stack([(every < math.inf).all().float(), torch.linalg.vector_norm(parameters)])
    left = table.new_empty(0) if priorities is None else priorities.detach()
    parts = [mean, most, facts, left]
    means, most, facts, left = torch.cat(parts).cpu().split([len(part) for part in parts])
    finite, norm = facts.tolist()
    if not finite:
        _refuse(history, version)
    values = {
        name: largest if name.endswith("_max") else mean
        for name, mean, largest in zip(names, means.tolist(), most.tolist(), strict=True)
    }
    return Learned(values | {"parameter_norm": norm}, None if priorities is None else left)


def _refuse(history: list[Found], version: Version) -> None:
    """Raise Diverged for the first term that is not a finite number: it soon spoils the others."""
    for found in history:
        for name, value in zip(found.names, found.values.tolist(), strict=True):
            if not value < math.inf:
                raise Diverged(
                    f"{name} became {value} at version {version.number}: training has "
                    "diverged; the last good checkpoint is kept; lower --lr or --gradient-clip"
                )


@dataclass
class CudaGraphBackprop(Backprop):
    """Computes the same gradients, by replays from the fourth batch of a shape on.

    It is for algorithms whose loss draws no random numbers (`Algorithm.fits_cuda_graph`).
    """

    def __post_init__(self) -> None:
        self._prepare: Recorded[Prepared] | None = None
        self._steps: dict[int, Recorded[Found]] = {}  # by rows of the minibatch
        self._aux: AlgorithmState = {}  # on the device
        self._given: AlgorithmState = {}  # of which it is a copy
        self._scratch = Scratch()  # memory of the graph, which must not go to others

    def prepare(self, net: Network, batch: Batch, algorithm_state: AlgorithmState) -> Prepared:
        """Compute the targets of a batch; those of the batch before are gone."""
        self._take(algorithm_state, batch.frames.device)
        if self._prepare is None:
            self._prepare = Recorded(partial(self._prepared, net))
        recorded = self._prepare.recorded
        prepared = self._prepare(*batch)
        if self._prepare.recorded and not recorded:  # the graph writes to what was there
            self._scratch, net.scratch = net.scratch, Scratch()
        return prepared

    def gradient(
        self,
        flat: FlatParameters,
        prepared: Prepared,
        alone: bool,
        algorithm_state: AlgorithmState,
        random: torch.Generator | None,
        index: torch.Tensor,
        moments: torch.Tensor | None,
    ) -> Found:
        """Write the gradient of a minibatch, by a graph if the batch was prepared by one."""
        assert self._prepare is not None
        write = partial(super().gradient, flat, prepared, alone, self._aux, None)
        if not self._prepare.owns(prepared):
            return write(index, moments)
        if len(index) not in self._steps:  # batches before were the warm-up
            self._steps[len(index)] = Recorded(write, warm_up=0)
        found = self._steps[len(index)](index, moments)  # in memory of the next replay, too
        return found._replace(values=found.values.clone(), weight=found.weight.clone())

    def _prepared(self, net: Network, *batch: torch.Tensor) -> Prepared:
        return self.algorithm.prepare(net, Batch(*batch), self._aux)

    def _take(self, algorithm_state: AlgorithmState, device: torch.device) -> None:
        """Copy the algorithm's own state to memory of the device that stays the same."""
        for name, given in algorithm_state.items():
            own = self._aux.get(name)
            if own is None:
                own = torch.empty_like(given, dtype=torch.float32, device=device)
                self._aux[name] = own
            if given.dtype == torch.float64:
                own.fill_(float(given))  # without a copy that would wait
            elif given is not self._given.get(name):  # such as a target parameter
                own.copy_(given)
        self._given = dict(algorithm_state)
