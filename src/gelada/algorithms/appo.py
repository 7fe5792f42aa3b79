"""APPO: PPO's clipped loss on V-trace or GAE advantages, with actors one round behind the learner.

IMPALA (Espeholt et al. 2018) with the surrogate of PPO (Schulman et al. 2017), after "Accelerating
Distributed Deep Reinforcement Learning" (RLDM 2019) and IMPACT (Luo et al. 2020). The ratio is
taken against the behaviour policy. The learning rate adapts to the measured KL divergence, so it
needs no schedule (docs/recipe.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch

from gelada.algorithms import auxiliary
from gelada.algorithms.api import ActingPolicy, Source, Topology
from gelada.algorithms.batches import Minibatch, Samples
from gelada.algorithms.exploration import Player, Sampled
from gelada.algorithms.schedules import linear
from gelada.algorithms.sequences import SequenceSamples, evaluate, in_sequences
from gelada.core.errors import GeladaError
from gelada.core.settings import POSITIVE, SHARE, OnlyWith, Range
from gelada.core.types import Aux, Batch
from gelada.nets.heads import Head, Linear
from gelada.nets.network import CODE, Network
from gelada.nets.observations import Observations
from gelada.ops import losses, returns


class Steps(NamedTuple):
    """Data of ``M`` steps that the loss needs."""

    actions: torch.Tensor  # int64[M]
    log_probs: torch.Tensor  # float32[M], of the behaviour policy
    advantages: torch.Tensor  # float32[M]
    targets: torch.Tensor  # float32[M]
    weights: torch.Tensor  # float32[M], 0 where the loss mask is 0
    independent: torch.Tensor  # float32[M], 1 where the action was an independent draw


VTRACE = OnlyWith("with --advantage vtrace", lambda appo: appo.advantage == "vtrace")
ADJUSTED = OnlyWith("with --kl-adjust above 1", lambda appo: appo.kl_adjust > 1.0)


@dataclass(frozen=True)
class APPO:
    """Hyper-parameters and methods of APPO."""

    gamma: Annotated[float, SHARE] = 0.99
    """Discount per step."""
    advantage: Literal["gae", "vtrace"] = "gae"
    """How advantages are estimated. Even on-policy vtrace differs from gae, as its lambda
    scales only the traces (Espeholt et al. 2018, section 4.2)."""
    lam: Annotated[float, SHARE] = 0.95
    """Lambda of GAE or of V-trace's traces."""
    rho_bar: Annotated[float, POSITIVE, VTRACE] = 1.0
    """V-trace: upper limit of the importance ratio in the temporal differences."""
    c_bar: Annotated[float, POSITIVE, VTRACE] = 1.0
    """V-trace: upper limit of the importance ratio in the traces."""
    reward_clip: returns.RewardClip = "sign"
    """Rewards in the loss: their sign, or raw (none). Scores are always raw."""
    clip: Annotated[float, POSITIVE] = 0.2
    """PPO: the ratio of target to behaviour policy is clipped to 1 - clip … 1 + clip."""
    epochs: Annotated[int, Range(1, 100)] = 3
    """Times each sample is used."""
    minibatch: Annotated[int, Range(1)] = 256
    """Samples per gradient."""
    sequence: Annotated[int, Range(1)] = 16
    """Steps of a sequence, through which the gradient of a recurrent network goes back."""
    normalise: bool = True
    """Standardise advantages in each minibatch."""
    value_coefficient: Annotated[float, Range(0)] = 1.0
    """Weight of the value loss (half the squared error)."""
    entropy: Annotated[float, Range(0)] = 0.005
    """Weight of the policy's entropy at the start …"""
    entropy_end: Annotated[float, Range(0)] = 0.002
    """… and after anneal_steps."""
    gradient_clip: Annotated[float, POSITIVE] = 1.0
    """Limit of the gradient's global norm."""
    lr: Annotated[float, POSITIVE] = 2e-3
    """Learning rate at the start. Later it adapts to the KL divergence."""
    lr_min: Annotated[float, Range(0)] = 5e-5
    """Lower limit of the learning rate."""
    lr_max: Annotated[float, POSITIVE] = 4e-3
    """Upper limit of the learning rate."""
    kl: Annotated[float, POSITIVE, ADJUSTED] = 0.06
    """Target of the KL divergence per round at the start …"""
    kl_end: Annotated[float, POSITIVE, ADJUSTED] = 0.01
    """… and after anneal_steps."""
    kl_slack: Annotated[float, Range(1), ADJUSTED] = 1.3
    """The learning rate changes if the KL divergence is off target by more than this factor …"""
    kl_adjust: Annotated[float, Range(1)] = 1.1
    """… and then by this factor (1: the learning rate is constant)."""
    anneal_steps: Annotated[int, Range(0)] = 300_000
    """Environment steps over which entropy weight and KL target change linearly."""
    hold_after: Annotated[int, Range(0)] = 0
    """Steps without a reward after which half of an actor's games draw one random number per
    rollout instead of one per step (0: never)."""

    source: ClassVar[Source] = "queue"
    topologies: ClassVar[tuple[Topology, ...]] = ("central",)
    evaluates_first: ClassVar[bool] = True
    target_every: ClassVar[int] = 0
    acting_heads: ClassVar[tuple[str, ...]] = ("policy",)
    acting_policy: ClassVar[ActingPolicy] = "sampled"
    last_epsilon: ClassVar[float] = 0.0

    def check(self, batch: int) -> None:
        """Raise GeladaError if --lr is outside its limits or --minibatch is above the batch."""
        if self.lr > self.lr_max:
            raise GeladaError(
                f"--lr {self.lr:g}: must not be above --lr-max {self.lr_max:g}; raise that too"
            )
        if self.lr < self.lr_min:
            raise GeladaError(
                f"--lr {self.lr:g}: must not be below --lr-min {self.lr_min:g}; lower that too"
            )
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
        """Return the policy, which is nearly uniform at first, and the value."""
        return {"policy": Linear(width, actions, gain=0.01), "value": Linear(width, 1)}

    def start(self) -> Aux:
        """Return the initial learning rate, entropy weight and KL target."""
        return {
            "learning_rate": torch.tensor(self.lr, dtype=torch.float64),
            "entropy": torch.tensor(self.entropy, dtype=torch.float64),
            "kl_target": torch.tensor(self.kl, dtype=torch.float64),
        }

    def learning_rate(self, aux: Aux) -> float:
        """Return the current learning rate."""
        return float(aux["learning_rate"])

    def exploration(self, player: Player) -> Sampled:
        """Draw actions from the policy."""
        return Sampled(player, self.hold_after)

    def act(
        self, net: Network, observations: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the policy's logits float32[B, A], and the next recurrent state."""
        hidden, after = net.step(observations, state)
        return net.outputs(hidden)["policy"], after

    @torch.no_grad()
    def prepare(
        self,
        net: Network,
        batch: Batch,
        aux: Aux,  # noqa: ARG002 - the protocol
    ) -> Samples[Steps] | SequenceSamples[Steps]:
        """Evaluate all observations with the current network and compute the targets."""
        observations = Observations(net, batch.frames, batch.ages)
        evaluated = evaluate(net, observations, batch, self.minibatch, self.sequence)
        outputs, shape = evaluated.outputs, observations.shape
        values = outputs["value"].view(shape)
        rewards = returns.clipped(batch.rewards, self.reward_clip)
        ends = (batch.terminated, batch.truncated)
        if self.advantage == "gae":
            computed = returns.gae(rewards, values, *ends, self.gamma, self.lam)
        else:
            logits = outputs["policy"].view(*shape, -1)[:, :-1]
            now = losses.chosen(losses.log_softmax(logits).flatten(0, 1), batch.actions.flatten())
            ratios = now.view_as(batch.log_probs) - batch.log_probs
            computed = returns.vtrace(
                rewards, values, *ends, ratios, self.gamma, self.lam, self.rho_bar, self.c_bar
            )
        steps = Steps(
            batch.actions.flatten(),
            batch.log_probs.flatten(),
            computed.advantages.flatten(),
            computed.targets.flatten(),
            (batch.mask.float() * batch.weights.unsqueeze(1)).flatten(),
            batch.independent_steps(),
        )
        future = auxiliary.future(net, batch, outputs.get(CODE))
        samples = Samples(observations, batch.actions.shape[1], steps, future, net.policies)
        return in_sequences(samples, evaluated, batch.ages, self.sequence)

    def loss(
        self, net: Network, minibatch: Minibatch[Steps], aux: Aux
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return policy + value_coefficient * value - entropy weight * entropy, and scalars."""
        observations, steps, ahead = minibatch
        weights = steps.weights
        outputs = net(observations)
        log_policy = losses.log_softmax(outputs["policy"])
        ignored = weights == 0.0  # they may be infinite, and 0 times infinity is not 0
        now = losses.chosen(log_policy, steps.actions)
        log_ratios = losses.log_ratios(now, steps.log_probs, ignored)
        advantages = steps.advantages.masked_fill(ignored, 0.0)
        targets = steps.targets.masked_fill(ignored, 0.0)
        if self.normalise:
            advantages = losses.standardise(advantages, weights)
        ratios = log_ratios.exp()
        policy_loss = losses.clipped_surrogate(ratios, advantages, self.clip, weights)
        values = outputs["value"].squeeze(1)
        value = losses.value_loss(values, targets, weights)
        entropy = losses.entropy(log_policy, weights)
        total = policy_loss + self.value_coefficient * value - float(aux["entropy"]) * entropy
        with torch.no_grad():
            outside = ((ratios - 1.0).abs() > self.clip).float()
            terms = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value.detach(),
                "entropy": entropy.detach(),
                "kl": losses.approximate_kl(log_ratios.detach(), weights * steps.independent),
                "clipped": losses.mean_of(outside, weights),
                "explained_variance": losses.explained_variance(values.detach(), targets, weights),
            }
        if CODE in outputs:
            extra, found = auxiliary.loss(net, outputs[CODE], observations, ahead, weights)
            total, terms = total + extra, terms | found
        return total, terms

    def is_outlier(self, aux: Aux, loss: float) -> bool:  # noqa: ARG002 - the protocol
        """Return False: no gradient is dropped for its loss."""
        return False

    def after(self, aux: Aux, values: dict[str, float], steps: int) -> None:
        """Adapt the learning rate to the KL divergence, and set what depends on the steps."""
        kl, target = values["kl"], float(aux["kl_target"])
        rate = aux["learning_rate"]
        if kl < target / self.kl_slack:
            rate.mul_(self.kl_adjust)
        elif kl > target * self.kl_slack:
            rate.div_(self.kl_adjust)
        rate.clamp_(self.lr_min, self.lr_max)
        over = self.anneal_steps
        aux["entropy"].fill_(linear(self.entropy, self.entropy_end, steps, over))
        aux["kl_target"].fill_(linear(self.kl, self.kl_end, steps, over))
