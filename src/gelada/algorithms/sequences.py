"""Learning with a recurrent network: what it says of a batch, and minibatches of sequences.

A window of ``T`` steps is cut into sequences of ``S`` steps. The state before each comes from the
current network, which goes through the whole window when the batch is prepared, beginning with the
state that the actor had. The gradient goes back through the steps of one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple

import torch
from torch import nn
from torch.func import functional_call

from gelada.algorithms.batches import Columns, Minibatch, Samples
from gelada.core.types import Batch
from gelada.nets.network import Network, Observed
from gelada.nets.observations import Observations
from gelada.nets.recurrent import LSTM


class Evaluated(NamedTuple):
    """What a network says of the ``N * (T + 1)`` observations of a batch."""

    outputs: dict[str, torch.Tensor]  # by head, float32[N * (T + 1), n]
    states: torch.Tensor | None  # float32[N * T / S, 2 * width]: before each sequence


@torch.no_grad()
def evaluate(
    net: Network,
    observations: Observations,
    batch: Batch,
    size: int,
    sequence: int,
    parameters: dict[str, torch.Tensor] | None = None,
) -> Evaluated:
    """Evaluate all observations of a batch.

    Args:
        net: the network, recurrent or not.
        observations: of the batch.
        batch: says where games begin, and the state at the start of each window.
        size: observations that the torso takes at once.
        sequence: steps of a sequence (S), of which T is a multiple.
        parameters: by name, in place of the network's own, such as those of a target network.
    """
    whole, arguments = _Whole(net), (observations, batch, size, sequence)
    named = {f"net.{name}": value for name, value in (parameters or {}).items()}
    found: Evaluated = functional_call(whole, named, arguments) if named else whole(*arguments)
    return found


class _Whole(nn.Module):
    """A network that evaluates whole batches, as a module that may be given other parameters."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(
        self, observations: Observations, batch: Batch, size: int, sequence: int
    ) -> Evaluated:
        net, (windows, length) = self.net, observations.shape
        chunks, agents = observations.chunks(size), None
        if net.policies > 1:
            window = torch.arange(windows, device=batch.ages.device).repeat_interleave(length)
            agents = window % net.policies
        if net.recurrent is None:
            parts = [net(observed) for observed in _with_agents(chunks, agents)]
            return Evaluated({k: torch.cat([p[k] for p in parts]) for k in parts[0]}, None)
        inputs = torch.cat([net.features(stacks) for stacks in chunks]).view(windows, length, -1)
        hidden, states = _go_through(net.recurrent, inputs, batch, sequence)
        return Evaluated(net.outputs(hidden.flatten(0, 1), agents), states)


def _go_through(
    recurrent: LSTM, inputs: torch.Tensor, batch: Batch, sequence: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs [N, T + 1, width] for ``inputs``, and the state before each sequence."""
    begins, state = batch.ages == 0, batch.state
    states, hidden = [], []
    for first in range(0, inputs.shape[1], sequence):
        part = slice(first, first + sequence)
        states.append(state)
        outputs, state = recurrent.unroll(inputs[:, part], state, begins[:, part])
        hidden.append(outputs)
    starts = torch.stack(states[:-1], dim=1)  # the last is of observation T alone
    return torch.cat(hidden, dim=1), starts.flatten(0, 1)


def _with_agents(
    chunks: Sequence[torch.Tensor], agents: torch.Tensor | None
) -> Sequence[torch.Tensor | Observed]:
    """Return stacks with the agents that see them, if the network wants to know them."""
    if agents is None:
        return chunks
    own = torch.split(agents, len(chunks[0]))
    return [Observed(stacks, agents=them) for stacks, them in zip(chunks, own, strict=True)]


class SequenceSamples(Generic[Columns]):
    """All ``N * T / S`` sequences of a batch, from which minibatches are selected.

    Args:
        samples: the steps of the batch.
        states: float32[N * T / S, 2 * width], before each sequence.
        ages: int64[N, T + 1], of the batch.
        sequence: steps of a sequence (S).
    """

    priorities: torch.Tensor | None = None  # experience is used once

    def __init__(
        self, samples: Samples[Columns], states: torch.Tensor, ages: torch.Tensor, sequence: int
    ) -> None:
        self.size, self.row = len(states), sequence
        self._samples, self._states, self.device = samples, states, states.device
        self._begins = (ages[:, :-1] == 0).reshape(self.size, sequence)

    def select(
        self, index: torch.Tensor, moments: torch.Tensor | None = None
    ) -> Minibatch[Columns]:
        """Return the sequences with indices int64[M], one after the other."""
        found = self._samples.select(self._steps(index), moments)
        seen = found.observations
        seen = Observed(seen) if isinstance(seen, torch.Tensor) else seen
        seen = seen._replace(state=self._states[index], begins=self._begins[index])
        return found._replace(observations=seen)

    def sums(self, index: torch.Tensor) -> torch.Tensor | None:
        """Return the sums of what the loss of these sequences standardises; None if nothing."""
        return self._samples.sums(self._steps(index))

    def weight(self, index: torch.Tensor) -> torch.Tensor:
        """Return the sum of the weights of the steps of these sequences, a scalar float32."""
        return self._samples.weight(self._steps(index))

    def _steps(self, index: torch.Tensor) -> torch.Tensor:
        steps = index.unsqueeze(1) * self.row + torch.arange(self.row, device=index.device)
        return steps.flatten()


def in_sequences(
    samples: Samples[Columns], evaluated: Evaluated, ages: torch.Tensor, sequence: int
) -> Samples[Columns] | SequenceSamples[Columns]:
    """Return the samples, in sequences if the network that was evaluated is recurrent."""
    if evaluated.states is None:
        return samples
    return SequenceSamples(samples, evaluated.states, ages, sequence)
