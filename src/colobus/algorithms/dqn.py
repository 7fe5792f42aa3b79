"""DQN and its variants, which learn action values from a replay buffer.

Mnih et al. 2015, with double Q-learning (Hasselt et al. 2016), duelling heads (Wang et al. 2016),
n-step returns (Sutton 1988), Peng's Q(lambda) (Peng & Williams 1996; Kozuno et al. 2021; with
replay: Daley & Amato 2019), distributions of values (`colobus.ops.distributions`), Munchausen
(Vieillard et al. 2020), prioritized replay (Schaul et al. 2016) and the outlier rule of Gorila
(Nair et al. 2015) as settings.

The target network is a float32 copy of the parameters in ``algorithm_state``, with names
``target/<parameter name>``. The learner writes it there. Without a target network the targets come
from the current network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch.func import functional_call

from colobus.algorithms import auxiliary
from colobus.algorithms.action_values import DistributionalValues, epsilon_greedy, ladder
from colobus.algorithms.api import Ends, Source, Terms, Topology, target_parameters
from colobus.algorithms.batches import WholeBatch
from colobus.algorithms.exploration import Exploration, Player
from colobus.core.errors import ColobusError
from colobus.core.fields import POSITIVE, SHARE, OnlyWith, Range
from colobus.core.types import AlgorithmState, Batch
from colobus.nets.config import Autoencoder
from colobus.nets.network import CODE, Network
from colobus.nets.observations import Observations
from colobus.ops import losses, returns
from colobus.ops.distributions import losses_of

LOSS_RATE = 0.001
"""Weight of the newest loss in the running mean and variance, which thus cover about the last 1,000
losses. Our choice; the paper has no number."""

LOSSES_SEEN = 100
"""Number of losses before the outlier rule applies. Our choice; the paper has no number."""

N_STEP = OnlyWith("with --returns n_step", lambda dqn: dqn.returns == "n_step")
Q_LAMBDA = OnlyWith("with --returns q_lambda", lambda dqn: dqn.returns == "q_lambda")
SCHEDULE = OnlyWith("with --explore schedule", lambda dqn: dqn.explore == "schedule")
LADDER = OnlyWith("with --explore ladder", lambda dqn: dqn.explore == "ladder")
TARGETED = OnlyWith("with --target-every above 0", lambda dqn: dqn.target_every > 0)
NUMBERS = OnlyWith("with --values numbers", lambda dqn: dqn.values == "numbers")
MUNCHAUSEN = OnlyWith(
    "with --returns q_lambda, and --munchausen or --munchausen-end above 0",
    lambda dqn: dqn.is_munchausen,
)
MUNCHAUSEN_END = OnlyWith(
    "with --returns q_lambda and --munchausen-end",
    lambda dqn: dqn.returns == "q_lambda" and dqn.munchausen_end is not None,
)
DOUBLE = OnlyWith(
    "with --target-every above 0 and without --munchausen",
    lambda dqn: dqn.target_every > 0 and not dqn.is_munchausen,
)


class Evaluated(NamedTuple):
    """What the network says of ``S`` steps of ``N`` windows, and what it should say."""

    taken: torch.Tensor  # outputs of the actions taken, [N, S, …]
    targets: torch.Tensor  # float32[N, S]
    codes: torch.Tensor | None = None  # for a prediction: all hidden layers, [N * (T + 1), width]


@dataclass(frozen=True)
class DQN(DistributionalValues):
    """Hyper-parameters and methods of DQN."""

    returns: Literal["n_step", "q_lambda"] = "n_step"
    """Targets: n-step returns of each window's first step, or Peng's Q(lambda) of all its steps."""
    n: Annotated[int, Range(1, 65536), N_STEP] = 1
    """n_step: rewards in a return before it bootstraps, and the steps of a window."""
    lam: Annotated[float, SHARE, Q_LAMBDA] = 0.9
    """q_lambda: lambda of the returns (0: one-step returns; 1: returns to the window's end)."""
    lam_end: Annotated[float, SHARE, Q_LAMBDA] | None = None
    """q_lambda: lambda after anneal_steps, to which it changes linearly (none: it is constant)."""
    double: Annotated[bool, DOUBLE] = False
    """Double Q-learning: the current network chooses the action, the target network its value."""
    munchausen: Annotated[float, SHARE, Q_LAMBDA] = 0.0
    """q_lambda: weight of the scaled log-policy in each step's target (Vieillard et al. 2020: 0.9;
    0: none)."""
    munchausen_end: Annotated[float, SHARE, Q_LAMBDA] | None = None
    """q_lambda: weight of Munchausen's term at the end, to which it changes linearly (none: it is
    constant)."""
    munchausen_steps: Annotated[int, Range(0), MUNCHAUSEN_END] = 0
    """q_lambda: environment steps over which that weight changes (0: anneal_steps)."""
    temperature: Annotated[float, POSITIVE, MUNCHAUSEN] = 0.03
    """Munchausen: temperature of the policy, a softmax of the action values."""
    target_every: Annotated[int, Range(0)] = 2_500
    """Updates between copies of the parameters to the target network (0: no target network)."""
    target_tau: Annotated[float, Range(above=0, high=1), TARGETED] = 1.0
    """Share of the parameters in the target network after each such copy; the rest is what was
    there before (1: a plain copy; Lillicrap et al. 2016: 0.001 after every update)."""
    error: Annotated[Literal["huber", "squared"], NUMBERS] = "huber"
    """Loss of an error: half its square, or the Huber loss, which is linear beyond 1."""
    outlier: Annotated[float, Range(0)] = 0.0
    """Drop a gradient if its loss is more than this many standard deviations above the running mean
    (0: drop none)."""
    explore: Literal["schedule", "ladder"] = "schedule"
    """One epsilon for all games that changes with the steps, or a constant one for each game."""
    epsilon_start: Annotated[float, SHARE, SCHEDULE] = 1.0
    """schedule: share of random actions at the start …"""
    epsilon_end: Annotated[float, SHARE, SCHEDULE] = 0.1
    """… and after epsilon_steps."""
    epsilon_steps: Annotated[int, Range(0), SCHEDULE] = 250_000
    """schedule: environment steps over which epsilon changes linearly."""
    ladder_base: Annotated[float, SHARE, LADDER] = 0.4
    """ladder: epsilon of the first game (Horgan et al. 2018)."""
    ladder_alpha: Annotated[float, Range(0), LADDER] = 7.0
    """ladder: epsilon of the last game is the base to the power of 1 + alpha."""
    hold_after: Annotated[int, Range(0)] = 0
    """Steps of an actor without any reward after which every other of its games repeats a random
    action for a whole rollout, until it meets one (0: never)."""

    source: ClassVar[Source] = "buffer"
    topologies: ClassVar[tuple[Topology, ...]] = ("central", "workers", "separate")

    @property
    def is_munchausen(self) -> bool:
        """Whether targets have Munchausen's term and soft values, which only q_lambda has."""
        weighs = self.munchausen > 0 or bool(self.munchausen_end)
        return weighs and self.returns == "q_lambda"

    @property
    def last_epsilon(self) -> float:
        """The final epsilon of the schedule, or the epsilon of the ladder's last game."""
        if self.explore == "schedule":
            return self.epsilon_end
        return float(self.ladder_base ** (1 + self.ladder_alpha))

    autoencoders: ClassVar[tuple[Autoencoder, ...]] = ("predict",)

    def check_autoencoder(self, form: Autoencoder) -> None:
        """Refuse it with n-step returns too, which look at the ends of windows only."""
        super().check_autoencoder(form)
        if form != "off" and self.returns == "n_step":
            raise ColobusError(
                "--autoencoder predict with --returns n_step: it predicts what follows in a "
                "window, and n-step returns look at its ends only; use --returns q_lambda"
            )

    @property
    def drops_outliers(self) -> bool:
        """Whether the outlier rule is on."""
        return self.outlier > 0.0

    @property
    def ends(self) -> Ends:
        """Learning rate, discount, lambda and the weight of Munchausen's term."""
        return {
            **super().ends,
            "lam": (self.lam, self.lam_end),
            "munchausen": (self.munchausen, self.munchausen_end),
        }

    def window(self, length: int) -> int:
        """Return ``n`` with n-step returns, else ``length``."""
        return self.n if self.returns == "n_step" else length

    def learned(self, window: int) -> int:
        """Return 1 with n-step returns, which learn only a window's first step, else ``window``."""
        return 1 if self.returns == "n_step" else window

    def start(self) -> AlgorithmState:
        """Return what moves, and statistics over no losses."""
        names = ("loss_count", "loss_mean", "loss_variance")
        losses = {name: torch.zeros((), dtype=torch.float64) for name in names}
        return super().start() | losses

    def exploration(self, player: Player) -> Exploration:
        """Return epsilon-greedy exploration."""
        if self.explore == "schedule":
            return super().exploration(player)
        epsilons = ladder(player, self.ladder_base, self.ladder_alpha)
        return epsilon_greedy(player, epsilons, self.longest_random, self.hold_after)

    def prepare(self, net: Network, batch: Batch, algorithm_state: AlgorithmState) -> WholeBatch:
        """Preprocess and stack the observations: all, or two of each window with n-step returns."""
        if self.returns == "q_lambda":
            return WholeBatch(Observations(net, batch.frames, batch.ages), batch, None)
        return self.first_steps(net, batch, self.now(algorithm_state, "gamma"))

    def loss(
        self,
        net: Network,
        minibatch: WholeBatch,
        algorithm_state: AlgorithmState,
        random: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, Terms]:
        """Return the loss of `mean_loss`, and scalars to log.

        If the network predicts, the loss of that is added; ``value_loss`` is the loss without it.
        """
        evaluate = self._of_first_steps if self.returns == "n_step" else self._of_all_steps
        taken, targets, codes = evaluate(net, minibatch, algorithm_state)
        values = self.means(taken)
        batch, steps = minibatch.batch, values.shape[1]
        mask = batch.mask[:, :steps].float()
        # masked errors may be infinite, and 0 times infinity is not 0
        errors = (targets - values).masked_fill(mask == 0.0, 0.0)
        if self.values == "numbers" and self.error == "huber":
            each = losses.huber(errors)
        else:
            targets = targets.masked_fill(mask == 0.0, 0.0)
            each = losses_of(self.values, taken, targets, self.limit)
        total, terms = self.mean_loss(minibatch, each, values, errors)
        if codes is not None:
            extra, found = auxiliary.window_loss(net, codes, batch)
            total, terms = total + extra, terms | found
        return total, terms

    def is_outlier(self, algorithm_state: AlgorithmState, loss: float) -> bool:
        """Return whether to drop the gradient of this loss before it is pushed. Changes nothing.

        A gradient is dropped if the absolute loss is more than ``outlier`` standard deviations
        above the running mean of earlier losses (`after` updates it). The rule is that of Nair et
        al. 2015, which gives no number of deviations.
        """
        state = algorithm_state
        if not self.drops_outliers or float(state["loss_count"]) < LOSSES_SEEN:
            return False
        deviation = math.sqrt(float(state["loss_variance"]))
        return abs(loss) > float(state["loss_mean"]) + self.outlier * deviation

    def after(self, algorithm_state: AlgorithmState, values: dict[str, float], steps: int) -> None:
        """Set what changes with the environment steps, and add a loss to its statistics.

        The losses of dropped gradients are part of the statistics. Otherwise all gradients would
        be dropped from then on after a lasting rise of the loss.
        """
        super().after(algorithm_state, values, steps)
        if "value_loss" not in values:
            return
        # a plain mean at first, later an exponential one (West 1979)
        state = algorithm_state
        state["loss_count"] += 1.0
        rate = max(1.0 / float(state["loss_count"]), LOSS_RATE)
        difference = abs(values["value_loss"]) - float(state["loss_mean"])
        state["loss_mean"] += rate * difference
        spread = float(state["loss_variance"]) + rate * difference**2
        state["loss_variance"].fill_((1.0 - rate) * spread)

    def _of_first_steps(
        self, net: Network, whole: WholeBatch, algorithm_state: AlgorithmState
    ) -> Evaluated:
        """Return the outputs of the windows' first actions [N, 1, …], and their targets [N, 1]."""
        assert whole.partial is not None
        rewards, discounts, _ = whole.partial
        first, following = whole.observations.chunks(whole.size)
        taken = losses.chosen(net(first)["q"], whole.batch.actions[:, 0])
        with torch.no_grad():
            allowed = whole.observations.allowed[whole.size :, 0]
            best = self._best(net, following, allowed, None, algorithm_state)
            targets = rewards + discounts * best
        return Evaluated(taken.unsqueeze(1), targets.unsqueeze(1))

    def _of_all_steps(
        self, net: Network, whole: WholeBatch, algorithm_state: AlgorithmState
    ) -> Evaluated:
        """Return the outputs of the actions taken [N, T, …], and their lambda returns [N, T]."""
        batch, shape = whole.batch, whole.observations.shape  # [N, T + 1]
        (stacks,) = whole.observations.chunks(self.minibatch)
        outputs = net(stacks)
        output = outputs["q"]
        before_last = output.unflatten(0, shape)[:, :-1].flatten(0, 1)
        taken = losses.chosen(before_last, batch.actions.flatten())
        allowed = whole.observations.allowed.flatten(0, 1)
        has_target = bool(target_parameters(algorithm_state))
        with torch.no_grad():
            # with a target network that also chooses, nobody needs them
            scores = self.means(output.detach()) if self.double or not has_target else None
            rewards = returns.clipped(batch.rewards, self.reward_clip)
            extra = torch.zeros_like(rewards)
            if self.is_munchausen:
                evaluated = self._evaluated(net, stacks, scores, algorithm_state)
                evaluated = losses.masked(evaluated, allowed).unflatten(0, shape)
                extra, best = returns.munchausen(evaluated, batch.actions, self.temperature)
            else:
                best = self._best(net, stacks, allowed, scores, algorithm_state).view(shape)
            ends = (batch.terminated, batch.truncated)
            gamma, lam = self.now(algorithm_state, "gamma"), self.now(algorithm_state, "lam")
            targets = returns.q_lambda(rewards, best, *ends, gamma, lam)
            weight = self.now(algorithm_state, "munchausen")
            targets = targets + weight * extra  # not of later steps: see `munchausen`
        taken = taken.unflatten(0, batch.actions.shape)
        return Evaluated(taken, targets, outputs.get(CODE))

    def _best(
        self,
        net: Network,
        stacks: torch.Tensor,
        allowed: torch.Tensor,
        scores: torch.Tensor | None,
        algorithm_state: AlgorithmState,
    ) -> torch.Tensor:
        """Return the values [M] of the best actions among those that are allowed, bool[M, A].

        ``scores`` are the action values [M, A] of the current network, if they are known.
        """
        if scores is None and (self.double or not target_parameters(algorithm_state)):
            scores = self.means(net(stacks)["q"])
        evaluated = self._evaluated(net, stacks, scores, algorithm_state)
        chooser = scores if self.double and scores is not None else evaluated
        return losses.chosen(evaluated, losses.masked(chooser, allowed).argmax(dim=1))

    def _evaluated(
        self,
        net: Network,
        stacks: torch.Tensor,
        scores: torch.Tensor | None,
        algorithm_state: AlgorithmState,
    ) -> torch.Tensor:
        """Return action values [M, A] of the target network; without one, those that are known."""
        if target := target_parameters(algorithm_state):
            return self.means(functional_call(net, target, (stacks,))["q"])
        assert scores is not None
        return scores
