"""What algorithms that learn action values share: epsilon-greedy actors and n-step returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch

from colobus.algorithms.api import ActingPolicy, Algorithm, Ends, Scores, Terms, linear
from colobus.algorithms.batches import WholeBatch
from colobus.algorithms.exploration import (
    Exploration,
    Explored,
    Lasting,
    Player,
    best_allowed,
    epsilon_noise,
    unrewarded,
)
from colobus.core.fields import POSITIVE, SHARE, OnlyWith, Range
from colobus.core.types import Batch, Floats, Ints, State
from colobus.nets.heads import Head, action_values
from colobus.nets.network import Network
from colobus.nets.observations import Observations
from colobus.ops import losses, returns
from colobus.ops.distributions import LIMIT, Atoms, Values, means_of
from colobus.ops.returns import RewardClip

PRIORITY_MIX = 0.9
"""Weight of the largest error in the priority of a window. The mean error has the rest (Kapturowski
et al. 2019, section 2.3)."""

HISTOGRAMS = OnlyWith("with --values histograms", lambda own: own.values == "histograms")
GAMMA_END = OnlyWith("with --gamma-end", lambda own: own.gamma_end is not None)


@dataclass(frozen=True)
class ActionValues(Algorithm):
    """Settings and methods that all of them have."""

    gamma: Annotated[float, SHARE] = 0.99
    """Discount per step."""
    gamma_end: Annotated[float, SHARE] | None = None
    """Discount at the end, to which it changes linearly (none: it is constant)."""
    gamma_steps: Annotated[int, Range(0), GAMMA_END] = 0
    """Environment steps over which the discount changes (0: anneal_steps)."""
    reward_clip: RewardClip = "sign"
    """Rewards in the loss: their sign, or raw (none). Scores are always raw."""
    epsilon_start: Annotated[float, SHARE] = 1.0
    """Share of random actions at the start …"""
    epsilon_end: Annotated[float, SHARE] = 0.01
    """… and after epsilon_steps."""
    epsilon_steps: Annotated[int, Range(0)] = 250_000
    """Environment steps over which epsilon changes linearly."""
    longest_random: Annotated[int, Range(1, 10_000)] = 1
    """Most steps that a random action lasts (1: each lasts one step)."""
    gradient_clip: Annotated[float, POSITIVE] = 10.0
    """Limit of the gradient's global norm."""
    lr: Annotated[float, POSITIVE] = 2.5e-4
    """Learning rate at the start …"""
    lr_end: Annotated[float, POSITIVE] = 2.5e-4
    """… and after anneal_steps."""
    anneal_steps: Annotated[int, Range(0)] = 1_000_000
    """Environment steps over which the learning rate changes linearly, and so do other numbers that
    have an end."""
    anneal_share: Annotated[float, SHARE] = 0.0
    """Share of the run's --steps or --minutes after which anneal_steps are over, however many steps
    that takes; what changes faster or slower does so alike, but for epsilon (0, or neither: steps
    of play)."""

    acting_heads: ClassVar[tuple[str, ...]] = ("q",)
    acting_policy: ClassVar[ActingPolicy] = "epsilon"

    @property
    def last_epsilon(self) -> float:
        """Share of random actions at the end of training."""
        return self.epsilon_end

    @property
    def ends(self) -> Ends:
        """Learning rate and discount."""
        return {"learning_rate": (self.lr, self.lr_end), "gamma": (self.gamma, self.gamma_end)}

    @property
    def fits_cuda_graph(self) -> bool:
        """Whether nothing but the learning rate moves: the loss takes the rest as numbers."""
        return all(end is None for name, (_, end) in self.ends.items() if name != "learning_rate")

    def exploration(self, player: Player) -> Exploration:
        """Return epsilon-greedy exploration."""
        fall = (self.epsilon_start, self.epsilon_end, self.epsilon_steps)
        epsilons = falling(*fall, player.games)
        return epsilon_greedy(player, epsilons, self.longest_random, self.hold_after)

    def act(self, net: Network, observations: torch.Tensor, state: torch.Tensor | None) -> Scores:
        """Return the action values float32[B, A]. The recurrent state is unchanged."""
        return self.means(net.heads["q"](net.features(observations))), state

    def means(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the values […] that outputs of the head describe."""
        return outputs

    def first_steps(self, net: Network, batch: Batch, gamma: float) -> WholeBatch:
        """Return the two observations of each window that its return needs, stacked.

        Windows have as many steps as a return has rewards.
        """
        rewards = returns.clipped(batch.rewards, self.reward_clip)
        partial = returns.partial_n_step(rewards, batch.terminated, batch.truncated, gamma)
        rows = partial.after.unsqueeze(1)
        stack = rows + torch.arange(net.stack, device=rows.device)
        following = batch.frames[torch.arange(len(rows), device=rows.device).unsqueeze(1), stack]
        frames = torch.cat([batch.frames[:, : net.stack], following])
        ages = torch.cat([batch.ages[:, :1], batch.ages.gather(1, rows)])
        return WholeBatch(Observations(net, frames, ages), batch, partial)

    def mean_loss(
        self,
        minibatch: WholeBatch,
        each: torch.Tensor,
        values: torch.Tensor,
        errors: torch.Tensor,
    ) -> tuple[torch.Tensor, Terms]:
        """Return the weighted mean loss of the steps in the loss mask, and scalars to log.

        The sum of weighted losses is divided by the number of these steps, so weights below 1
        shrink the gradient (Schaul et al. 2016, section 3.4). The scalars are the loss
        (``value_loss``) and the unweighted means of the absolute error (``td_error``) and of the
        chosen action's value (``q``). The method sets ``minibatch.priorities`` to the windows' new
        priorities float32[N]: a mix of the largest and the mean absolute error of a window; 0 for
        one without a step in the loss mask.

        Args:
            minibatch: ``N`` windows.
            each: float32[N, S], the losses of the first ``S`` steps of each.
            values: float32[N, S], of the actions that were taken there.
            errors: float32[N, S], of the values; 0 where the loss mask is.
        """
        mask = minibatch.batch.mask[:, : errors.shape[1]].float()
        number = mask.sum().clamp(min=1.0)
        total = (each * (mask * minibatch.batch.weights.unsqueeze(1))).sum() / number
        with torch.no_grad():
            sizes = errors.detach().abs()
            mean = sizes.sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
            priorities = PRIORITY_MIX * sizes.amax(dim=1) + (1.0 - PRIORITY_MIX) * mean
            minibatch.priorities = priorities
            terms = {
                "value_loss": total.detach(),
                "td_error": sizes.sum() / number,
                "q": (values.detach() * mask).sum() / number,
            }
        return total, terms


@dataclass(frozen=True)
class DistributionalValues(ActionValues):
    """Settings of those whose action values may be means of distributions."""

    duelling: bool = False
    """Compute action values from separate layers for the state value and the advantages."""
    values: Values = "numbers"
    """What is learned for each action: the value, or a distribution as a histogram (HL-Gauss,
    Farebrother et al. 2024) or by quantiles (QR-DQN, Dabney et al. 2018), whose mean is the
    value."""
    atoms: Atoms = 51
    """Bins of a histogram of returns from -limit to limit, or number of quantiles."""
    limit: Annotated[float, POSITIVE, HISTOGRAMS] = LIMIT
    """Largest return that a histogram holds; larger ones are learned as this one."""

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return the head of action values."""
        atoms = 1 if self.values == "numbers" else self.atoms
        return {"q": action_values(width, actions, atoms, self.duelling)}

    def means(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the values […] of outputs, which may be distributions."""
        return means_of(self.values, outputs, self.limit)


@dataclass(eq=False)
class EpsilonGreedy:
    """Takes the action with the highest value, or with probability epsilon a random one."""

    player: Player  # the actor
    epsilons: Callable[[int], torch.Tensor]
    """Returns epsilon of each game, float32[B], given the environment steps."""

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:
        """Draw the steps at which each game explores, and the actions there."""
        games, actions = self.player.games, self.player.actions
        self._random = random
        self._noise = epsilon_noise((length, games, actions), self.epsilons(steps), random)

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return actions int64[B], given action values float32[B, A]."""
        return best_allowed(scores, self._noise[t], self._random)

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:
        """Return zeros, as losses of action values do not use probabilities."""
        return Explored(torch.zeros(actions.shape), np.ones(len(actions), dtype=np.bool_))


@dataclass(eq=False)
class LastingEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy whose random actions last several steps, also into the next rollout.

    How many steps is drawn from a zeta distribution: n has a probability proportional to
    ``n ** -2`` (epsilon z-greedy, Dabney et al. 2021, section 4.1). The share of random steps is
    epsilon all the same, so they begin more seldom than in the paper.
    """

    longest: int  # most steps that a random action lasts

    def __post_init__(self) -> None:
        numbers = torch.arange(1, self.longest + 1, dtype=torch.float64)
        self._chances = numbers**-2
        self._mean = float((self._chances * numbers).sum() / self._chances.sum())
        self._actions: Ints = np.zeros(self.player.games, dtype=np.int64)
        self._left: Ints = np.zeros(self.player.games, dtype=np.int64)  # steps that they still last

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:
        """Draw where random actions begin, which they are, and how long they last."""
        games, actions = self.player.games, self.player.actions
        self._random = random
        shape, epsilons = (length, games), self.epsilons(steps).double()
        # with this chance at each step without one, they are played in a share epsilon of all steps
        chances = epsilons / (self._mean * (1.0 - epsilons) + epsilons)
        begins = (torch.rand(shape, generator=random) < chances).numpy()
        drawn = torch.randint(actions, shape, generator=random).numpy()
        count = length * games
        longer = torch.multinomial(self._chances, count, replacement=True, generator=random)
        lasts = 1 + longer.view(shape).numpy()
        noise = np.zeros((length, games, actions), dtype=np.float32)
        for t in range(length):
            new = begins[t] & (self._left == 0)
            self._actions[new], self._left[new] = drawn[t, new], lasts[t, new]
            (explores,) = np.nonzero(self._left)
            noise[t, explores, self._actions[explores]] = np.inf
            self._left[explores] -= 1
        self._noise = torch.from_numpy(noise)

    def save(self) -> State:
        """Return the actions that go on, and for how many steps."""
        return {"left": self._left.copy(), "actions": self._actions.copy()}

    def restore(self, state: State) -> None:
        """Go on with these actions.

        Raises:
            ValueError: if they cannot be those of such games.
        """
        games, actions = self.player.games, self.player.actions
        for name, end in (("left", len(self._chances)), ("actions", actions)):
            value = state[name]
            whole = value.shape == (games,) and value.dtype == np.int64
            if not whole or value.min() < 0 or value.max() >= end:
                raise ValueError(f"{name} is not a whole number below {end} for each game")
        self._left, self._actions = state["left"].copy(), state["actions"].copy()


@dataclass(eq=False)
class StickyExploration:
    """Explores as another exploration does, until an actor has had no reward for a while.

    Then every second of its games repeats an action, drawn at random for a rollout, until the actor
    meets a reward. Random actions of a single step, and values that hardly differ, rarely lead to
    a reward that needs the same action for many steps. It is the rule of `Sampled` for actors that
    choose by action values.
    """

    otherwise: EpsilonGreedy  # how the actor explores
    hold_after: int  # steps of the actor without any reward before actions are repeated

    def __post_init__(self) -> None:
        self._rows = self.otherwise.player.every_second_game()
        self._unrewarded = 0  # steps since the last reward
        self._held: torch.Tensor | None = None  # int64[H], of those rows

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:
        """Begin a rollout, and draw the actions that are repeated in it, if there are any."""
        self.otherwise.begin(net, length, steps, random)
        self._held = None
        if self._unrewarded >= self.hold_after and len(self._rows):
            actions = self.otherwise.player.actions
            self._held = torch.randint(actions, (len(self._rows),), generator=random)

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return actions int64[B], given action values float32[B, A]."""
        actions = self.otherwise.choose(t, scores)
        if self._held is not None:
            rows = self._rows
            allowed = losses.chosen(scores[rows], self._held) > losses.FORBIDDEN
            actions[rows] = torch.where(allowed, self._held, actions[rows])
        return actions

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:
        """Count the steps without a reward."""
        self._unrewarded = unrewarded(self._unrewarded, rewards)
        return self.otherwise.end(scores, actions, rewards)

    def save(self) -> State:
        """Return the steps since the last reward, and what the other exploration saves."""
        other = self.otherwise
        saved = other.save() if isinstance(other, Lasting) else {}
        return saved | {"unrewarded": self._unrewarded}

    def restore(self, state: State) -> None:
        """Go on from a result of `save`; raises what the other exploration raises."""
        if isinstance(self.otherwise, Lasting):
            self.otherwise.restore(state)
        self._unrewarded = int(state["unrewarded"])


def epsilon_greedy(
    player: Player, epsilons: Callable[[int], torch.Tensor], longest: int, hold_after: int = 0
) -> Exploration:
    """Return epsilon-greedy exploration.

    Args:
        player: the actor.
        epsilons: as in `EpsilonGreedy`.
        longest: most steps that a random action lasts.
        hold_after: as in `StickyExploration` (0: never).
    """
    exploration = EpsilonGreedy(player, epsilons)
    if longest > 1:
        exploration = LastingEpsilonGreedy(player, epsilons, longest)
    return StickyExploration(exploration, hold_after) if hold_after else exploration


def falling(start: float, end: float, over: int, games: int) -> Callable[[int], torch.Tensor]:
    """Return a schedule with one epsilon for all games, linear over ``over`` steps."""
    return lambda steps: torch.full((games,), linear(start, end, steps, over))


def ladder(player: Player, base: float, alpha: float) -> Callable[[int], torch.Tensor]:
    """Return a constant epsilon for each game: ``epsilon_i = base^(1 + alpha i / (N - 1))``.

    Horgan et al. 2018, section 4.1. An actor of the paper plays one game. Here ``i`` is the index
    among the games of all actors, and ``N`` is their number.
    """
    number = player.actor * player.games + torch.arange(player.games)
    last = max(player.actors * player.games - 1, 1)
    epsilons = torch.as_tensor(base) ** (1.0 + number / last * alpha)
    return lambda _steps: epsilons
