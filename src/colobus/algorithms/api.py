"""The interface of an algorithm, as actors, learners and evaluations use it, and its schedules.

A new algorithm is one file with a frozen dataclass that inherits from `Algorithm`, one line in
`colobus.experiment.settings.ALGORITHMS`, and its presets (docs/extending.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch

from colobus.algorithms.batches import Prepared as Prepared  # part of the interface
from colobus.algorithms.exploration import Exploration, Player, Sampled
from colobus.core.errors import ColobusError
from colobus.core.fields import whole
from colobus.core.types import AlgorithmState, Batch
from colobus.nets.config import Autoencoder
from colobus.nets.heads import Head
from colobus.nets.network import Network
from colobus.ops import losses
from colobus.ops.flat import Clipped, FlatParameters

LEARNING_RATE = "learning_rate"
"""Name of the learning rate in an algorithm's state: the only place where it is kept."""

TARGET = "target/"
"""Prefix of the names of target parameters in ``algorithm_state``."""

WHOLE_BATCH = 2**31
"""A size of minibatches that no batch reaches."""

Source = Literal["queue", "buffer"]
"""Where batches come from: a trajectory queue hands out each trajectory once, a replay buffer
samples windows of stored experience many times."""

Topology = Literal["central", "replicas", "workers", "separate"]
"""How actors, learners and parameter servers are arranged (docs/circle.md)."""

ActingPolicy = Literal["sampled", "epsilon"]
"""How a trained agent acts by default: sampled draws actions from the policy, epsilon takes the
action with the highest value or, with probability epsilon, a random one."""

Ends = Mapping[str, tuple[float, float | None]]
"""The start and the end of numbers by name. A number without an end is constant."""

Terms = dict[str, torch.Tensor]
"""Scalars to log by name."""

Scores = tuple[torch.Tensor, torch.Tensor | None]
"""Scores of the actions float32[B, A], and the next recurrent state float32[B, S] if there is
one, both on the network's device."""


def target_parameters(algorithm_state: AlgorithmState) -> dict[str, torch.Tensor]:
    """Return the target parameters in an algorithm's state by name; {} if there are none."""
    return {k.removeprefix(TARGET): v for k, v in algorithm_state.items() if k.startswith(TARGET)}


def number(value: torch.Tensor) -> float | torch.Tensor:
    """Return a number of an algorithm's state, as a loss takes it.

    It is float64 in the memory of the host, and read. A learner that records CUDA graphs has a copy
    in float32 on its device, which must not be read, as the next replay is with another number.
    """
    return float(value) if value.dtype == torch.float64 else value


class Algorithm(ABC):
    """How to act, and which loss to minimise.

    A subclass is a frozen dataclass: its fields are hyper-parameters and never change. What is an
    attribute or a property here may be a field there. What a method has no default for, each
    algorithm says itself.
    """

    source: ClassVar[Source] = "queue"
    """Whether its batches come from a trajectory queue or from a replay buffer."""
    topologies: ClassVar[tuple[Topology, ...]] = ("central",)
    """The topologies that it supports."""
    acting_heads: ClassVar[tuple[str, ...]] = ("policy",)
    """Names of the heads that acting needs."""
    acting_policy: ClassVar[ActingPolicy] = "sampled"
    """How a trained agent acts."""
    autoencoders: ClassVar[tuple[Autoencoder, ...]] = ()
    """The forms of an autoencoder that it has a loss for."""
    learns_sequences: ClassVar[bool] = False
    """Whether it learns with a recurrent network, from ``sequence`` steps at a time, and with
    separate policies of a game's agents."""
    epochs: int = 1
    """How many times each sample of a batch is used."""
    minibatch: int = WHOLE_BATCH
    """Samples for each gradient; whole rows of them."""
    target_every: int = 0
    """Updates between changes of the target network; 0: no target network."""
    target_tau: float = 1.0
    """Share of the parameters in the target network after a change; the rest is what was there
    before. 1: a copy."""
    hold_after: int = 0
    """Steps of an actor without a reward after which half of its games repeat actions; 0:
    never."""
    anneal_steps: int = 0
    """Environment steps over which the numbers of `ends` change."""
    anneal_share: float = 0.0
    """Share of the run's budget after which ``anneal_steps`` are over; 0: they are steps."""

    @property
    @abstractmethod
    def gradient_clip(self) -> float:
        """Limit of the gradient's global norm."""

    @property
    def evaluates_first(self) -> bool:
        """Whether targets take a forward pass of their own over the whole batch, which
        ``colobus bench`` counts."""
        return self.target_every > 0

    @property
    def last_epsilon(self) -> float:
        """Epsilon at the end of training, if the acting policy is epsilon."""
        return 0.0

    @property
    def drops_outliers(self) -> bool:
        """Whether it may drop a gradient for its loss (`is_outlier`)."""
        return False

    @property
    def fits_cuda_graph(self) -> bool:
        """Whether a CUDA graph may hold its loss. A graph has the numbers of its recording for
        ever: random ones, and those of the state that the loss does not take as tensors."""
        return True

    @property
    def ends(self) -> Ends:
        """The learning rate and other numbers that change linearly (`horizon`)."""
        return {}

    def horizon(self, name: str) -> int:
        """Return the environment steps over which a number of `ends` changes.

        They are those of a setting ``<name>_steps`` where there is one above 0, else all the same.
        """
        return int(getattr(self, f"{name}_steps", 0)) or self.anneal_steps

    def check(self, batch: int) -> None:
        """Raise ColobusError if the settings do not fit each other.

        Args:
            batch: samples in a batch.
        """
        if batch < self.minibatch < WHOLE_BATCH:
            raise ColobusError(
                f"--minibatch {self.minibatch}: must not be above the batch of {batch} samples; "
                "lower it, or raise --length, --games or, if it is given, --batch"
            )

    def check_autoencoder(self, form: Autoencoder) -> None:
        """Raise ColobusError if it has no loss for a form of an autoencoder."""
        if form != "off" and form not in self.autoencoders:
            raise ColobusError(
                f"--autoencoder {form} with {type(self).__name__}: only APPO has a loss for it"
                f"{', and DQN for predict' if form == 'predict' else ''}; leave it out, or take a "
                "preset with APPO, such as ppo-pong"
            )

    def window(self, length: int) -> int:
        """Return the steps of a window that it learns from, for rollouts of ``length`` steps."""
        return length

    def learned(self, window: int) -> int:
        """Return how many of a window's ``window`` steps have a loss."""
        return window

    @abstractmethod
    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return new heads for a hidden layer of ``width`` units, the heads for acting first."""

    def clip_gradient(self, flat: FlatParameters) -> Clipped:
        """Scale down a gradient that is too large."""
        return flat.clip(self.gradient_clip)

    def rate_scale(self, name: str) -> float:
        """Return by what the learning rate is multiplied for a parameter of the network."""
        return 1.0

    def start(self) -> AlgorithmState:
        """Return the algorithm's initial state, with the learning rate."""
        return {
            name: torch.tensor(start, dtype=torch.float64)
            for name, (start, end) in self.ends.items()
            if end is not None or name == LEARNING_RATE
        }

    def now(self, algorithm_state: AlgorithmState, name: str) -> float:
        """Return a number of `ends` as it is now."""
        return float(algorithm_state[name]) if name in algorithm_state else self.ends[name][0]

    def exploration(self, player: Player) -> Exploration:
        """Return how an actor explores; by default it draws actions from the policy."""
        return Sampled(player, self.hold_after)

    def act(self, net: Network, observations: torch.Tensor, state: torch.Tensor | None) -> Scores:
        """Return action scores float32[B, A] (logits or values), and the next recurrent state.

        By default the scores are the output of the first head for acting.

        Args:
            net: the network, or the copy for acting (`Network.for_acting`).
            observations: preprocessed, [B, K, H, W].
            state: recurrent state float32[B, S] of the games before the step; None for a network
                without one. `Network.initial_state` is the first, and an episode's end sets it to
                0.
        """
        hidden, after = net.step(observations, state)
        return net.outputs(hidden)[self.acting_heads[0]], after

    def scores(self, net: Network, stacks: torch.Tensor, state: torch.Tensor | None) -> Scores:
        """Return what `act` does, for stacks with masks: low for actions that are not allowed."""
        seen, allowed = net.apart(stacks)
        scores, after = self.act(net, seen, state)
        return losses.masked(scores, allowed), after

    @abstractmethod
    def prepare(self, net: Network, batch: Batch, algorithm_state: AlgorithmState) -> Prepared:
        """Preprocess a batch, and compute what is the same in all its epochs, such as targets.

        Args:
            net: the network that learns.
            batch: windows, on its device.
            algorithm_state: the algorithm's state.
        """

    @abstractmethod
    def loss(
        self,
        net: Network,
        minibatch: Any,
        algorithm_state: AlgorithmState,
        random: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, Terms]:
        """Return the loss to minimise, and scalars to log by name.

        Args:
            net: the network that learns.
            minibatch: of a batch that `prepare` returned.
            algorithm_state: the algorithm's state.
            random: generator in the memory of the host of all random numbers, so that a seed
                repeats a run (None: that of torch).
        """

    def is_outlier(self, algorithm_state: AlgorithmState, loss: float) -> bool:
        """Return whether to drop the gradient of this loss. Does not change ``algorithm_state``."""
        return False

    def after(self, algorithm_state: AlgorithmState, values: dict[str, float], steps: int) -> None:
        """Update ``algorithm_state`` in place after a round.

        Args:
            algorithm_state: the algorithm's state.
            values: means of the scalars of `loss` over the last epoch, by name; empty where only
                the steps are known.
            steps: environment steps of the run.
        """
        for name, (start, end) in self.ends.items():
            if end is not None:
                algorithm_state[name].fill_(linear(start, end, steps, self.horizon(name)))


COEFFICIENT_LIMITS = (1e-4, 1e4)
"""Smallest and largest coefficient of a KL term that `followed` returns. Our choice: from 0 or
infinity the coefficient could never come back."""


def linear(start: float, end: float, steps: int, over: int, stages: int = 0) -> float:
    """Return a number that changes linearly from ``start`` to ``end`` with the steps.

    Args:
        start: value at 0 steps.
        end: value after ``over`` steps and later.
        steps: environment steps so far.
        over: environment steps of the change (0: the value is ``end`` after the first step).
        stages: equal jumps in which it changes instead; with one it is ``start`` before ``over``
            steps and ``end`` from then on (0: none).
    """
    done = min(steps / max(over, 1), 1.0)
    if stages:
        done = math.floor(stages * done) / stages
    return start + done * (end - start)


def jumping(start: float, jumps: str, steps: int) -> float:
    """Return a number that is constant but for jumps, as `jumps_of` reads them."""
    reached = [value for at, value in jumps_of(jumps) if at <= steps]
    return reached[-1] if reached else start


def jumps_of(text: str) -> list[tuple[int, float]]:
    """Return the steps and values of ``STEPS:VALUE,STEPS:VALUE``: from so many steps on it is so.

    Raises:
        ColobusError: if a part is something else, or steps do not rise.
    """
    found: list[tuple[int, float]] = []
    for part in filter(None, text.split(",")):
        at, _, value = part.partition(":")
        try:
            jump = whole(at), float(value)
        except ValueError:
            raise ColobusError(f"{part!r}: want STEPS:VALUE, such as 20M:0.0005") from None
        if not (math.isfinite(jump[1]) and jump[1] >= 0.0):
            raise ColobusError(f"{part!r}: the value must be a finite number, at least 0")
        if found and jump[0] <= found[-1][0]:
            raise ColobusError(f"{part!r}: its steps must be above those of the jump before")
        found.append(jump)
    return found


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
