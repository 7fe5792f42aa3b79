"""A3C: n-step advantage actor-critic, the algorithm of DBA3C's workers.

Mnih et al. 2016 (section 4, algorithm S3), batched as in DBA3C (Adamski et al. 2018): one gradient
per batch. One forward pass computes the policy, the values and the targets, which have no
gradient. docs/dba3c.md lists the differences from DBA3C's own code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from colobus.algorithms.api import Algorithm, Ends, Terms, Topology, jumping, jumps_of, number
from colobus.algorithms.batches import WholeBatch
from colobus.core.errors import ColobusError
from colobus.core.fields import POSITIVE, SHARE, OnlyWith, Range
from colobus.core.types import AlgorithmState, Batch
from colobus.nets.heads import Head, Linear
from colobus.nets.network import Network
from colobus.nets.observations import Observations
from colobus.ops import losses, returns
from colobus.ops.flat import Clipped, FlatParameters

GLOBAL = OnlyWith("without --tensor-clip", lambda algorithm: not algorithm.tensor_clip)

LINE = OnlyWith("without --lr-jumps", lambda algorithm: not algorithm.lr_jumps)

ENTROPY_LINE = OnlyWith("without --entropy-jumps", lambda algorithm: not algorithm.entropy_jumps)


@dataclass(frozen=True)
class A3C(Algorithm):
    """Hyper-parameters and methods of batched A3C."""

    gamma: Annotated[float, SHARE] = 0.99
    """Discount per step."""
    n: Annotated[int, Range(1, 65536)] = 5
    """Rewards in an n-step return, before it bootstraps from the value."""
    reward_clip: returns.RewardClip = "sign"
    """Rewards in the loss: their sign, or raw (none). Scores are always raw."""
    value_coefficient: Annotated[float, Range(0)] = 1.0
    """Weight of the value loss (half the squared error)."""
    entropy: Annotated[float, Range(0)] = 0.01
    """Weight of the policy's entropy at the start …"""
    entropy_end: Annotated[float, Range(0), ENTROPY_LINE] = 0.01
    """… and after anneal_steps."""
    ratio_clip: Annotated[float, Range(0)] = 0.0
    """Weigh actions by their probability now over when played, at most this (0: no weights)."""
    gradient_clip: Annotated[float, POSITIVE, GLOBAL] = 40.0
    """Limit of the gradient's global norm."""
    tensor_clip: Annotated[float, Range(0)] = 0.0
    """Limit of the norm of each parameter's gradient instead, divided by its number of elements (0:
    the global norm is limited)."""
    lr: Annotated[float, POSITIVE] = 1e-3
    """Learning rate at the start …"""
    lr_end: Annotated[float, POSITIVE, LINE] = 1e-3
    """… and after anneal_steps."""
    lr_jumps: str = ""
    """Learning rate from so many steps on, instead of a line: STEPS:VALUE,STEPS:VALUE, such as
    38.4M:0.0005,115.2M:0.0001."""
    entropy_jumps: str = ""
    """Weight of the entropy from so many steps on, in this form."""
    anneal_steps: Annotated[int, Range(0)] = 1_000_000
    """Environment steps over which learning rate and entropy weight change linearly."""
    anneal_share: Annotated[float, SHARE] = 0.0
    """Share of the run's --steps or --minutes after which anneal_steps are over, however many steps
    that takes; what changes faster or slower does so alike (0, or neither: steps of play)."""
    hold_after: Annotated[int, Range(0)] = 0
    """Steps without a reward after which half of an actor's games draw one random number per
    rollout instead of one per step (0: never)."""

    topologies: ClassVar[tuple[Topology, ...]] = ("workers",)

    @property
    def ends(self) -> Ends:
        """Learning rate and entropy weight."""
        return {
            "learning_rate": (self.lr, self.lr_end),
            "entropy": (self.entropy, self.entropy_end),
        }

    def check(self, batch: int) -> None:
        """Raise ColobusError for jumps that cannot be read, or would be stretched."""
        super().check(batch)
        for name, jumps in (("lr", self.lr_jumps), ("entropy", self.entropy_jumps)):
            if jumps and self.anneal_share:
                raise ColobusError(
                    f"--{name}-jumps {jumps} with --anneal-share {self.anneal_share:g}: jumps are "
                    "at steps of play, which the share would stretch; leave one of them out"
                )
            try:
                jumps_of(jumps)
            except ColobusError as error:
                raise ColobusError(f"--{name}-jumps {jumps}: {error}") from None

    def after(self, algorithm_state: AlgorithmState, values: dict[str, float], steps: int) -> None:
        """Move learning rate and entropy weight along their lines, or let them jump."""
        super().after(algorithm_state, values, steps)
        if self.lr_jumps:
            algorithm_state["learning_rate"].fill_(jumping(self.lr, self.lr_jumps, steps))
        if self.entropy_jumps:
            algorithm_state["entropy"].fill_(jumping(self.entropy, self.entropy_jumps, steps))

    def clip_gradient(self, flat: FlatParameters) -> Clipped:
        """Scale down a gradient that is too large, as a whole or tensor by tensor."""
        return (
            flat.clip_tensors(self.tensor_clip) if self.tensor_clip else super().clip_gradient(flat)
        )

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return the policy, which is nearly uniform at first, and the value."""
        return {"policy": Linear(width, actions, gain=0.01), "value": Linear(width, 1)}

    def prepare(self, net: Network, batch: Batch, algorithm_state: AlgorithmState) -> WholeBatch:
        """Preprocess and stack the frames; `loss` computes the targets."""
        return WholeBatch(Observations(net, batch.frames, batch.ages), batch)

    def loss(
        self,
        net: Network,
        minibatch: WholeBatch,
        algorithm_state: AlgorithmState,
        random: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, Terms]:
        """Return policy + value_coefficient * value - entropy weight * entropy, and scalars."""
        batch, shape = minibatch.batch, minibatch.observations.shape  # [N, T + 1]
        (stacks,) = minibatch.observations.chunks(self.minibatch)
        outputs = net(stacks)
        values = outputs["value"].view(shape)
        logits = outputs["policy"].view(*shape, -1)[:, :-1].flatten(0, 1)
        rewards = returns.clipped(batch.rewards, self.reward_clip)
        targets = returns.n_step(
            rewards, values.detach(), batch.terminated, batch.truncated, self.gamma, self.n
        )
        weights = (batch.mask.float() * batch.weights.unsqueeze(1)).flatten()
        ignored = weights == 0.0  # they may be infinite, and 0 times infinity is not 0
        targets = targets.flatten().masked_fill(ignored, 0.0)
        predicted = values[:, :-1].flatten()
        allowed = minibatch.observations.allowed[:, :-1].flatten(0, 1)
        log_policy = losses.log_softmax(logits, allowed)
        chosen = losses.chosen(log_policy, batch.actions.flatten())
        advantages = (targets - predicted.detach()).masked_fill(ignored, 0.0)
        log_ratios = losses.log_ratios(chosen.detach(), batch.log_probs.flatten(), ignored)
        if self.ratio_clip:
            advantages = advantages * log_ratios.exp().clamp(max=self.ratio_clip)
        policy_loss = losses.policy_gradient(chosen, advantages, weights)
        value_loss = losses.value_loss(predicted, targets, weights)
        entropy = losses.entropy(log_policy, weights)
        total = policy_loss + self.value_coefficient * value_loss
        total = total - number(algorithm_state["entropy"]) * entropy
        with torch.no_grad():
            explained = losses.explained_variance(predicted.detach(), targets, weights)
            terms = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "kl": losses.approximate_kl(log_ratios, weights * batch.independent_steps()),
                "advantage": losses.mean_of(advantages, weights),
                "value": losses.mean_of(predicted.detach(), weights),
                "explained_variance": explained,
            }
        return total, terms
