"""The interface of an algorithm, as actors, learners and evaluations use it.

A new algorithm is one file with a frozen dataclass that has these fields, properties and methods,
one line in `gelada.experiment.settings.ALGORITHMS`, and its presets (docs/extending.md).

Schedules: numbers that change with the environment steps, or follow a KL divergence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import torch

from gelada.algorithms.exploration import Exploration, Player
from gelada.core.types import Aux, Batch
from gelada.nets.heads import Head
from gelada.nets.network import Network

TARGET = "target/"
"""Prefix of the names of target parameters in ``aux``."""

Source = Literal["queue", "buffer"]
"""Where batches come from: a trajectory queue hands out each trajectory once, a replay buffer
samples windows of stored experience many times."""

Topology = Literal["central", "replicas", "workers", "separate"]
"""How actors, learners and parameter servers are arranged (docs/circle.md)."""

ActingPolicy = Literal["sampled", "epsilon"]
"""How a trained agent acts by default: sampled draws actions from the policy, epsilon takes the
action with the highest value or, with probability epsilon, a random one."""


def target_parameters(aux: Aux) -> dict[str, torch.Tensor]:
    """Return the target parameters in an algorithm's state by name; {} if there are none."""
    return {k.removeprefix(TARGET): v for k, v in aux.items() if k.startswith(TARGET)}


def number(value: torch.Tensor) -> float | torch.Tensor:
    """Return a number of an algorithm's state, as a loss takes it.

    It is float64 in the memory of the host, and read. A learner that records CUDA graphs has a copy
    in float32 on its device, which must not be read, as the next replay is with another number.
    """
    return float(value) if value.dtype == torch.float64 else value


class Prepared(Protocol):
    """A batch that is ready for epochs of minibatches."""

    size: int
    """Rows in it."""
    row: int
    """Samples in a row: 1, or the steps of a sequence."""
    device: torch.device
    """Where it is, and its rows are to be."""
    priorities: torch.Tensor | None
    """float32[N] ≥ 0, the new priority of each window for a prioritized replay buffer, known after
    the loss; None if experience is used once."""

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

    def weight(self, index: torch.Tensor) -> torch.Tensor:
        """Return what the mean loss of these samples is divided by, such as their weights' sum.

        The gradients of several learners are averaged in proportion to it. It is a scalar float32.
        """


class Algorithm(Protocol):
    """How to act, and which loss to minimise. Fields are hyper-parameters and never change."""

    @property
    def epochs(self) -> int:
        """How many times each sample of a batch is used."""

    @property
    def minibatch(self) -> int:
        """Samples for each gradient; whole rows of them."""

    @property
    def gradient_clip(self) -> float:
        """Limit of the gradient's global norm."""

    @property
    def source(self) -> Source:
        """Whether its batches come from a trajectory queue or from a replay buffer."""

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """The topologies that it supports."""

    @property
    def evaluates_first(self) -> bool:
        """Whether targets take a forward pass of their own over the whole batch, which
        ``gelada bench`` counts."""

    @property
    def target_every(self) -> int:
        """Updates between copies of the parameters to the target network; 0: no target network."""

    @property
    def acting_heads(self) -> tuple[str, ...]:
        """Names of the heads that acting needs."""

    @property
    def acting_policy(self) -> ActingPolicy:
        """How a trained agent acts."""

    @property
    def last_epsilon(self) -> float:
        """Epsilon at the end of training, if the acting policy is epsilon."""

    def check(self, batch: int) -> None:
        """Raise GeladaError if the settings do not fit each other.

        Args:
            batch: samples in a batch.
        """

    def window(self, length: int) -> int:
        """Return the steps of a window that it learns from, for rollouts of ``length`` steps."""

    def learned(self, window: int) -> int:
        """Return how many of a window's ``window`` steps have a loss."""

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return new heads for a hidden layer of ``width`` units, the heads for acting first."""

    def start(self) -> Aux:
        """Return the algorithm's initial state, such as the learning rate."""

    def learning_rate(self, aux: Aux) -> float:
        """Return the current learning rate."""

    def exploration(self, player: Player) -> Exploration:
        """Return how an actor explores."""

    def act(
        self, net: Network, observations: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return action scores float32[B, A] (logits or values), and the next recurrent state.

        Args:
            net: the network, or the copy for acting (`Network.for_acting`).
            observations: preprocessed, [B, K, H, W].
            state: recurrent state float32[B, S] of the games before the step; None for a network
                without one. `Network.initial_state` is the first, and an episode's end sets it to
                0.
        """

    def prepare(self, net: Network, batch: Batch, aux: Aux) -> Prepared:
        """Preprocess a batch, and compute what is the same in all its epochs, such as targets."""

    def loss(
        self, net: Network, minibatch: Any, aux: Aux
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to minimise, and scalars to log by name."""

    def is_outlier(self, aux: Aux, loss: float) -> bool:
        """Return whether to drop the gradient of this loss. Does not change ``aux``."""

    def after(self, aux: Aux, values: dict[str, float], steps: int) -> None:
        """Update ``aux`` in place after a round.

        Args:
            aux: the algorithm's state.
            values: means of the scalars of `loss` over the last epoch, by name; empty where only
                the steps are known.
            steps: environment steps of the run.
        """


COEFFICIENT_LIMITS = (1e-4, 1e4)
"""Smallest and largest coefficient of a KL term that `followed` returns. Our choice: from 0 or
infinity the coefficient could never come back."""


def linear(start: float, end: float, steps: int, over: int) -> float:
    """Return a number that changes linearly from ``start`` to ``end`` with the steps.

    Args:
        start: value at 0 steps.
        end: value after ``over`` steps and later.
        steps: environment steps so far.
        over: environment steps of the change (0: the value is ``end`` after the first step).
    """
    done = min(steps / max(over, 1), 1.0)
    return start + done * (end - start)


def staircase(start: float, end: float, steps: int, over: int, stages: int) -> float:
    """Return a number that changes like `linear`, but in ``stages`` equal jumps.

    With one stage it is ``start`` before ``over`` steps and ``end`` from then on. With 0 stages it
    is `linear`.
    """
    if not stages:
        return linear(start, end, steps, over)
    done = math.floor(stages * min(steps / max(over, 1), 1.0)) / stages
    return start + done * (end - start)


def followed(coefficient: float, kl: float, target: float) -> float:
    """Return the next coefficient of a KL term, given the KL divergence that was measured.

    Schulman et al. 2017, section 4, with the numbers of RLlib: 1.5 times the coefficient if the
    divergence is above twice the target, half of it if it is below half the target.
    """
    if kl > 2.0 * target:
        coefficient *= 1.5
    elif kl < 0.5 * target:
        coefficient *= 0.5
    low, high = COEFFICIENT_LIMITS
    return min(max(coefficient, low), high)


Ends = Mapping[str, tuple[float, float | None]]
"""The start and the end of numbers by name. A number without an end is constant."""


def begun(ends: Ends) -> Aux:
    """Return the starts of the numbers that have an end, for an algorithm's own state."""
    return {
        name: torch.tensor(start, dtype=torch.float64)
        for name, (start, end) in ends.items()
        if end is not None
    }


def moved(aux: Aux, ends: Ends, steps: int, over: int) -> None:
    """Set the numbers of `begun` in an algorithm's state, linearly over ``over`` steps."""
    for name, (start, end) in ends.items():
        if end is not None:
            aux[name].fill_(linear(start, end, steps, over))


def current(aux: Aux, ends: Ends, name: str) -> float:
    """Return a number as it is now."""
    return float(aux[name]) if name in aux else ends[name][0]
