"""Exploration with action values: mostly the best action, else one at random."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from gelada.algorithms.api import linear
from gelada.algorithms.exploration import (
    Exploration,
    Explored,
    Lasting,
    Player,
    epsilon_noise,
    unrewarded,
)
from gelada.core.types import Floats, Ints, State
from gelada.nets.network import Network


class EpsilonGreedy:
    """Takes the action with the highest value, or with probability epsilon a random one.

    Args:
        player: the actor.
        epsilons: returns epsilon of each game, float32[B], given the environment steps.
    """

    def __init__(self, player: Player, epsilons: Callable[[int], torch.Tensor]) -> None:
        self._player, self._epsilons = player, epsilons

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:  # noqa: ARG002 - the protocol
        """Draw the steps at which each game explores, and the actions there."""
        _, _, games, actions = self._player
        self._noise = epsilon_noise((length, games, actions), self._epsilons(steps), random)

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return actions int64[B], given action values float32[B, A]."""
        return (scores + self._noise[t]).argmax(dim=1)

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:  # noqa: ARG002 - the protocol
        """Return zeros, as losses of action values do not use probabilities."""
        return Explored(torch.zeros(actions.shape), np.ones(len(actions), dtype=np.bool_))


class LastingEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy whose random actions last several steps, also into the next rollout.

    How many steps is drawn from a zeta distribution: n has a probability proportional to
    ``n ** -2`` (epsilon z-greedy, Dabney et al. 2021, section 4.1). The share of random steps is
    epsilon all the same, so they begin more seldom than in the paper.

    Args:
        player: the actor.
        epsilons: as in `EpsilonGreedy`.
        longest: most steps that a random action lasts.
    """

    def __init__(
        self, player: Player, epsilons: Callable[[int], torch.Tensor], longest: int
    ) -> None:
        super().__init__(player, epsilons)
        numbers = torch.arange(1, longest + 1, dtype=torch.float64)
        self._chances = numbers**-2
        self._mean = float((self._chances * numbers).sum() / self._chances.sum())
        self._actions: Ints = np.zeros(player.games, dtype=np.int64)
        self._left: Ints = np.zeros(player.games, dtype=np.int64)  # steps that they still last

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:  # noqa: ARG002 - the protocol
        """Draw where random actions begin, which they are, and how long they last."""
        _, _, games, actions = self._player
        shape, epsilons = (length, games), self._epsilons(steps).double()
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
        _, _, games, actions = self._player
        for name, end in (("left", len(self._chances)), ("actions", actions)):
            value = state[name]
            whole = value.shape == (games,) and value.dtype == np.int64
            if not whole or value.min() < 0 or value.max() >= end:
                raise ValueError(f"{name} is not a whole number below {end} for each game")
        self._left, self._actions = state["left"].copy(), state["actions"].copy()


class Repeating:
    """Explores as another exploration does, until an actor has had no reward for a while.

    Then every second of its games repeats an action, drawn at random for a rollout, until the actor
    meets a reward. Random actions of a single step, and values that hardly differ, rarely lead to
    a reward that needs the same action for many steps. It is the rule of `Sampled` for actors that
    choose by action values.

    Args:
        player: the actor.
        otherwise: how it explores.
        hold_after: steps of the actor without any reward before actions are repeated.
    """

    def __init__(self, player: Player, otherwise: EpsilonGreedy, hold_after: int) -> None:
        self._player, self._otherwise, self._hold_after = player, otherwise, hold_after
        self._unrewarded = 0  # steps since the last reward
        self._held: torch.Tensor | None = None  # int64[B // 2]

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:
        """Begin a rollout, and draw the actions that are repeated in it, if there are any."""
        self._otherwise.begin(net, length, steps, random)
        _, _, games, actions = self._player
        self._held = None
        if self._unrewarded >= self._hold_after and games > 1:
            self._held = torch.randint(actions, (games // 2,), generator=random)

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return actions int64[B], given action values float32[B, A]."""
        actions = self._otherwise.choose(t, scores)
        if self._held is not None:
            actions[1::2] = self._held
        return actions

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:
        """Count the steps without a reward."""
        self._unrewarded = unrewarded(self._unrewarded, rewards)
        return self._otherwise.end(scores, actions, rewards)

    def save(self) -> State:
        """Return the steps since the last reward, and what the other exploration saves."""
        other = self._otherwise
        saved = other.save() if isinstance(other, Lasting) else {}
        return saved | {"unrewarded": self._unrewarded}

    def restore(self, state: State) -> None:
        """Go on from a result of `save`; raises what the other exploration raises."""
        if isinstance(self._otherwise, Lasting):
            self._otherwise.restore(state)
        self._unrewarded = int(state["unrewarded"])


def epsilon_greedy(
    player: Player, epsilons: Callable[[int], torch.Tensor], longest: int, hold_after: int = 0
) -> Exploration:
    """Return epsilon-greedy exploration.

    Args:
        player: the actor.
        epsilons: as in `EpsilonGreedy`.
        longest: most steps that a random action lasts.
        hold_after: as in `Repeating` (0: never).
    """
    exploration = EpsilonGreedy(player, epsilons)
    if longest > 1:
        exploration = LastingEpsilonGreedy(player, epsilons, longest)
    return Repeating(player, exploration, hold_after) if hold_after else exploration


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
