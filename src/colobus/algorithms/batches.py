"""Batches that are ready for learning: in minibatches of samples or sequences, or as a whole.

With a recurrent network a window of ``T`` steps is cut into sequences of ``S`` steps. The state
before each comes from the current network, which goes through the whole window when the batch is
prepared, beginning with the state that the actor had. The gradient goes back through the steps of
one sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn
from torch.func import functional_call

from colobus.algorithms.auxiliary import Ahead, Future
from colobus.core.types import Batch
from colobus.nets.network import Network, Observed
from colobus.nets.observations import Observations
from colobus.nets.recurrent import LSTM
from colobus.ops import returns
from colobus.ops.losses import weighted_sums

Columns = TypeVar("Columns", bound="tuple[torch.Tensor, ...]")


class Minibatch(NamedTuple, Generic[Columns]):
    """``M`` samples, as a loss takes them."""

    observations: torch.Tensor | Observed  # [M, K, H, W], preprocessed; what the network takes
    steps: Columns  # a NamedTuple of tensors [M]
    ahead: Ahead | None = None  # what followed the first of them, for a prediction
    moments: torch.Tensor | None = None  # float32[2], to standardise by instead of its own


class Prepared(ABC):
    """A batch that is ready for epochs of minibatches.

    Args:
        size: rows in it.
        device: where it is, and its rows are to be.
    """

    row = 1
    """Samples in a row: 1, or the steps of a sequence."""
    priorities: torch.Tensor | None = None
    """float32[N] ≥ 0, the new priority of each window for a prioritized replay buffer, known after
    the loss; None if experience is used once."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size, self.device = size, device

    @abstractmethod
    def select(self, index: torch.Tensor, moments: torch.Tensor | None = None) -> Any:
        """Return the minibatch of these rows, int64[M].

        Args:
            index: the rows.
            moments: float32[2], mean and deviation to standardise by, instead of the minibatch's.
        """

    def sums(self, index: torch.Tensor) -> torch.Tensor | None:
        """Return the sums float64[3] of what the loss of these samples standardises.

        They are those of the weights, of the weighted samples, and of their weighted squares. None
        if it standardises nothing. A group of learners adds them up and gives `select` the moments.
        """
        return None

    @abstractmethod
    def weight(self, index: torch.Tensor) -> torch.Tensor:
        """Return what the mean loss of these samples is divided by, such as their weights' sum.

        The gradients of several learners are averaged in proportion to it. It is a scalar float32.
        """


@dataclass(eq=False)
class Samples(Prepared, Generic[Columns]):
    """All ``N * T`` steps of a batch, to select minibatches of them or of sequences from."""

    observations: Observations  # the ``N * (T + 1)`` of the batch
    columns: Columns  # a NamedTuple of tensors [N * T], the data of the steps that the loss needs
    weights: torch.Tensor  # float32[N * T] of the steps in the loss
    future: Future | None = None  # what follows each step, for a prediction
    policies: int = 1  # separate ones of the network, for the agents whose windows are neighbours
    standardised: torch.Tensor | None = None
    """float32[N * T], what the loss standardises in each minibatch, if anything."""
    states: torch.Tensor | None = None
    """Of a recurrent network, float32[N * T / S, 2 * width], before each sequence of ``S`` steps; a
    row is then a sequence."""
    ages: torch.Tensor | None = None  # int64[N, T + 1], of the batch, with ``states``

    def __post_init__(self) -> None:
        self.row = 1 if self.states is None else len(self.weights) // len(self.states)
        super().__init__(len(self.weights) // self.row, self.weights.device)
        self._length = self.observations.shape[1] - 1  # steps of a window (T)
        self._starts: tuple[torch.Tensor, torch.Tensor] | None = None  # states, where games begin
        if self.states is not None and self.ages is not None:
            self._starts = self.states, (self.ages[:, :-1] == 0).reshape(self.size, self.row)

    def select(
        self, index: torch.Tensor, moments: torch.Tensor | None = None
    ) -> Minibatch[Columns]:
        """Return the rows with indices int64[M]; ``n * T + t`` is step t of window n.

        The steps of a sequence come one after the other.
        """
        steps = self._steps(index)
        window = steps // self._length
        picked = type(self.columns)(*(column[steps] for column in self.columns))
        ahead = None if self.future is None else self.future.select(steps)
        stacks = self.observations.pick(steps + window)  # a window has one more than steps
        agents = window % self.policies if self.policies > 1 else None
        seen: torch.Tensor | Observed = stacks
        if self._starts is not None:
            states, begins = self._starts
            seen = Observed(stacks, states[index], begins[index], agents)
        elif agents is not None:
            seen = Observed(stacks, agents=agents)
        return Minibatch(seen, picked, ahead, moments)

    def sums(self, index: torch.Tensor) -> torch.Tensor | None:
        """Return the sums of what the loss of these rows standardises; None if nothing."""
        if self.standardised is None:
            return None
        steps = self._steps(index)
        return weighted_sums(self.standardised[steps], self.weights[steps])

    def weight(self, index: torch.Tensor) -> torch.Tensor:
        """Return the sum of the weights of the steps of these rows, a scalar float32."""
        return self.weights[self._steps(index)].sum()

    def _steps(self, index: torch.Tensor) -> torch.Tensor:
        """Return the steps of rows."""
        if self.row == 1:
            return index
        steps = index.unsqueeze(1) * self.row + torch.arange(self.row, device=index.device)
        return steps.flatten()


@dataclass(eq=False)
class WholeBatch(Prepared):
    """A whole batch of ``N`` windows, which gives one gradient."""

    observations: Observations
    """Those that the loss evaluates. Without ``partial`` these are all ``N * (T + 1)``; with it the
    ``N`` first ones of the windows, then the ``N`` from which their n-step returns bootstrap."""
    batch: Batch  # the windows
    partial: returns.Partial | None = None
    """Sums of rewards and discounts for the n-step returns of the windows' first steps."""

    def __post_init__(self) -> None:
        actions = self.batch.actions
        size = actions.numel() if self.partial is None else len(actions)
        super().__init__(size, actions.device)

    def select(self, index: torch.Tensor, moments: torch.Tensor | None = None) -> WholeBatch:
        """Return the whole batch, as the order of its samples does not matter."""
        assert len(index) == self.size
        return self

    def weight(self, index: torch.Tensor) -> torch.Tensor:
        """Return the number of its steps in the loss mask, of n-step returns the first ones."""
        assert len(index) == self.size
        mask = self.batch.mask if self.partial is None else self.batch.mask[:, :1]
        return mask.sum(dtype=torch.float32)


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
        own: Sequence[torch.Tensor | None] = [None] * len(chunks)
        if net.policies > 1:
            window = torch.arange(windows, device=batch.ages.device).repeat_interleave(length)
            agents = window % net.policies
            own = torch.split(agents, size)
        if net.recurrent is None:
            pairs = zip(chunks, own, strict=True)
            parts = [net(x if its is None else Observed(x, agents=its)) for x, its in pairs]
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
