"""PQN: Q-learning from a vector of games, without a replay buffer and without a target network.

Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning" (arXiv:2407.04811), algorithm
1: lambda returns of Peng's Q(lambda), computed with the current network before the epochs of
minibatches, as in PPO. Layer normalisation of the network (``--layer-norm``) replaces the
target network, and many games at the same time replace the replay buffer. The paper's optimizer is
RAdam (``--optimizer radam``).

Distributions of values (`colobus.ops.distributions`), duelling heads (Wang et al. 2016) and
Munchausen (Vieillard et al. 2020) are settings that the paper does not have.

There are two differences from the authors' code. Only the hidden layer is normalised, not the
convolutions. The returns use the values of the learner's network at the time of learning, not of
the network that played the batch (actors are one round behind).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch

from colobus.algorithms.action_values import DistributionalValues
from colobus.algorithms.api import Ends, Terms, Topology
from colobus.algorithms.batches import Minibatch, Samples
from colobus.core.fields import POSITIVE, SHARE, OnlyWith, Range
from colobus.core.types import AlgorithmState, Batch
from colobus.nets.network import Network
from colobus.nets.observations import Observations
from colobus.ops import losses, returns
from colobus.ops.distributions import losses_of


class Steps(NamedTuple):
    """Data of ``M`` steps that the loss needs."""

    actions: torch.Tensor  # int64[M]
    targets: torch.Tensor  # float32[M], lambda returns
    weights: torch.Tensor  # float32[M], 0 where the loss mask is 0


MUNCHAUSEN = OnlyWith("with --munchausen above 0", lambda pqn: pqn.munchausen > 0)


@dataclass(frozen=True)
class PQN(DistributionalValues):
    """Hyper-parameters and methods of PQN; the defaults are those of the paper for Atari."""

    lam: Annotated[float, SHARE] = 0.65
    """Lambda of the returns (0: one-step returns; 1: returns to the end of the rollout)."""
    lam_end: Annotated[float, SHARE] | None = None
    """Lambda after anneal_steps, to which it changes linearly (none: it is constant)."""
    munchausen: Annotated[float, SHARE] = 0.0
    """Weight of the scaled log-policy in each step's target (Vieillard et al. 2020: 0.9; 0:
    none)."""
    temperature: Annotated[float, POSITIVE, MUNCHAUSEN] = 0.03
    """Munchausen: temperature of the policy, a softmax of the action values."""
    epochs: Annotated[int, Range(1, 100)] = 2
    """Times each sample is used."""
    minibatch: Annotated[int, Range(1)] = 128
    """Samples per gradient."""
    epsilon_end: Annotated[float, SHARE] = 0.001
    """… and after epsilon_steps."""
    epsilon_steps: Annotated[int, Range(0)] = 5_000_000
    """Environment steps over which epsilon changes linearly."""
    lr_end: Annotated[float, POSITIVE] = 1e-20
    """… and after anneal_steps."""
    anneal_steps: Annotated[int, Range(0)] = 50_000_000
    """Environment steps over which the learning rate, and discount and lambda if they have an end,
    change linearly."""

    topologies: ClassVar[tuple[Topology, ...]] = ("central", "replicas")
    evaluates_first: ClassVar[bool] = True

    @property
    def ends(self) -> Ends:
        """Learning rate, discount and lambda."""
        return {**super().ends, "lam": (self.lam, self.lam_end)}

    @torch.no_grad()
    def prepare(
        self, net: Network, batch: Batch, algorithm_state: AlgorithmState
    ) -> Samples[Steps]:
        """Evaluate all observations with the current network and compute the lambda returns."""
        observations = Observations(net, batch.frames, batch.ages)
        chunks = observations.chunks(self.minibatch)
        values = torch.cat([self.means(net(stacks)["q"]) for stacks in chunks])
        scores = losses.masked(values.unflatten(0, observations.shape), observations.allowed)
        best = scores.amax(dim=2)
        rewards = returns.clipped(batch.rewards, self.reward_clip)
        extra = torch.zeros_like(rewards)
        if self.munchausen:
            extra, best = returns.munchausen(scores, batch.actions, self.temperature)
        ends = (batch.terminated, batch.truncated)
        gamma, lam = self.now(algorithm_state, "gamma"), self.now(algorithm_state, "lam")
        targets = returns.q_lambda(rewards, best, *ends, gamma, lam)
        targets = targets + self.munchausen * extra  # not of later steps: see `munchausen`
        weights = batch.mask.float() * batch.weights.unsqueeze(1)
        steps = Steps(batch.actions.flatten(), targets.flatten(), weights.flatten())
        return Samples(observations, steps, steps.weights)

    def loss(
        self,
        net: Network,
        minibatch: Minibatch[Steps],
        algorithm_state: AlgorithmState,
        random: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, Terms]:
        """Return the mean loss of the actions taken, and scalars to log.

        It is half the squared error of the value, or that of the value's distribution.
        """
        observations, steps, *_ = minibatch
        ignored = steps.weights == 0.0  # may hold infinities, and 0 times infinity is not 0
        targets = steps.targets.masked_fill(ignored, 0.0)
        taken = losses.chosen(net(observations)["q"], steps.actions)
        values = self.means(taken)
        each = losses_of(self.values, taken, targets, self.limit)
        total = losses.mean_of(each, steps.weights)
        with torch.no_grad():
            errors = (targets - values.detach()).abs()
            terms = {
                "value_loss": total.detach(),
                "td_error": losses.mean_of(errors, steps.weights),
                "q": losses.mean_of(values.detach(), steps.weights),
                "explained_variance": losses.explained_variance(
                    values.detach(), targets, steps.weights
                ),
            }
        return total, terms
