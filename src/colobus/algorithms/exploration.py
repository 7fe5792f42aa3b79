"""Exploration: how actors choose actions from action scores.

An `Exploration` belongs to one actor, which tells it when a rollout begins and ends. It draws all
random numbers of a rollout in one call (docs/speed.md), from the generator that the actor gives
it, so they depend on the actor's seeds only.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from colobus.core.types import Bools, Floats, State
from colobus.nets.network import Network
from colobus.ops import losses


class Player(NamedTuple):
    """The actor that explores."""

    actor: int  # index among all actors of the run
    actors: int  # in the run
    games: int  # rows (B): games played at the same time, each with a row for each of its agents
    actions: int  # number of actions of the game (A)
    agents: int = 1  # of each game; their rows are neighbours

    def every_second_game(self) -> torch.Tensor:
        """Return the rows int64[H] of all agents of every second game."""
        rows = torch.arange(self.games)
        return rows[rows // self.agents % 2 == 1]


class Exploration(Protocol):
    """How one actor explores. It may keep a state from one rollout to the next."""

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:
        """Begin a rollout.

        Args:
            net: the actor's copy of the network. Its weights may have noise until `end`.
            length: steps of the rollout (T).
            steps: environment steps of the run so far, as the actor estimates them.
            random: generator of all random numbers of the rollout.
        """

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return the actions int64[B] of step ``t``, given scores float32[B, A]."""

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:
        """End a rollout.

        Args:
            scores: float32[B, T, A], the scores of all calls of `choose`.
            actions: int64[B, T], the actions that it returned.
            rewards: float32[B, T], raw.
        """


@runtime_checkable
class Lasting(Protocol):
    """An exploration that keeps a state from one rollout to the next."""

    def save(self) -> State:
        """Return the state between two rollouts."""

    def restore(self, state: State) -> None:
        """Go on from a result of `save`."""


class Explored(NamedTuple):
    """What a trajectory records about the exploration."""

    log_probs: torch.Tensor
    """float32[B, T]: log-probability of each action, given the actions before it."""
    independent: Bools
    """bool[B]: whether the actions of each game were independent draws from the policy."""


class Sampled:
    """Draws each action from the policy. The scores are its logits.

    Independent draws rarely find a reward that needs the same action many times in a row. With
    ``hold_after``, an actor that has had no reward for so many steps holds the random number of
    every second game: such a game draws one number in 0 … 1 for a whole rollout, and takes the
    action whose interval of the cumulative probabilities contains it. So it repeats an action
    while the policy changes little, and each action has the probability that the policy gives it.
    This is a simple form of temporally extended exploration (Dabney et al. 2021).

    The recorded probability of an action of such a game, given the actions before it, is the share
    of the random numbers consistent with those that also lead to it. The product over a rollout is
    the probability of the whole sequence of actions.

    Args:
        player: the actor.
        hold_after: steps of the actor without any reward before numbers are held (0: never).
    """

    def __init__(self, player: Player, hold_after: int = 0) -> None:
        self._player, self._hold_after = player, hold_after
        self._rows = player.every_second_game()
        self._unrewarded = 0  # steps since the last reward
        self._held: _Held | None = None

    def begin(self, net: Network, length: int, steps: int, random: torch.Generator) -> None:
        """Draw the random numbers of the whole rollout."""
        self._noise = gumbel((length, self._player.games, self._player.actions), random)
        self._held = None
        if self._hold_after and self._unrewarded >= self._hold_after and len(self._rows):
            self._held = _Held(torch.rand(len(self._rows), dtype=torch.float64, generator=random))

    def choose(self, t: int, scores: torch.Tensor) -> torch.Tensor:
        """Return actions int64[B] drawn from the softmax of ``scores`` float32[B, A]."""
        actions = (scores + self._noise[t]).argmax(dim=1)
        if self._held is not None:
            actions[self._rows] = self._held.choose(scores[self._rows])
        return actions

    def end(self, scores: torch.Tensor, actions: torch.Tensor, rewards: Floats) -> Explored:
        """Return the log-probabilities of the actions."""
        self._unrewarded = unrewarded(self._unrewarded, rewards)
        flat = losses.chosen(losses.log_softmax(scores.flatten(0, 1)), actions.flatten())
        log_probs = flat.view(actions.shape)
        independent: Bools = np.ones(len(actions), dtype=np.bool_)
        if self._held is not None:
            log_probs[self._rows] = self._held.log_probs()
            independent[self._rows.numpy()] = False
        return Explored(log_probs, independent)

    def save(self) -> State:
        """Return the steps since the last reward."""
        return {"unrewarded": self._unrewarded}

    def restore(self, state: State) -> None:
        """Go on with so many steps since the last reward."""
        self._unrewarded = int(state["unrewarded"])


class _Held:
    """Games that hold one random number each for a rollout: ``numbers`` float64[H] in 0 … 1."""

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
        before = self._high - self._low  # share of the numbers that lead to the actions so far
        self._low, self._high = torch.maximum(self._low, low), torch.minimum(self._high, high)
        now = (self._high - self._low).clamp(min=1e-12)
        self._log_probs.append((now / before.clamp(min=1e-12)).log().clamp(max=0.0))
        return actions

    def log_probs(self) -> torch.Tensor:
        """Return the log-probabilities float32[H, T] of the actions, given the actions before."""
        return torch.stack(self._log_probs, dim=1).float()


def gumbel(shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    """Return Gumbel noise: the argmax of logits plus noise is a draw from their softmax.

    Gumbel 1954; Maddison et al. 2014, section 2.
    """
    uniform = torch.rand(shape, generator=random).clamp_(1e-7, 1.0 - 1e-7)
    return -torch.log(-torch.log(uniform))


def epsilon_noise(
    shape: tuple[int, ...], epsilon: torch.Tensor | float, random: torch.Generator
) -> torch.Tensor:
    """Return noise float32[…, A] with which the argmax of values is epsilon-greedy.

    A row explores with probability ``epsilon``, whose shape broadcasts to the rows. It is then
    infinite at one action, drawn uniformly. All other elements are 0.
    """
    rows = shape[:-1]
    explores = torch.rand(rows, generator=random) < epsilon
    actions = torch.randint(shape[-1], rows, generator=random)
    height = torch.where(explores, torch.inf, 0.0)
    return torch.zeros(shape).scatter_(-1, actions.unsqueeze(-1), height.unsqueeze(-1))


def best_allowed(
    scores: torch.Tensor, noise: torch.Tensor, random: torch.Generator
) -> torch.Tensor:
    """Return the actions int64[B] of the largest sums of scores and noise, float32[B, A].

    Where noise chose an action that is not allowed (`colobus.ops.losses.masked`), each of those
    that are is drawn with the same probability. So if noise chooses any action with the same
    probability, what is played is uniform over the allowed ones.
    """
    actions = (scores + noise).argmax(dim=1)
    forbidden = losses.chosen(scores, actions) <= losses.FORBIDDEN
    if forbidden.any():
        allowed = (scores[forbidden] > losses.FORBIDDEN).float()
        actions[forbidden] = torch.multinomial(allowed, 1, generator=random).squeeze(1)
    return actions


def unrewarded(before: int, rewards: Floats) -> int:
    """Return the steps since the last reward: ``before`` a rollout and with it (0: it had one)."""
    return 0 if rewards.any() else before + rewards.size
