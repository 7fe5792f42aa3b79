"""Acting: what algorithms share. The action is the argmax of the scores plus noise."""

from __future__ import annotations

import torch

from gelada.nets.network import Network


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return Gumbel noise: the argmax of logits plus noise is a draw from their softmax."""
    uniform = torch.rand(shape, generator=generator).clamp_(1e-7, 1.0 - 1e-7)
    return -torch.log(-torch.log(uniform))


def epsilon_greedy(
    shape: tuple[int, ...], epsilon: torch.Tensor | float, generator: torch.Generator
) -> torch.Tensor:
    """Return noise float32[…, A] with which the argmax of values is epsilon-greedy.

    Each row explores with probability ``epsilon`` (of a shape that broadcasts to the rows): then
    it is infinite at one action, drawn from all with equal chances. Other rows are 0.
    """
    rows = shape[:-1]
    explores = torch.rand(rows, generator=generator) < epsilon
    actions = torch.randint(shape[-1], rows, generator=generator)
    height = torch.where(explores, torch.inf, 0.0)
    return torch.zeros(shape).scatter_(-1, actions.unsqueeze(-1), height.unsqueeze(-1))


def act(
    net: Network, stacks: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions int64[B] and logits float32[B, A] for seen stacks and noise [B, A]."""
    logits: torch.Tensor = net.heads["policy"](net.features(stacks))
    return (logits + noise).argmax(dim=1), logits
