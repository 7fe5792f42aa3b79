"""Acting with a stochastic policy: what the actor-critic algorithms share."""

from __future__ import annotations

import torch

from gelada.nets.network import Network


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return Gumbel noise: the argmax of logits plus noise is a draw from their softmax."""
    uniform = torch.rand(shape, generator=generator).clamp_(1e-7, 1.0 - 1e-7)
    return -torch.log(-torch.log(uniform))


def act(
    net: Network, stacks: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions int64[B] and logits float32[B, A] for seen stacks and noise [B, A]."""
    logits: torch.Tensor = net.heads["policy"](net.features(stacks))
    return (logits + noise).argmax(dim=1), logits
