"""DQN and its relatives: learning the value of actions from stored experience.

Mnih et al. 2015, with double Q-learning (Hasselt et al. 2016), duelling heads (Wang et al. 2016),
n-step returns (Sutton 1988), Peng's Q(lambda) (Peng & Williams 1996; Kozuno et al. 2021; with
replay: Daley & Amato 2019), prioritized replay (Schaul et al. 2016) and the outlier rule of Gorila
(Nair et al. 2015) as settings.

The target network is a copy of the parameters in ``aux`` under ``target/<parameter name>``,
float32; whoever keeps the copies writes them there. Without any the current network stands in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch.func import functional_call

from gelada.algorithms.api import TARGET, ActingPolicy, Source, Topology
from gelada.algorithms.batches import WholeBatch
from gelada.algorithms.exploration import EpsilonGreedy, Player, falling, ladder
from gelada.algorithms.schedules import linear
from gelada.core.settings import POSITIVE, SHARE, OnlyWith, Range
from gelada.core.types import Aux, Batch
from gelada.nets.heads import Duelling, Head, Linear
from gelada.nets.network import Network
from gelada.nets.observations import Observations
from gelada.ops import losses, returns
from gelada.ops.returns import RewardClip

Pair = tuple[torch.Tensor, torch.Tensor]

PRIORITY_MIX = 0.9
"""Share of the largest error in the priority of a window; the mean has the rest (Kapturowski et al.
2019, section 2.3). A window with one error has that error as priority."""

LOSS_RATE = 0.001
"""Weight of the newest loss in the running mean and variance: about the last thousand count.
Chosen, not published."""

LOSSES_SEEN = 100
"""Losses before any is called an outlier. Chosen, not published."""


N_STEP = OnlyWith("with --returns n_step", lambda dqn: dqn.returns == "n_step")
Q_LAMBDA = OnlyWith("with --returns q_lambda", lambda dqn: dqn.returns == "q_lambda")
SCHEDULE = OnlyWith("with --explore schedule", lambda dqn: dqn.explore == "schedule")
LADDER = OnlyWith("with --explore ladder", lambda dqn: dqn.explore == "ladder")
TARGET_NETWORK = OnlyWith("with --target-every above 0", lambda dqn: dqn.target_every > 0)


@dataclass(frozen=True)
class DQN:
    """Hyper-parameters and methods of DQN."""

    gamma: Annotated[float, SHARE] = 0.99
    """Discount per step."""
    returns: Literal["n_step", "q_lambda"] = "n_step"
    """n_step learns the first step of a window; q_lambda all steps, by Peng's Q(lambda)."""
    n: Annotated[int, Range(1, 65536), N_STEP] = 1
    """n_step: steps of a return before the value takes over, and of a window."""
    lam: Annotated[float, SHARE, Q_LAMBDA] = 0.9
    """q_lambda: 0 is a return of one step, 1 one to the window's end."""
    double: Annotated[bool, TARGET_NETWORK] = False
    """The current network chooses the action whose value the target network tells."""
    duelling: bool = False
    """Two heads, one for the value of a state and one for the advantages of actions."""
    target_every: Annotated[int, Range(0)] = 2_500
    """Updates between copies of the parameters to the target network (0: no target network)."""
    reward_clip: RewardClip = "sign"
    """Learn from the sign of rewards; scores are always raw."""
    error: Literal["huber", "squared"] = "huber"
    """Loss of an error: half its square; huber goes on straight beyond 1 (error clipping)."""
    outlier: Annotated[float, Range(0)] = 0.0
    """Drop a gradient whose loss is so many standard deviations above the running mean (0: none).
    Chosen, not published."""
    explore: Literal["schedule", "ladder"] = "schedule"
    """One epsilon for all games that falls with the steps, or a constant one for each game."""
    epsilon_start: Annotated[float, SHARE, SCHEDULE] = 1.0
    """schedule: share of random actions at the start …"""
    epsilon_end: Annotated[float, SHARE, SCHEDULE] = 0.1
    """… and after epsilon_steps."""
    epsilon_steps: Annotated[int, Range(0), SCHEDULE] = 250_000
    """schedule: environment steps over which epsilon moves in a straight line."""
    ladder_base: Annotated[float, SHARE, LADDER] = 0.4
    """ladder: epsilon of the first game (Horgan et al. 2018)."""
    ladder_alpha: Annotated[float, Range(0), LADDER] = 7.0
    """ladder: that of the last game is the base to the power of 1 + alpha."""
    gradient_clip: Annotated[float, POSITIVE] = 10.0
    """Limit of the gradient's global norm."""
    lr: Annotated[float, POSITIVE] = 2.5e-4
    """Learning rate at the start …"""
    lr_end: Annotated[float, POSITIVE] = 2.5e-4
    """… and after anneal_steps."""
    anneal_steps: Annotated[int, Range(0)] = 1_000_000
    """Environment steps over which the learning rate moves in a straight line."""

    epochs: ClassVar[int] = 1
    minibatch: ClassVar[int] = 2**31  # the whole batch
    source: ClassVar[Source] = "buffer"
    topologies: ClassVar[tuple[Topology, ...]] = ("central", "workers", "apart")
    acting_heads: ClassVar[tuple[str, ...]] = ("q",)
    acting_policy: ClassVar[ActingPolicy] = "epsilon"

    @property
    def evaluates_first(self) -> bool:
        """Whether the target network evaluates the whole batch."""
        return bool(self.target_every)

    @property
    def last_epsilon(self) -> float:
        """The schedule's epsilon after all its steps, or the ladder's of the last game."""
        if self.explore == "schedule":
            return self.epsilon_end
        return float(self.ladder_base ** (1 + self.ladder_alpha))

    def check(self, batch: int) -> None:
        """Do nothing: all settings fit each other."""

    def window(self, length: int) -> int:
        """Return the steps of the windows to learn from, if rollouts have ``length`` steps."""
        return self.n if self.returns == "n_step" else length

    def learned(self, window: int) -> int:
        """Return 1 with n-step returns, which learn the first step of a window, else ``window``."""
        return 1 if self.returns == "n_step" else window

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return the values of actions."""
        return {"q": Duelling(width, actions) if self.duelling else Linear(width, actions)}

    def start(self) -> Aux:
        """Return the learning rate and the running mean and variance of no losses yet."""
        names = ("loss_count", "loss_mean", "loss_variance")
        return {
            "learning_rate": torch.tensor(self.lr, dtype=torch.float64),
            **{name: torch.zeros((), dtype=torch.float64) for name in names},
        }

    def learning_rate(self, aux: Aux) -> float:
        """Return the learning rate now."""
        return float(aux["learning_rate"])

    def exploration(self, player: Player) -> EpsilonGreedy:
        """Take the best action, except with probability epsilon."""
        if self.explore == "schedule":
            fall = (self.epsilon_start, self.epsilon_end, self.epsilon_steps)
            return EpsilonGreedy(player, falling(*fall, player.games))
        return EpsilonGreedy(player, ladder(player, self.ladder_base, self.ladder_alpha))

    def act(
        self, net: Network, observations: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the values of actions float32[B, A]; the state is passed through."""
        return net.heads["q"](net.features(observations)), state

    def prepare(self, net: Network, batch: Batch, aux: Aux) -> WholeBatch:  # noqa: ARG002 - the protocol
        """Preprocess and stack the observations: of n-step windows two."""
        if self.returns == "q_lambda":
            return WholeBatch(Observations(net, batch.frames, batch.ages), batch, None)
        assert batch.actions.shape[1] == self.n, "windows for n-step returns have n steps"
        partial = returns.partial_n_step(
            returns.clipped(batch.rewards, self.reward_clip),
            batch.terminated,
            batch.truncated,
            self.gamma,
        )
        rows = partial.after.unsqueeze(1)
        stack = rows + torch.arange(net.stack, device=rows.device)
        following = batch.frames[torch.arange(len(rows), device=rows.device).unsqueeze(1), stack]
        frames = torch.cat([batch.frames[:, : net.stack], following])
        ages = torch.cat([batch.ages[:, :1], batch.ages.gather(1, rows)])
        return WholeBatch(Observations(net, frames, ages), batch, partial)

    def loss(
        self, net: Network, minibatch: WholeBatch, aux: Aux
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the mean loss of the errors that count, weighted, and its terms.

        The sum of weighted losses is divided by the number of steps that count, so weights below
        1 shrink the gradient (Schaul et al. 2016, section 3.4). The terms are ``value_loss``, the
        loss itself, and without weights the means of the absolute error (``td_error``) and of the
        chosen action's value (``q``). Afterwards ``minibatch.priorities`` holds the windows' new
        priorities float32[N]: the absolute error of the first step, or for Q(lambda) a mix of the
        largest and the mean over the window; 0 where nothing counts.
        """
        look = self._first_steps if self.returns == "n_step" else self._all_steps
        values, targets = look(net, minibatch, aux)
        batch, steps = minibatch.batch, values.shape[1]
        mask = batch.mask[:, :steps].float()
        # whatever is where nothing counts: 0 times infinity is not 0
        errors = (targets - values).masked_fill(mask == 0.0, 0.0)
        weights = mask * batch.weights.unsqueeze(1)
        each = losses.huber(errors) if self.error == "huber" else 0.5 * errors.square()
        number = mask.sum().clamp(min=1.0)
        total = (each * weights).sum() / number
        with torch.no_grad():
            sizes = errors.detach().abs()
            minibatch.priorities = _priorities(sizes, mask)
            terms = {
                "value_loss": total.detach(),
                "td_error": sizes.sum() / number,
                "q": (values.detach() * mask).sum() / number,
            }
        return total, terms

    def is_outlier(self, aux: Aux, loss: float) -> bool:
        """Say whether the gradient of this loss is to be dropped before it is pushed.

        It is if the absolute loss is more than ``outlier`` standard deviations above the running
        mean of those before it. The rule is that of Nair et al. 2015 as reading notes tell it;
        the number of deviations was not found. Nothing is changed: see `after`.
        """
        if self.outlier <= 0.0 or float(aux["loss_count"]) < LOSSES_SEEN:
            return False
        deviation = math.sqrt(float(aux["loss_variance"]))
        return abs(loss) > float(aux["loss_mean"]) + self.outlier * deviation

    def after(self, aux: Aux, values: dict[str, float], steps: int) -> None:
        """Move the learning rate after the environment steps, and take in a round's loss.

        Losses of dropped gradients belong to the running mean and deviation too: else a lasting
        rise of the loss would have all gradients dropped for ever.
        """
        aux["learning_rate"].fill_(linear(self.lr, self.lr_end, steps, self.anneal_steps))
        if "value_loss" not in values:
            return
        aux["loss_count"] += 1.0
        # a plain mean at first, later one that forgets (West 1979)
        rate = max(1.0 / float(aux["loss_count"]), LOSS_RATE)
        difference = abs(values["value_loss"]) - float(aux["loss_mean"])
        aux["loss_mean"] += rate * difference
        spread = float(aux["loss_variance"]) + rate * difference**2
        aux["loss_variance"].fill_((1.0 - rate) * spread)

    def _first_steps(self, net: Network, whole: WholeBatch, aux: Aux) -> Pair:
        """Return the value of the first action of each window and its n-step target, [N, 1]."""
        assert whole.partial is not None
        rewards, discounts, _ = whole.partial
        first, following = whole.observations.chunks(whole.size)
        values = losses.chosen(net(first)["q"], whole.batch.actions[:, 0])
        with torch.no_grad():
            targets = rewards + discounts * self._best(net, following, None, aux)
        return values.unsqueeze(1), targets.unsqueeze(1)

    def _all_steps(self, net: Network, whole: WholeBatch, aux: Aux) -> Pair:
        """Return the values of all actions and their lambda returns, [N, T]."""
        batch, shape = whole.batch, whole.observations.shape  # [N, T + 1]
        (stacks,) = whole.observations.chunks(self.minibatch)
        scores = net(stacks)["q"]
        taken = scores.view(*shape, -1)[:, :-1].flatten(0, 1)
        values = losses.chosen(taken, batch.actions.flatten()).view_as(batch.rewards)
        with torch.no_grad():
            best = self._best(net, stacks, scores.detach(), aux).view(shape)
            ends = (batch.terminated, batch.truncated)
            targets = returns.q_lambda(
                returns.clipped(batch.rewards, self.reward_clip), best, *ends, self.gamma, self.lam
            )
        return values, targets

    def _best(
        self, net: Network, stacks: torch.Tensor, scores: torch.Tensor | None, aux: Aux
    ) -> torch.Tensor:
        """Return the values [M] of the best actions; ``scores`` are the current network's."""
        target = {k.removeprefix(TARGET): v for k, v in aux.items() if k.startswith(TARGET)}
        if scores is None and (self.double or not target):
            scores = net(stacks)["q"]
        if target:
            told = functional_call(net, target, (stacks,))["q"]
        else:
            assert scores is not None
            told = scores
        chooser = scores if self.double and scores is not None else told
        return losses.chosen(told, chooser.argmax(dim=1))


def _priorities(sizes: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the priorities [N] of windows with absolute errors [N, S], 0 where the mask is."""
    mean = sizes.sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
    return PRIORITY_MIX * sizes.amax(dim=1) + (1.0 - PRIORITY_MIX) * mean
