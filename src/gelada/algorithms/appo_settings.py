"""Settings of APPO, with the rules between them. `gelada.algorithms.appo` has what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from gelada.core.errors import GeladaError
from gelada.core.settings import POSITIVE, SHARE, OnlyWith, Range
from gelada.ops.distributions import Atoms, Values
from gelada.ops.returns import RewardClip

VTRACE = OnlyWith("with --advantage vtrace", lambda appo: appo.advantage == "vtrace")
CLIPPED = OnlyWith("with --policy-loss clip", lambda appo: appo.policy_loss == "clip")
TARGET_POLICY = OnlyWith("with --target-every above 0", lambda appo: appo.target_every > 0)
KL_TERM = OnlyWith("with --kl-coeff above 0", lambda appo: appo.kl_coeff > 0.0)
ADJUSTED = OnlyWith("with --kl-adjust above 1", lambda appo: appo.kl_adjust > 1.0)


@dataclass(frozen=True)
class APPOSettings:
    """Hyper-parameters of APPO."""

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
    anneal_stages: Annotated[int, Range(0, 1000)] = 0
    """Change them in this many equal jumps (0: linearly)."""
    hold_after: Annotated[int, Range(0)] = 0
    """Steps without a reward after which half of an actor's games draw one random number per
    rollout instead of one per step (0: never)."""

    def check(self, batch: int) -> None:
        """Raise GeladaError if two settings contradict each other or --minibatch is too large.

        Args:
            batch: samples in a batch.
        """
        for wrong in _contradictions(self, batch):
            raise GeladaError(wrong)


def _contradictions(appo: APPOSettings, batch: int) -> Iterator[str]:
    """Yield what is wrong with settings that do not fit each other, for ``batch`` samples."""
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
    if appo.minibatch > batch:
        yield (
            f"--minibatch {appo.minibatch}: must not be above the batch of {batch} samples "
            "(actors x games x steps of a rollout); lower it or raise --length"
        )
