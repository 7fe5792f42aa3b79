"""APPO: PPO's clipped loss on V-trace or GAE advantages, with actors that are a round behind.

IMPALA (Espeholt et al. 2018) with the surrogate of PPO (Schulman et al. 2017), after "Accelerating
Distributed Deep Reinforcement Learning" (RLDM 2019) and IMPACT (Luo et al. 2020). The ratio is
taken against the behaviour policy. The learning rate follows the measured KL divergence, which
replaces a hand-made schedule: docs/recipe.md says how it was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch

from gelada.algorithms import exploration as acting
from gelada.algorithms.api import Explore
from gelada.core.settings import POSITIVE, SHARE, OnlyWith, Range
from gelada.core.types import Aux, Batch
from gelada.nets.network import Network
from gelada.nets.observations import Windows
from gelada.ops import losses, returns


class Minibatch(NamedTuple):
    """``M`` samples ready for the loss."""

    stacks: torch.Tensor  # [M, K, H, W], seen
    actions: torch.Tensor  # int64[M]
    log_probs: torch.Tensor  # float32[M], behaviour
    advantages: torch.Tensor  # float32[M]
    targets: torch.Tensor  # float32[M]
    weights: torch.Tensor  # float32[M], 0 where a step does not count


class Samples:
    """All ``N * T`` steps of a batch with their targets."""

    priorities: torch.Tensor | None = None  # experience is used once

    def __init__(self, windows: Windows, batch: Batch, computed: returns.Advantages) -> None:
        self.size = batch.actions.numel()
        self._windows = windows
        self._steps = batch.actions.shape[1]
        self._actions = batch.actions.flatten()
        self._log_probs = batch.log_probs.flatten()
        self._advantages = computed.advantages.flatten()
        self._targets = computed.targets.flatten()
        self._weights = (batch.mask.float() * batch.weights.unsqueeze(1)).flatten()

    def select(self, index: torch.Tensor) -> Minibatch:
        """Return the samples with indices int64[M]; ``n * T + t`` is step t of window n."""
        observation = index + index // self._steps  # a window has one observation more than steps
        return Minibatch(
            self._windows.stacks(observation),
            self._actions[index],
            self._log_probs[index],
            self._advantages[index],
            self._targets[index],
            self._weights[index],
        )


VTRACE = OnlyWith("with --advantage vtrace", lambda appo: appo.advantage == "vtrace")
ADJUSTED = OnlyWith("with --kl-adjust above 1", lambda appo: appo.kl_adjust > 1.0)


@dataclass(frozen=True)
class APPO:
    """Hyper-parameters and methods of APPO."""

    gamma: Annotated[float, SHARE] = 0.99
    """Discount per step."""
    advantage: Literal["gae", "vtrace"] = "gae"
    """How advantages are estimated."""
    lam: Annotated[float, SHARE] = 0.95
    """Lambda of GAE, and of V-trace's traces."""
    rho_bar: Annotated[float, POSITIVE, VTRACE] = 1.0
    """V-trace: limit of the importance ratio in the fixed point."""
    c_bar: Annotated[float, POSITIVE, VTRACE] = 1.0
    """V-trace: limit of the importance ratio in the traces."""
    reward_clip: Literal["sign", "none"] = "sign"
    """Learn from the sign of rewards; scores are always raw."""
    clip: Annotated[float, POSITIVE] = 0.2
    """PPO: how far the ratio to the behaviour policy may move."""
    epochs: Annotated[int, Range(1, 100)] = 3
    """Times each sample is used."""
    minibatch: Annotated[int, Range(1)] = 256
    """Samples per gradient."""
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
    """Learning rate at the start; then it follows the KL divergence."""
    lr_min: Annotated[float, Range(0)] = 5e-5
    """Never below this."""
    lr_max: Annotated[float, POSITIVE] = 4e-3
    """Never above this."""
    kl: Annotated[float, POSITIVE, ADJUSTED] = 0.06
    """KL divergence per round that the learning rate aims at, at the start …"""
    kl_end: Annotated[float, POSITIVE, ADJUSTED] = 0.01
    """… and after anneal_steps."""
    kl_slack: Annotated[float, Range(1), ADJUSTED] = 1.3
    """The learning rate moves when the KL is off its target by more than this factor …"""
    kl_adjust: Annotated[float, Range(1)] = 1.1
    """… by this factor. 1 keeps the learning rate constant."""
    anneal_steps: Annotated[int, Range(0)] = 300_000
    """Environment steps over which entropy and KL target move in a straight line."""

    values_first: ClassVar[bool] = True
    stochastic: ClassVar[bool] = True
    reuses: ClassVar[bool] = False
    target_every: ClassVar[int] = 0

    def heads(self, actions: int) -> dict[str, int]:
        """Return the network outputs needed, by name."""
        return {"policy": actions, "value": 1}

    def start(self) -> Aux:
        """Return learning rate, entropy weight and KL target at the beginning."""
        return {
            "learning_rate": torch.tensor(self.lr, dtype=torch.float64),
            "entropy": torch.tensor(self.entropy, dtype=torch.float64),
            "kl_target": torch.tensor(self.kl, dtype=torch.float64),
        }

    def learning_rate(self, aux: Aux) -> float:
        """Return the learning rate now."""
        return float(aux["learning_rate"])

    def noise(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator,
        explore: Explore,  # noqa: ARG002 - the protocol
    ) -> torch.Tensor:
        """Return Gumbel noise: the argmax of logits plus noise is a draw from their softmax."""
        return acting.gumbel(shape, generator)

    def act(
        self, net: Network, stacks: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions int64[B] drawn from the policy and its logits float32[B, A]."""
        return acting.act(net, stacks, noise)

    def log_probs(self, scores: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return log mu(a|x) [M] of actions [M] drawn at logits [M, A]."""
        return losses.chosen(losses.log_softmax(scores), actions)

    @torch.no_grad()
    def prepare(self, net: Network, batch: Batch, aux: Aux) -> Samples:  # noqa: ARG002 - the protocol
        """Evaluate all observations with the current network and compute the targets."""
        windows = Windows(net, batch.frames, batch.ages)
        outputs = [net(stacks) for stacks in windows.chunks(self.minibatch)]
        shape = windows.shape
        values = torch.cat([out["value"] for out in outputs]).view(shape)
        rewards = batch.rewards.sign() if self.reward_clip == "sign" else batch.rewards
        ends = (batch.terminated, batch.truncated)
        if self.advantage == "gae":
            computed = returns.gae(rewards, values, *ends, self.gamma, self.lam)
        else:
            logits = torch.cat([out["policy"] for out in outputs]).view(*shape, -1)[:, :-1]
            now = losses.chosen(losses.log_softmax(logits).flatten(0, 1), batch.actions.flatten())
            ratios = now.view_as(batch.log_probs) - batch.log_probs
            computed = returns.vtrace(
                rewards, values, *ends, ratios, self.gamma, self.lam, self.rho_bar, self.c_bar
            )
        return Samples(windows, batch, computed)

    def loss(
        self, net: Network, minibatch: Minibatch, aux: Aux
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return policy + value_coefficient * value - entropy weight * entropy, and its terms."""
        weights = minibatch.weights
        outputs = net(minibatch.stacks)
        log_policy = losses.log_softmax(outputs["policy"])
        ignored = weights == 0.0  # whatever they hold: 0 times infinity is not 0
        log_ratios = losses.chosen(log_policy, minibatch.actions) - minibatch.log_probs
        log_ratios = log_ratios.masked_fill(ignored, 0.0)
        advantages = minibatch.advantages.masked_fill(ignored, 0.0)
        targets = minibatch.targets.masked_fill(ignored, 0.0)
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
                "kl": losses.approximate_kl(log_ratios.detach(), weights),
                "clipped": losses.mean_of(outside, weights),
                "explained_variance": losses.explained_variance(values.detach(), targets, weights),
            }
        return total, terms

    def is_outlier(self, aux: Aux, loss: float) -> bool:  # noqa: ARG002 - the protocol
        """Return False: no gradient is dropped for its loss."""
        return False

    def after(self, aux: Aux, values: dict[str, float], steps: int) -> None:
        """Move the learning rate after the KL divergence, and the schedules after the steps."""
        kl, target = values["kl"], float(aux["kl_target"])
        rate = aux["learning_rate"]
        if kl < target / self.kl_slack:
            rate.mul_(self.kl_adjust)
        elif kl > target * self.kl_slack:
            rate.div_(self.kl_adjust)
        rate.clamp_(self.lr_min, self.lr_max)
        done = min(steps / max(self.anneal_steps, 1), 1.0)
        aux["entropy"].fill_(self.entropy + done * (self.entropy_end - self.entropy))
        aux["kl_target"].fill_(self.kl + done * (self.kl_end - self.kl))
