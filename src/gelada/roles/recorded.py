"""Backprop by CUDA graphs: one for the targets of a batch, one for each size of minibatch.

The first graph ends with a prepared batch, which is in the same memory each time, so the others
find it there. Rows of a minibatch, moments and the algorithm's own numbers are copied to memory on
the device before a replay. The optimizer's step is not in a graph: the parameter server that takes
it owns the parameters, and Adam's is one operation anyway.
"""

from __future__ import annotations

from functools import partial

import torch

from gelada.algorithms.api import Algorithm, Prepared
from gelada.core.types import Aux, Batch
from gelada.nets.network import Network
from gelada.nets.scratch import Scratch
from gelada.ops.flat import FlatParameters
from gelada.roles.backprop import NORM, Backprop, Found, as_vector
from gelada.roles.group import Member
from gelada.runtime.cuda_graphs import Recorded

MOVING = {"gamma", "lam", "munchausen"}
"""Of an algorithm's own state: what its operations take as numbers of the host."""


def can_record(algorithm: Algorithm) -> bool:
    """Return whether a graph may hold the loss: it has the numbers of its recording for ever."""
    return not MOVING & algorithm.start().keys()


class GraphBackprop(Backprop):
    """Computes the same gradients, by replays from the fourth batch of a shape on.

    Args:
        algorithm: what to minimise.
        index: of the learner.
        seed: of the run.
        streams: epoch in the seeds (None: that of the version).
    """

    def __init__(
        self, algorithm: Algorithm, index: int, seed: int, streams: int | None = None
    ) -> None:
        super().__init__(algorithm, index, seed, streams)
        self._prepare: Recorded[Prepared] | None = None
        self._steps: dict[int, Recorded[torch.Tensor]] = {}  # by rows of the minibatch
        self._names: list[str] = []  # of the scalars in the result of a step
        self._aux: Aux = {}  # on the device
        self._given: Aux = {}  # of which it is a copy
        self._scratch = Scratch()  # memory of the graph, which must not go to others

    def prepare(self, net: Network, batch: Batch, aux: Aux) -> Prepared:
        """Compute the targets of a batch; those of the batch before are gone."""
        self._take(aux, batch.frames.device)
        if self._prepare is None:
            self._prepare = Recorded(partial(self._prepared, net))
        recorded = self._prepare.recorded
        prepared = self._prepare(*batch)
        if self._prepare.recorded and not recorded:  # the graph writes to what was there
            self._scratch, net.scratch = net.scratch, Scratch()
        return prepared

    def minibatch(
        self,
        flat: FlatParameters,
        prepared: Prepared,
        index: torch.Tensor,
        aux: Aux,  # noqa: ARG002 - as Backprop
        moments: torch.Tensor | None,
        member: Member | None,
    ) -> Found:
        """Write the gradient of a minibatch; see `Backprop`."""
        assert self._prepare is not None
        if not self._prepare.owns(prepared):
            return super().minibatch(flat, prepared, index, self._aux, moments, member)
        if len(index) not in self._steps:  # batches before were the warm-up
            step = partial(self._gradient, flat, prepared, member is None)
            self._steps[len(index)] = Recorded(step, warm_up=0)
        found = self._steps[len(index)](index, moments).clone()
        values, weight = found[:-1], found[-1]
        if member is None:
            return Found(self._names, values, weight)
        member.average(flat.gradients, weight)
        norm = flat.clip(self._algorithm.gradient_clip)
        return Found([*self._names, NORM], torch.cat([values, norm.unsqueeze(0)]), weight)

    def _prepared(self, net: Network, *batch: torch.Tensor) -> Prepared:
        return self._algorithm.prepare(net, Batch(*batch), self._aux)

    def _gradient(
        self,
        flat: FlatParameters,
        prepared: Prepared,
        alone: bool,
        index: torch.Tensor,
        moments: torch.Tensor | None,
    ) -> torch.Tensor:
        """Write the gradient of a minibatch, clipped unless a group averages it.

        Returns:
            float32[n + 1], the scalars that `_names` names, and the sum of the weights.
        """
        assert isinstance(flat.module, Network)
        total, terms = self.forward(flat.module, prepared, index, self._aux, moments)
        weight = prepared.weight(index)
        flat.zero_gradients()
        torch.autograd.backward(total)
        if alone:
            terms[NORM] = flat.clip(self._algorithm.gradient_clip)
        self._names = list(terms)
        return as_vector(terms | {"weight": weight})

    def _take(self, aux: Aux, device: torch.device) -> None:
        """Copy the algorithm's own state to memory of the device that stays the same."""
        for name, given in aux.items():
            own = self._aux.get(name)
            if own is None:
                own = torch.empty_like(given, dtype=torch.float32, device=device)
                self._aux[name] = own
            if given.dtype == torch.float64:
                own.fill_(float(given))  # without a copy that would wait
            elif given is not self._given.get(name):  # such as a target parameter
                own.copy_(given)
        self._given = dict(aux)
