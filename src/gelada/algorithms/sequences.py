"""Learning with a recurrent network: what it says of a batch, and minibatches of sequences.

A window of ``T`` steps is cut into sequences of ``S`` steps. The state before each comes from the
current network, which goes through the whole window when the batch is prepared, beginning with the
state that the actor had. The gradient goes back through the steps of one sequence.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

import torch

from gelada.algorithms.batches import Columns, Minibatch, Samples
from gelada.core.types import Batch
from gelada.nets.network import Network
from gelada.nets.observations import Observations
from gelada.nets.recurrent import Sequences


class Evaluated(NamedTuple):
    """What a network says of the ``N * (T + 1)`` observations of a batch."""

    outputs: dict[str, torch.Tensor]  # by head, float32[N * (T + 1), n]
    states: torch.Tensor | None  # float32[N * T / S, 2 * width]: before each sequence


@torch.no_grad()
def evaluate(
    net: Network, observations: Observations, batch: Batch, size: int, sequence: int
) -> Evaluated:
    """Evaluate all observations of a batch.

    Args:
        net: the network, recurrent or not.
        observations: of the batch.
        batch: says where games begin, and the state at the start of each window.
        size: observations that the torso takes at once.
        sequence: steps of a sequence (S), of which T is a multiple.
    """
    chunks = observations.chunks(size)
    recurrent = net.recurrent
    if recurrent is None:
        parts = [net(stacks) for stacks in chunks]
        return Evaluated({name: torch.cat([p[name] for p in parts]) for name in parts[0]}, None)
    windows, length = observations.shape
    inputs = torch.cat([net.features(stacks) for stacks in chunks]).view(windows, length, -1)
    begins, state = batch.ages == 0, batch.state
    states, hidden = [], []
    for first in range(0, length, sequence):
        part = slice(first, first + sequence)
        states.append(state)
        outputs, state = recurrent.unroll(inputs[:, part], state, begins[:, part])
        hidden.append(outputs)
    starts = torch.stack(states[:-1], dim=1).flatten(0, 1)  # the last is of observation T alone
    return Evaluated(net.outputs(torch.cat(hidden, dim=1).flatten(0, 1)), starts)


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
        self._samples, self._states = samples, states
        self._begins = (ages[:, :-1] == 0).reshape(self.size, sequence)

    def select(self, index: torch.Tensor) -> Minibatch[Columns]:
        """Return the sequences with indices int64[M], one after the other."""
        steps = index.unsqueeze(1) * self.row + torch.arange(self.row, device=index.device)
        found = self._samples.select(steps.flatten())
        assert isinstance(found.observations, torch.Tensor)
        sequences = Sequences(found.observations, self._states[index], self._begins[index])
        return found._replace(observations=sequences)


def in_sequences(
    samples: Samples[Columns], evaluated: Evaluated, ages: torch.Tensor, sequence: int
) -> Samples[Columns] | SequenceSamples[Columns]:
    """Return the samples, in sequences if the network that was evaluated is recurrent."""
    if evaluated.states is None:
        return samples
    return SequenceSamples(samples, evaluated.states, ages, sequence)
