"""PQN: Q-learning from a vector of games, without a replay buffer and without a target network.

Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning" (arXiv:2407.04811), algorithm
1: lambda returns of Peng's Q(lambda), computed with the current network before the epochs of
minibatches, as in PPO. Layer normalisation of the network (``--layer-norm``) replaces the
target network, and many games at the same time replace the replay buffer. The paper's optimizer is
RAdam (``--optimizer radam``).

Distributions of values (`gelada.ops.distributions`), duelling heads (Wang et al. 2016) and
Munchausen (Vieillard et al. 2020) are settings that the paper does not have.

There are two differences from the authors' code. Only the hidden layer is normalised, not the
convolutions. The returns use the values of the learner's network at the time of learning, not of
the network that played the batch (actors are one round behind).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch

from gelada.algorithms.api import (
    ActingPolicy,
    Ends,
    Source,
    Topology,
    begun,
    current,
    linear,
    moved,
)
from gelada.algorithms.batches import Minibatch, Samples
from gelada.algorithms.exploration import Exploration, Player
from gelada.algorithms.greedy import epsilon_greedy, falling
from gelada.core.errors import GeladaError
from gelada.core.fields import POSITIVE, SHARE, OnlyWith, Range
from gelada.core.types import Aux, Batch
from gelada.nets.heads import Head, action_values
from gelada.nets.network import Network
from gelada.nets.observations import Observations
from gelada.ops import losses, returns
from gelada.ops.distributions import FORMS, Atoms, Values, means_of
from gelada.ops.returns import RewardClip


class Steps(NamedTuple):
    """Data of ``M`` steps that the loss needs."""

    actions: torch.Tensor  # int64[M]
    targets: torch.Tensor  # float32[M], lambda returns
    weights: torch.Tensor  # float32[M], 0 where the loss mask is 0


MUNCHAUSEN = OnlyWith("with --munchausen above 0", lambda pqn: pqn.munchausen > 0)


@dataclass(frozen=True)
class PQN:
    """Hyper-parameters and methods of PQN; the defaults are those of the paper for Atari."""

    gamma: Annotated[float, SHARE] = 0.99
    """Discount per step."""
    gamma_end: Annotated[float, SHARE] | None = None
    """Discount after anneal_steps, to which it changes linearly (none: it is constant)."""
    lam: Annotated[float, SHARE] = 0.65
    """Lambda of the returns (0: one-step returns; 1: returns to the end of the rollout)."""
    lam_end: Annotated[float, SHARE] | None = None
    """Lambda after anneal_steps, to which it changes linearly (none: it is constant)."""
    duelling: bool = False
    """Compute action values from separate layers for the state value and the advantages."""
    values: Values = "numbers"
    """What is learned for each action: the value, or a distribution as a histogram (HL-Gauss,
    Farebrother et al. 2024) or by quantiles (QR-DQN, Dabney et al. 2018), whose mean is the
    value."""
    atoms: Atoms = 51
    """Bins of a histogram of returns from -100 to 100, or number of quantiles."""
    munchausen: Annotated[float, SHARE] = 0.0
    """Weight of the scaled log-policy in each step's target (Vieillard et al. 2020: 0.9; 0:
    none)."""
    temperature: Annotated[float, POSITIVE, MUNCHAUSEN] = 0.03
    """Munchausen: temperature of the policy, a softmax of the action values."""
    reward_clip: RewardClip = "sign"
    """Rewards in the loss: their sign, or raw (none). Scores are always raw."""
    epochs: Annotated[int, Range(1, 100)] = 2
    """Times each sample is used."""
    minibatch: Annotated[int, Range(1)] = 128
    """Samples per gradient."""
    epsilon_start: Annotated[float, SHARE] = 1.0
    """Share of random actions at the start …"""
    epsilon_end: Annotated[float, SHARE] = 0.001
    """… and after epsilon_steps."""
    epsilon_steps: Annotated[int, Range(0)] = 5_000_000
    """Environment steps over which epsilon changes linearly."""
    longest_random: Annotated[int, Range(1, 10_000)] = 1
    """Most steps that a random action lasts (1: each lasts one step)."""
    gradient_clip: Annotated[float, POSITIVE] = 10.0
    """Limit of the gradient's global norm."""
    lr: Annotated[float, POSITIVE] = 2.5e-4
    """Learning rate at the start …"""
    lr_end: Annotated[float, POSITIVE] = 1e-20
    """… and after anneal_steps."""
    anneal_steps: Annotated[int, Range(0)] = 50_000_000
    """Environment steps over which the learning rate, and discount and lambda if they have an end,
    change linearly."""

    source: ClassVar[Source] = "queue"
    topologies: ClassVar[tuple[Topology, ...]] = ("central", "replicas")
    evaluates_first: ClassVar[bool] = True
    target_every: ClassVar[int] = 0
    acting_heads: ClassVar[tuple[str, ...]] = ("q",)
    acting_policy: ClassVar[ActingPolicy] = "epsilon"

    @property
    def last_epsilon(self) -> float:
        """Share of random actions at the end of training."""
        return self.epsilon_end

    def check(self, batch: int) -> None:
        """Raise GeladaError if --minibatch is above the batch."""
        if self.minibatch > batch:
            raise GeladaError(
                f"--minibatch {self.minibatch}: must not be above the batch of {batch} samples "
                "(actors x games x steps of a rollout); lower it or raise --length"
            )

    def window(self, length: int) -> int:
        """Return ``length``: it learns from whole rollouts."""
        return length

    def learned(self, window: int) -> int:
        """Return ``window``: all steps are learned."""
        return window

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return the head of action values."""
        atoms = 1 if self.values == "numbers" else self.atoms
        return {"q": action_values(width, actions, atoms, self.duelling)}

    def start(self) -> Aux:
        """Return the learning rate, and what else moves."""
        rate = torch.tensor(self.lr, dtype=torch.float64)
        return {"learning_rate": rate, **begun(self._ends)}

    def learning_rate(self, aux: Aux) -> float:
        """Return the current learning rate."""
        return float(aux["learning_rate"])

    def exploration(self, player: Player) -> Exploration:
        """Return epsilon-greedy exploration."""
        fall = (self.epsilon_start, self.epsilon_end, self.epsilon_steps)
        return epsilon_greedy(player, falling(*fall, player.games), self.longest_random)

    def act(
        self, net: Network, observations: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the action values float32[B, A]. The recurrent state is unchanged."""
        return means_of(self.values, net.heads["q"](net.features(observations))), state

    @torch.no_grad()
    def prepare(self, net: Network, batch: Batch, aux: Aux) -> Samples[Steps]:
        """Evaluate all observations with the current network and compute the lambda returns."""
        observations = Observations(net, batch.frames, batch.ages)
        chunks = observations.chunks(self.minibatch)
        values = torch.cat([means_of(self.values, net(stacks)["q"]) for stacks in chunks])
        scores = values.unflatten(0, observations.shape)  # [N, T + 1, A]
        best = scores.amax(dim=2)
        rewards = returns.clipped(batch.rewards, self.reward_clip)
        extra = torch.zeros_like(rewards)
        if self.munchausen:
            extra, best = returns.munchausen(scores, batch.actions, self.temperature)
        ends, now = (batch.terminated, batch.truncated), self._ends
        gamma, lam = current(aux, now, "gamma"), current(aux, now, "lam")
        targets = returns.q_lambda(rewards, best, *ends, gamma, lam)
        targets = targets + self.munchausen * extra  # not of later steps: see `munchausen`
        weights = batch.mask.float() * batch.weights.unsqueeze(1)
        steps = Steps(batch.actions.flatten(), targets.flatten(), weights.flatten())
        return Samples(observations, batch.actions.shape[1], steps, steps.weights)

    def loss(
        self,
        net: Network,
        minibatch: Minibatch[Steps],
        aux: Aux,  # noqa: ARG002 - the protocol
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the mean loss of the actions taken, and scalars to log.

        It is half the squared error of the value, or that of the value's distribution.
        """
        observations, steps, *_ = minibatch
        ignored = steps.weights == 0.0  # may hold infinities, and 0 times infinity is not 0
        targets = steps.targets.masked_fill(ignored, 0.0)
        taken = losses.chosen(net(observations)["q"], steps.actions)
        values = means_of(self.values, taken)
        if self.values == "numbers":
            total = losses.value_loss(values, targets, steps.weights)
        else:
            total = losses.mean_of(FORMS[self.values].losses(taken, targets), steps.weights)
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

    def is_outlier(self, aux: Aux, loss: float) -> bool:  # noqa: ARG002 - the protocol
        """Return False: no gradient is dropped for its loss."""
        return False

    def after(self, aux: Aux, values: dict[str, float], steps: int) -> None:  # noqa: ARG002 - the protocol
        """Set what changes with the environment steps so far."""
        aux["learning_rate"].fill_(linear(self.lr, self.lr_end, steps, self.anneal_steps))
        moved(aux, self._ends, steps, self.anneal_steps)

    @property
    def _ends(self) -> Ends:
        """What may change linearly besides the learning rate."""
        return {"gamma": (self.gamma, self.gamma_end), "lam": (self.lam, self.lam_end)}
