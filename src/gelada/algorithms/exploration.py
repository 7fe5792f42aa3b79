"""How actors explore: from scores of actions to the actions that are played.

An `Exploration` belongs to one actor and is told when a rollout begins and ends. It draws the
randomness of a whole rollout in one call, from the generator that it is given, so the actor's
seeds decide all of it (docs/speed.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch

from gelada.algorithms.schedules import linear
from gelada.core.types import Bools, Floats
from gelada.nets.network import Network
from gelada.ops import losses


class Player(NamedTuple):
    """The actor that explores."""

    actor: int  # index among all actors of the run
    actors: int  # in the run
    games: int  # that it plays side by side (B)
    actions: int  # of the game (A)


class Exploration(Protocol):
    """How one actor explores. It keeps what it needs from one rollout to the next."""

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:
        """Get ready for a rollout.

        Args:
            net: the actor's own copy; noise may be put into its weights until `end`.
            length: steps of the rollout (T).
            steps: environment steps of the run so far, as far as the actor knows.
            random: all randomness of the rollout comes from here.
        """

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return the actions int64[B] of step ``t`` for scores float32[B, A]."""

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:
        """Close the rollout.

        Args:
            scores: float32[B, T, A], as they were shown to `choose`.
            actions: int64[B, T] that were chosen.
            rewards: float32[B, T], raw.
        """


class Explored(NamedTuple):
    """What is recorded about a rollout's actions."""

    log_probs: torch.Tensor
    """float32[B, T]: log of the probability with which the action was played, given all before."""
    independent: Bools
    """bool[B]: the game's actions were independent draws from the policy at each step."""


class Sampled:
    """Draws each action from the policy, whose logits the scores are.

    A policy that draws every action anew gets nowhere where only a long way in one direction is
    rewarded. With ``hold_after`` an actor that has met no reward for so many steps lets every
    other game (the second, the fourth, …) keep its random number for a whole rollout, until a
    reward is met. Such a game always prefers some action, with the odds of the policy: it takes
    the action in whose part of the cumulated probabilities the one number falls. This is a simple
    form of temporally extended exploration (Dabney et al. 2021).

    The probability of an action of such a game, given those before it, is the share of the
    numbers still possible that lead to it. Over a rollout these multiply to the probability of
    the whole sequence of actions.

    Args:
        player: the actor.
        hold_after: steps of this actor without any reward; 0: never hold.
    """

    def __init__(self, player: Player, hold_after: int = 0) -> None:
        self._player, self._hold_after = player, hold_after
        self._unrewarded = 0  # steps since the last reward
        self._held: _Held | None = None

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:  # noqa: ARG002 - the protocol
        """Draw the random numbers of all steps."""
        _, _, games, actions = self._player
        self._noise = gumbel((length, games, actions), random)
        self._held = None
        if self._hold_after and self._unrewarded >= self._hold_after and games > 1:
            self._held = _Held(torch.rand(games // 2, dtype=torch.float64, generator=random))

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return actions int64[B] drawn from the softmax of ``scores`` float32[B, A]."""
        actions = (scores + self._noise[t]).argmax(dim=1)
        if self._held is not None:
            actions[1::2] = self._held.choose(scores[1::2])
        return actions

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:
        """Return the log-probabilities of what was played."""
        self._unrewarded = 0 if rewards.any() else self._unrewarded + rewards.size
        flat = losses.chosen(losses.log_softmax(scores.flatten(0, 1)), actions.flatten())
        log_probs = flat.view(actions.shape)
        independent: Bools = np.ones(len(actions), dtype=np.bool_)
        if self._held is not None:
            log_probs[1::2] = self._held.log_probs()
            independent[1::2] = False
        return Explored(log_probs, independent)


class _Held:
    """Games that keep one number in 0 … 1 each for a rollout; ``numbers`` float64[H]."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self._numbers = numbers
        self._low, self._high = torch.zeros_like(numbers), torch.ones_like(numbers)
        self._log_probs: list[torch.Tensor] = []

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the actions int64[H] for logits float32[H, A]."""
        probabilities = torch.softmax(logits.double(), dim=1)
        above = probabilities.cumsum(dim=1)
        actions = (above <= self._numbers.unsqueeze(1)).sum(dim=1).clamp(max=logits.shape[1] - 1)
        high = above.gather(1, actions.unsqueeze(1)).squeeze(1)
        low = high - probabilities.gather(1, actions.unsqueeze(1)).squeeze(1)
        before = self._high - self._low  # the numbers that lead to the actions until now
        self._low, self._high = torch.maximum(self._low, low), torch.minimum(self._high, high)
        now = (self._high - self._low).clamp(min=1e-12)
        self._log_probs.append((now / before.clamp(min=1e-12)).log().clamp(max=0.0))
        return actions

    def log_probs(self) -> torch.Tensor:
        """Return the log-probabilities of all actions, each given those before: float32[H, T]."""
        return torch.stack(self._log_probs, dim=1).float()


class EpsilonGreedy:
    """Takes the best action, or with probability epsilon any: for values of actions.

    Args:
        player: the actor.
        epsilons: from environment steps to epsilon in each game, float32[B].
    """

    def __init__(self, player: Player, epsilons: Callable[[int], torch.Tensor]) -> None:
        self._player, self._epsilons = player, epsilons

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:  # noqa: ARG002 - the protocol
        """Draw where each game explores, and what it plays there."""
        _, _, games, actions = self._player
        self._noise = epsilon_noise((length, games, actions), self._epsilons(steps), random)

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return the best actions int64[B] by values float32[B, A], or random ones."""
        return (scores + self._noise[t]).argmax(dim=1)

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:  # noqa: ARG002 - the protocol
        """Return zeros: no loss of values asks how probable an action was."""
        return Explored(torch.zeros(actions.shape), np.ones(len(actions), dtype=np.bool_))


def falling(start: float, end: float, over: int, games: int) -> Callable[[int], torch.Tensor]:
    """Return one epsilon for all games that falls in a straight line over so many steps."""
    return lambda steps: torch.full((games,), linear(start, end, steps, over))


def ladder(player: Player, base: float, alpha: float) -> Callable[[int], torch.Tensor]:
    """Return a constant epsilon for each game: ``epsilon_i = base^(1 + alpha i / (N - 1))``.

    Horgan et al. 2018, section 4.1. An actor of the paper plays one game, so here ``i`` counts
    the games of all actors.
    """
    number = player.actor * player.games + torch.arange(player.games)
    last = max(player.actors * player.games - 1, 1)
    epsilons = torch.as_tensor(base) ** (1.0 + number / last * alpha)
    return lambda _steps: epsilons


def gumbel(shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    """Return Gumbel noise: the argmax of logits plus noise is a draw from their softmax."""
    uniform = torch.rand(shape, generator=random).clamp_(1e-7, 1.0 - 1e-7)
    return -torch.log(-torch.log(uniform))


def epsilon_noise(
    shape: tuple[int, ...], epsilon: torch.Tensor | float, random: torch.Generator
) -> torch.Tensor:
    """Return noise float32[…, A] with which the argmax of values is epsilon-greedy.

    Each row explores with probability ``epsilon`` (of a shape that broadcasts to the rows): then
    it is infinite at one action, drawn from all with equal chances. Other rows are 0.
    """
    rows = shape[:-1]
    explores = torch.rand(rows, generator=random) < epsilon
    actions = torch.randint(shape[-1], rows, generator=random)
    height = torch.where(explores, torch.inf, 0.0)
    return torch.zeros(shape).scatter_(-1, actions.unsqueeze(-1), height.unsqueeze(-1))
