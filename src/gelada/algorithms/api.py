"""What actors, learners and evaluations need of an algorithm. They know no concrete one.

A new algorithm is one file with a frozen dataclass that has these fields, properties and methods,
one line in `gelada.training.presets.ALGORITHMS`, and its presets (docs/extending.md).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch

from gelada.algorithms.exploration import Exploration, Player
from gelada.core.types import Aux, Batch
from gelada.nets.heads import Head
from gelada.nets.network import Network

TARGET = "target/"
"""What names of target parameters in ``aux`` begin with."""

Source = Literal["queue", "buffer"]
"""Where batches come from: a trajectory queue hands out each trajectory once, a replay buffer
samples windows of stored experience again and again."""

Topology = Literal["central", "workers", "apart"]
"""How actors, learners and parameter servers are arranged (docs/circle.md)."""

ActingPolicy = Literal["sampled", "epsilon"]
"""How a trained agent acts if nobody says: it draws from its probabilities, or takes the action
with the highest value except where it acts at random."""


class Prepared(Protocol):
    """A batch made ready for epochs of minibatches."""

    size: int
    """Samples in it."""
    priorities: torch.Tensor | None
    """float32[N], not negative, known after the loss: how much there is to learn from each window;
    None where experience is used once."""

    def select(self, index: torch.Tensor) -> Any:
        """Return the minibatch with these sample indices int64[M]."""


class Algorithm(Protocol):
    """How to act, and what to minimise. Fields are hyper-parameters; nothing in it changes."""

    @property
    def epochs(self) -> int:
        """How many times each sample of a batch is used."""

    @property
    def minibatch(self) -> int:
        """Samples for each gradient."""

    @property
    def gradient_clip(self) -> float:
        """Limit of the gradient's global norm."""

    @property
    def source(self) -> Source:
        """Where its batches come from."""

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """The topologies that it is tested in."""

    @property
    def evaluates_first(self) -> bool:
        """Whether `prepare` evaluates the whole batch with the network before the epochs."""

    @property
    def target_every(self) -> int:
        """Updates after which the target parameters change; 0: it has none."""

    @property
    def acting_heads(self) -> tuple[str, ...]:
        """Names of the heads that acting needs."""

    @property
    def acting_policy(self) -> ActingPolicy:
        """How a trained agent acts."""

    @property
    def last_epsilon(self) -> float:
        """Share of random actions at the end of training, for the acting policy epsilon."""

    def check(self, batch: int) -> None:
        """Raise GeladaError if the settings do not fit each other.

        Args:
            batch: samples in a batch.
        """

    def window(self, length: int) -> int:
        """Return the steps of the windows it learns from, if rollouts have ``length`` steps."""

    def learned(self, window: int) -> int:
        """Return how many steps of a window of so many steps are learned."""

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return new heads on a hidden layer of ``width`` units, those for acting first."""

    def start(self) -> Aux:
        """Return the learner's own state at the beginning."""

    def learning_rate(self, aux: Aux) -> float:
        """Return the learning rate now."""

    def exploration(self, player: Player) -> Exploration:
        """Return how an actor explores."""

    def act(
        self, net: Network, observations: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return scores of actions float32[B, A] and the recurrent state after this step.

        Args:
            net: an acting copy of the network, or the whole.
            observations: preprocessed, [B, K, H, W].
            state: recurrent state float32[B, S] of each game before the step; None: there is
                none. It begins as `Network.initial_state` and is 0 again after an episode.
        """

    def prepare(self, net: Network, batch: Batch, aux: Aux) -> Prepared:
        """Compute targets with the current network."""

    def loss(
        self, net: Network, minibatch: Any, aux: Aux
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to minimise, and named scalars about it."""

    def is_outlier(self, aux: Aux, loss: float) -> bool:
        """Return whether the gradient of a loss is to be dropped; change nothing."""

    def after(self, aux: Aux, values: dict[str, float], steps: int) -> None:
        """Update ``aux`` in place after a round.

        Args:
            aux: the learner's own state.
            values: means of the last epoch by name; empty where only the steps are known.
            steps: environment steps of the run.
        """
