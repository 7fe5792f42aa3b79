"""What a learner and an actor need of an algorithm. They know no concrete one."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from gelada.core.types import Aux, Batch
from gelada.nets.network import Network

TARGET = "target/"
"""What names of target parameters in ``aux`` begin with."""


class Explore(NamedTuple):
    """Who explores, and when: what an actor knows that may decide how much it explores."""

    actor: int = 0  # index among all actors of the run
    actors: int = 1  # in the run
    steps: int = 0  # environment steps of the run so far, as far as the actor knows


class Prepared(Protocol):
    """A batch made ready for passes of minibatches.

    After its loss `priorities` says how much there is to learn from each window; None where
    experience is used once.
    """

    size: int  # samples in it
    priorities: torch.Tensor | None  # float32[N], not negative

    def select(self, index: torch.Tensor) -> Any:
        """Return the minibatch with these sample indices int64[M]."""


class Algorithm(Protocol):
    """How to act, and what to minimise."""

    @property
    def epochs(self) -> int:
        """How many times each sample of a batch is used."""

    @property
    def minibatch(self) -> int:
        """Samples per gradient."""

    @property
    def values_first(self) -> bool:
        """Whether targets take a look at the whole batch with the network before the passes."""

    @property
    def stochastic(self) -> bool:
        """Whether its policy draws actions; else it takes the best, except where it explores."""

    @property
    def reuses(self) -> bool:
        """Whether it learns from each step again and again, out of an experience store."""

    @property
    def target_every(self) -> int:
        """Updates after which the target parameters change; 0 without any."""

    @property
    def gradient_clip(self) -> float:
        """Limit of the gradient's global norm."""

    def heads(self, actions: int) -> dict[str, int]:
        """Return the network outputs needed, by name."""

    def start(self) -> Aux:
        """Return the learner's own state at the beginning."""

    def learning_rate(self, aux: Aux) -> float:
        """Return the learning rate now."""

    def noise(
        self, shape: tuple[int, ...], generator: torch.Generator, explore: Explore
    ) -> torch.Tensor:
        """Return the randomness for actions; ``shape`` ends in games and actions, […, B, A]."""

    def act(
        self, net: Network, stacks: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions int64[B] and scores float32[B, A] for seen stacks and noise [B, A]."""

    def log_probs(self, scores: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return log mu(a|x) [M] of actions [M] drawn at scores [M, A]."""

    def prepare(self, net: Network, batch: Batch, aux: Aux) -> Prepared:
        """Compute targets with the current network."""

    def loss(
        self, net: Network, minibatch: Any, aux: Aux
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to minimise, and named scalars about it."""

    def is_outlier(self, aux: Aux, loss: float) -> bool:
        """Say whether the gradient of a loss is to be dropped; changes nothing."""

    def after(self, aux: Aux, values: dict[str, float], steps: int) -> None:
        """Update ``aux`` in place after a round; ``values`` are the means of its last pass."""
