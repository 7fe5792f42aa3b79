"""APPO: PPO's clipped loss on V-trace or GAE advantages, with actors one round behind the learner.

IMPALA (Espeholt et al. 2018) with the surrogate of PPO (Schulman et al. 2017), after "Accelerating
Distributed Deep Reinforcement Learning" (RLDM 2019) and IMPACT (Luo et al. 2020). Three policies
may differ: mu has acted (the behaviour policy), pi learns, and pi_old is the target policy, a copy
of pi that is renewed now and then. Without a target policy the ratio is taken against mu. By
default the learning rate adapts to the measured KL divergence, so it needs no schedule
(docs/recipe.md). docs/appo.md lists all parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch

from colobus.algorithms import auxiliary
from colobus.algorithms.api import (
    Algorithm,
    Terms,
    Topology,
    followed,
    linear,
    number,
    target_parameters,
)
from colobus.algorithms.batches import Minibatch, Samples, evaluate
from colobus.core.errors import ColobusError
from colobus.core.fields import POSITIVE, SHARE, OnlyWith, Range
from colobus.core.types import AlgorithmState, Batch
from colobus.nets.autoencoder import Prediction
from colobus.nets.config import Autoencoder
from colobus.nets.heads import Head, Linear
from colobus.nets.network import CODE, Network
from colobus.nets.observations import Observations
from colobus.ops import losses, returns
from colobus.ops.distributions import Atoms, Values, losses_of, means_of
from colobus.ops.returns import RewardClip

VTRACE = OnlyWith("with --advantage vtrace", lambda appo: appo.advantage == "vtrace")
CLIPPED = OnlyWith("with --policy-loss clip", lambda appo: appo.policy_loss == "clip")
TARGET_POLICY = OnlyWith("with --target-every above 0", lambda appo: appo.target_every > 0)
KL_TERM = OnlyWith("with --kl-coeff above 0", lambda appo: appo.kl_coeff > 0.0)
ADJUSTED = OnlyWith("with --kl-adjust above 1", lambda appo: appo.kl_adjust > 1.0)


class Steps(NamedTuple):
    """Data of ``M`` steps that the loss needs."""

    actions: torch.Tensor  # int64[M]
    log_probs: torch.Tensor  # float32[M], of the behaviour policy
    advantages: torch.Tensor  # float32[M]
    targets: torch.Tensor  # float32[M]
    weights: torch.Tensor  # float32[M], 0 where the loss mask is 0
    independent: torch.Tensor  # float32[M], 1 where the action may count for the KL divergence
    old: torch.Tensor  # float32[M, A], log pi_old(.|x); [M, 0] without a target policy
    allowed: torch.Tensor = losses.ALL  # bool[M, A], actions; [M, 0]: all


@dataclass(frozen=True)
class APPO(Algorithm):
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
    pg_rho_bar: Annotated[float, POSITIVE, VTRACE] = 1.0
    """V-trace: upper limit of the importance ratio in the advantages."""
    reward_clip: RewardClip = "sign"
    """Rewards in the loss: their sign, or raw (none). Scores are always raw."""
    policy_loss: Literal["clip", "gradient"] = "clip"
    """Loss of the policy: PPO's clipped ratios, or the policy gradient as in IMPALA."""
    clip: Annotated[float, POSITIVE, CLIPPED] = 0.2
    """PPO: the ratio of the policy to behaviour or target policy is clipped to 1 - clip … 1 +
    clip."""
    target_every: Annotated[int, Range(0)] = 0
    """Versions between copies of the policy to the target policy, against which V-trace and PPO's
    ratios are taken (0: no target policy)."""
    ratio_cap: Annotated[float, Range(1), TARGET_POLICY] = 2.0
    """Upper limit of the ratio of behaviour to target policy in the loss."""
    epochs: Annotated[int, Range(1, 100)] = 3
    """Times each sample is used."""
    minibatch: Annotated[int, Range(1)] = 256
    """Samples per gradient."""
    sequence: Annotated[int, Range(1)] = 16
    """Steps of a sequence, through which the gradient of a recurrent network goes back."""
    normalise: bool = True
    """Standardise advantages in each minibatch."""
    value_coefficient: Annotated[float, Range(0)] = 1.0
    """Weight of the value loss (half the squared error, or that of the distribution)."""
    values: Values = "numbers"
    """What the value head learns: the value, or a distribution as a histogram (HL-Gauss,
    Farebrother et al. 2024) or by quantiles (QR-DQN, Dabney et al. 2018), whose mean is the
    value."""
    atoms: Atoms = 51
    """Bins of a histogram of returns from -100 to 100, or number of quantiles."""
    entropy: Annotated[float, Range(0)] = 0.005
    """Weight of the policy's entropy at the start …"""
    entropy_end: Annotated[float, Range(0)] = 0.002
    """… and after anneal_steps."""
    kl_coeff: Annotated[float, Range(0)] = 0.0
    """Weight of a KL term in the loss at the start, to the target policy or else to the behaviour
    policy; it follows the divergence (0: no KL term)."""
    kl_target: Annotated[float, POSITIVE, KL_TERM] = 0.01
    """KL divergence above twice of which the weight of the KL term grows by half, and below half
    of which it is halved."""
    gradient_clip: Annotated[float, POSITIVE] = 1.0
    """Limit of the gradient's global norm."""
    lr: Annotated[float, POSITIVE] = 2e-3
    """Learning rate at the start. With --kl-adjust above 1 it adapts to the KL divergence."""
    lr_end: Annotated[float, Range(0)] | None = None
    """Learning rate after anneal_steps, with --kl-adjust 1 (none: it is constant)."""
    lr_min: Annotated[float, Range(0), ADJUSTED] = 5e-5
    """Lower limit of the learning rate."""
    lr_max: Annotated[float, POSITIVE, ADJUSTED] = 4e-3
    """Upper limit of the learning rate."""
    kl: Annotated[float, POSITIVE, ADJUSTED] = 0.06
    """Target of the KL divergence per round at the start …"""
    kl_end: Annotated[float, POSITIVE, ADJUSTED] = 0.01
    """… and after anneal_steps."""
    kl_slack: Annotated[float, Range(1), ADJUSTED] = 1.3
    """The learning rate changes if the KL divergence is off target by more than this factor …"""
    kl_adjust: Annotated[float, Range(1)] = 1.1
    """… and then by this factor (1: the learning rate does not adapt)."""
    anneal_steps: Annotated[int, Range(0)] = 300_000
    """Environment steps over which entropy weight, KL target and --lr-end's rate change."""
    anneal_share: Annotated[float, SHARE] = 0.0
    """Share of the run's --steps or --minutes after which anneal_steps are over, however many steps
    that takes; what changes faster or slower does so alike (0, or neither: steps of play)."""
    anneal_stages: Annotated[int, Range(0, 1000)] = 0
    """Change them in this many equal jumps (0: linearly)."""
    hold_after: Annotated[int, Range(0)] = 0
    """Steps without a reward after which half of an actor's games draw one random number per
    rollout instead of one per step (0: never)."""

    topologies: ClassVar[tuple[Topology, ...]] = ("central", "replicas")
    evaluates_first: ClassVar[bool] = True
    autoencoders: ClassVar[tuple[Autoencoder, ...]] = ("latent", "auxiliary", "predict")
    learns_sequences: ClassVar[bool] = True

    def check(self, batch: int) -> None:
        """Raise ColobusError if two settings contradict each other or --minibatch is too large."""
        for wrong in _contradictions(self):
            raise ColobusError(wrong)
        super().check(batch)

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return the policy, which is nearly uniform at first, and the value."""
        atoms, gain = (1, 1.0) if self.values == "numbers" else (self.atoms, 0.1)
        return {"policy": Linear(width, actions, gain=0.01), "value": Linear(width, atoms, gain)}

    def start(self) -> AlgorithmState:
        """Return the initial learning rate, entropy weight and KL target.

        ``kl_target`` is what the learning rate follows; with a KL term, ``kl_coefficient`` is the
        term's weight. A class that inherits from this one may have lines of `ends` besides.
        """
        state = {"learning_rate": self.lr, "entropy": self.entropy, "kl_target": self.kl}
        if self.kl_coeff:
            state["kl_coefficient"] = self.kl_coeff
        return {n: torch.tensor(x, dtype=torch.float64) for n, x in state.items()} | super().start()

    @torch.no_grad()
    def prepare(
        self, net: Network, batch: Batch, algorithm_state: AlgorithmState
    ) -> Samples[Steps]:
        """Evaluate all observations with the current network and compute the targets.

        The values are the current network's. With a target network, V-trace's ratios are those of
        its policy, which stays the same in all epochs.
        """
        observations = Observations(net, batch.frames, batch.ages)
        given = (observations, batch, self.minibatch, self.sequence)
        evaluated = evaluate(net, *given)
        outputs, shape, actions = evaluated.outputs, observations.shape, batch.actions.flatten()
        values = means_of(self.values, outputs["value"].squeeze(1)).view(shape)
        rewards = returns.clipped(batch.rewards, self.reward_clip)
        ends = (batch.terminated, batch.truncated)
        old = batch.log_probs.new_empty(len(actions), 0)
        allowed = observations.allowed[:, :-1].flatten(0, 1)
        if self.advantage == "gae":
            computed = returns.gae(rewards, values, *ends, self.gamma, self.lam)
        else:
            if self.target_every:
                outputs = evaluate(net, *given, target_parameters(algorithm_state)).outputs
            logits = outputs["policy"].view(*shape, -1)[:, :-1].flatten(0, 1)
            log_policy = losses.log_softmax(logits, allowed)
            old = log_policy if self.target_every else old
            ratios = losses.chosen(log_policy, actions).view_as(batch.log_probs) - batch.log_probs
            ratios = ratios.masked_fill(~batch.mask, 0.0)  # both policies play what is forced
            clips = (self.rho_bar, self.c_bar, self.pg_rho_bar)
            computed = returns.vtrace(rewards, values, *ends, ratios, self.gamma, self.lam, *clips)
        steps = Steps(
            actions,
            batch.log_probs.flatten(),
            computed.advantages.flatten(),
            computed.targets.flatten(),
            (batch.mask.float() * batch.weights.unsqueeze(1)).flatten(),
            batch.independent_steps(),
            old,
            allowed,
        )
        future, codes = None, evaluated.outputs.get(CODE)
        if codes is not None and isinstance(net.auxiliary, Prediction):
            future = auxiliary.Future(batch, codes, net.auxiliary_part)
        return Samples(
            observations,
            steps,
            steps.weights,
            future,
            net.policies,
            steps.advantages if self.normalise else None,
            evaluated.states,
            batch.ages,
        )

    def loss(
        self,
        net: Network,
        minibatch: Minibatch[Steps],
        algorithm_state: AlgorithmState,
        random: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, Terms]:
        """Return policy + value_coefficient * value - entropy weight * entropy, and scalars.

        With ``kl_coeff`` the KL term times its weight is added, with an autoencoder its weighted
        loss.
        """
        observations, steps, ahead, moments = minibatch
        weights = steps.weights
        outputs = net(observations)
        log_policy = losses.log_softmax(outputs["policy"], steps.allowed)
        value_output = outputs["value"].squeeze(1)  # [M] of numbers, else [M, atoms]
        values = means_of(self.values, value_output)
        ignored = weights == 0.0  # they may be infinite, and 0 times infinity is not 0
        advantages = steps.advantages.masked_fill(ignored, 0.0)
        targets = steps.targets.masked_fill(ignored, 0.0)
        if self.normalise:
            advantages = losses.standardise(advantages, weights, moments)
        now = losses.chosen(log_policy, steps.actions)
        log_ratios = losses.log_ratios(now, steps.log_probs, ignored)  # to the behaviour policy
        capped = log_ratios
        if self.target_every:
            old = losses.chosen(steps.old, steps.actions)
            capped = losses.capped_log_ratios(now, steps.log_probs, old, self.ratio_cap, ignored)
        ratios = capped.exp()
        if self.policy_loss == "clip":
            policy_loss = losses.clipped_surrogate(ratios, advantages, self.clip, weights)
        else:
            policy_loss = losses.policy_gradient(now, advantages, weights)
        value = losses.mean_of(losses_of(self.values, value_output, targets), weights)
        entropy = losses.entropy(log_policy, weights)
        total = policy_loss + self.value_coefficient * value
        total = total - number(algorithm_state["entropy"]) * entropy
        terms = {"policy_loss": policy_loss, "value_loss": value, "entropy": entropy}
        if self.kl_coeff:
            weight = number(algorithm_state["kl_coefficient"])
            kl_term, measured = self._kl_term(log_policy, log_ratios, steps)
            total = total + weight * kl_term
            terms |= {"kl_term": measured, "kl_coefficient": torch.ones_like(value) * weight}
        if CODE in outputs:
            extra, found = auxiliary.loss(net, outputs[CODE], observations, ahead, weights)
            total, terms = total + extra, terms | found
        with torch.no_grad():
            terms |= self._statistics(log_ratios, ratios, steps)
            explained = losses.explained_variance(values, targets, weights)
        terms["explained_variance"] = explained
        return total, {name: term.detach() for name, term in terms.items()}

    def after(self, algorithm_state: AlgorithmState, values: dict[str, float], steps: int) -> None:
        """Let learning rate and KL term follow the KL divergence; set what depends on the steps.

        Nothing follows a divergence that is not in ``values``.
        """
        kl, target = values.get("kl"), float(algorithm_state["kl_target"])
        rate = algorithm_state["learning_rate"]
        if self.kl_adjust > 1.0 and kl is not None:
            if kl < target / self.kl_slack:
                rate.mul_(self.kl_adjust)
            elif kl > target * self.kl_slack:
                rate.div_(self.kl_adjust)
            rate.clamp_(self.lr_min, self.lr_max)
        if self.lr_end is not None:
            rate.fill_(self._annealed(self.lr, self.lr_end, steps))
        if self.kl_coeff and "kl_term" in values:
            weight = algorithm_state["kl_coefficient"]
            weight.fill_(followed(float(weight), values["kl_term"], self.kl_target))
        algorithm_state["entropy"].fill_(self._annealed(self.entropy, self.entropy_end, steps))
        algorithm_state["kl_target"].fill_(self._annealed(self.kl, self.kl_end, steps))
        super().after(algorithm_state, values, steps)  # last, so that lines of `ends` win

    def _annealed(self, start: float, end: float, steps: int) -> float:
        return linear(start, end, steps, self.anneal_steps, self.anneal_stages)

    def _kl_term(
        self, log_policy: torch.Tensor, log_ratios: torch.Tensor, steps: Steps
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return KL(pi_old, pi), or without a target policy an estimate of KL(mu, pi).

        Only the actions' own probabilities travel with a trajectory, so KL(mu, pi) is estimated.
        The first is that of all steps, the second that of fresh ones, which steers (none: -inf).
        """
        weights = fresh = steps.weights * steps.independent
        each = losses.estimated_kl(log_ratios)
        if self.target_every:
            weights, each = steps.weights, losses.exact_kl(steps.old, log_policy)
        measured = losses.mean_of(each, fresh).masked_fill(~fresh.any(), -torch.inf)
        return losses.mean_of(each, weights), measured

    def _statistics(self, log_ratios: torch.Tensor, ratios: torch.Tensor, steps: Steps) -> Terms:
        """Return scalars about the ratios; ``kl`` moves the learning rate."""
        weights = steps.weights
        terms = losses.kl_statistics(log_ratios, weights * steps.independent)
        terms |= losses.ratio_statistics(ratios, weights)
        if self.policy_loss == "clip":
            outside = ((ratios - 1.0).abs() > self.clip).float()
            terms["clipped"] = losses.mean_of(outside, weights)
        return terms


def _contradictions(appo: APPO) -> Iterator[str]:
    """Yield what is wrong with settings that do not fit each other."""
    adapts, lr = appo.kl_adjust > 1.0, appo.lr
    if adapts and lr > appo.lr_max:
        yield f"--lr {lr:g}: must not be above --lr-max {appo.lr_max:g}; raise that too"
    if adapts and lr < appo.lr_min:
        yield f"--lr {lr:g}: must not be below --lr-min {appo.lr_min:g}; lower that too"
    if adapts and appo.lr_end is not None:
        yield (
            f"--lr-end {appo.lr_end:g} with --kl-adjust {appo.kl_adjust:g}: the learning rate "
            "follows the KL divergence; use --kl-adjust 1"
        )
    if adapts and appo.kl_coeff:
        yield (
            f"--kl-coeff {appo.kl_coeff:g} with --kl-adjust {appo.kl_adjust:g}: a KL term and the "
            "learning rate would follow the same divergence; use --kl-adjust 1"
        )
    if appo.target_every and appo.advantage == "gae":
        yield (
            f"--target-every {appo.target_every} with --advantage gae: a target policy needs the "
            "ratios of V-trace; use --advantage vtrace"
        )
    if appo.target_every and appo.policy_loss == "gradient":
        yield (
            f"--target-every {appo.target_every} with --policy-loss gradient: only the clipped "
            "loss has a ratio to the target policy; use --policy-loss clip"
        )
