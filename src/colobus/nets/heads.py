"""Heads: modules that compute an algorithm's outputs from the hidden layer [M, width]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from colobus.core.errors import ColobusError
from colobus.core.functions import find_function
from colobus.nets.config import LinearInit, start_linear


class Head(nn.Module):
    """A head of the network.

    An algorithm makes its heads and gives them names (`colobus.algorithms.api.Algorithm.heads`).
    The heads that acting needs come first.
    """

    def start(self, init: LinearInit) -> None:
        """Draw the initial weights; a head without this keeps those that it was made with."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the output float32[M, …] for the hidden layer float32[M, width]."""
        raise NotImplementedError


class Linear(nn.Linear, Head):
    """One linear layer: outputs float32[M, outputs].

    Args:
        width: units of the hidden layer.
        outputs: number of outputs of each sample.
        gain: of orthogonal initial weights; 0.01 makes the initial policy nearly uniform.
    """

    def __init__(self, width: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__(width, outputs)
        self.gain = gain

    def start(self, init: LinearInit) -> None:
        """Draw the initial weights and set the biases to 0."""
        start_linear(self, init, self.gain)


class ActionValues(Head):
    """Values of the actions, or distributions of them as `colobus.ops.distributions` reads them.

    With ``duelling`` they are outputs of the state and the centred ones of the actions, as in Wang
    et al. 2016, equation 9: ``Q(x, a) = V(x) + A(x, a) - mean_b A(x, b)``.

    Args:
        width: units of the hidden layer.
        actions: number of actions (A).
        atoms: outputs for each action; 1: the value itself.
        duelling: whether the state has a layer of its own.
    """

    def __init__(self, width: int, actions: int, atoms: int, duelling: bool) -> None:
        super().__init__()
        self._shape = (-1, atoms) if atoms > 1 else (-1,)
        gain = 0.1 if atoms > 1 else 1.0  # the first distributions are nearly alike
        self.advantage = Linear(width, actions * atoms, gain)
        self.value = Linear(width, atoms, gain) if duelling else None

    def start(self, init: LinearInit) -> None:
        """Draw the initial weights of both layers."""
        self.advantage.start(init)
        if self.value is not None:
            self.value.start(init)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32[M, A], or the outputs float32[M, A, atoms] of distributions."""
        outputs: torch.Tensor = self.advantage.forward(hidden).unflatten(1, self._shape)
        if self.value is None:
            return outputs
        state = self.value.forward(hidden).view(-1, 1, *outputs.shape[2:])
        return state + outputs - outputs.mean(dim=1, keepdim=True)


def action_values(width: int, actions: int, atoms: int, duelling: bool) -> Head:
    """Return a new head of action values; see `ActionValues` for the arguments."""
    if atoms > 1 or duelling:
        return ActionValues(width, actions, atoms, duelling)
    return Linear(width, actions)


class Separate(nn.Module):
    """A head of its own for each agent of a game.

    Args:
        heads: of the agents, alike.
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        super().__init__()
        self.of_agent = nn.ModuleList(heads)

    def forward(self, hidden: torch.Tensor, agents: torch.Tensor) -> torch.Tensor:
        """Return each row's output [M, …], for hidden [M, width] and its agent int64[M]."""
        outputs = torch.stack([head(hidden) for head in self.of_agent])
        return outputs[agents, torch.arange(hidden.shape[0], device=hidden.device)]


MakeHeads = Callable[[int], dict[str, Head]]
"""Makes the heads by name, given the width of the hidden layer. Heads for acting come first."""


def user_heads(name: str, heads: dict[str, Head], width: int) -> dict[str, Head]:
    """Return the heads that a function of the user makes of the algorithm's (docs/extending.md).

    The function is called with the algorithm's heads by name and the width of the hidden layer, and
    returns heads of the same names in the same order, with the methods of the algorithm's.

    Raises:
        ColobusError: if the function cannot be found or makes something else.
    """
    made: Any = find_function(name)(dict(heads), width)
    fits = isinstance(made, dict) and all(isinstance(head, Head) for head in made.values())
    if not fits or list(made) != list(heads):
        found = list(made) if isinstance(made, dict) else type(made).__name__
        raise ColobusError(
            f"--own-heads {name}: returned {found}, must be a dictionary of "
            f"colobus.nets.heads.Head with the names {list(heads)}"
        )
    hidden = torch.zeros(2, width)
    for each, head in heads.items():
        try:
            with torch.no_grad():
                wanted, outputs = head(hidden).shape, made[each](hidden).shape
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            why = str(error).partition("\n")[0]
            raise ColobusError(
                f"--own-heads {name}: {each!r} cannot take 2 samples of {width}: {why}"
            ) from None
        if wanted != outputs:
            raise ColobusError(
                f"--own-heads {name}: the output of {each!r} is {list(outputs)} for 2 samples, "
                f"must be {list(wanted)}"
            )
        if lacking := [n for n in vars(type(head)) if n[0] != "_" and not hasattr(made[each], n)]:
            raise ColobusError(
                f"--own-heads {name}: {each!r} has no method {lacking[0]}, unlike the one that "
                f"it replaces; let it inherit from {type(head).__name__}"
            )
    return dict(made)
