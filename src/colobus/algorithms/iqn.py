"""IQN: implicit quantile networks, which learn the whole distribution of each action's return.

Dabney et al. 2018 (arXiv:1806.06923). The head gets a share tau in 0 … 1 besides the hidden layer,
and returns the tau-quantile of each action's return. A loss compares quantiles at random shares of
the current network with quantiles at other random shares of the target network. N-step returns and
double Q-learning are those of DQN.

There are two differences from the paper. The embedding of tau multiplies the last hidden layer
instead of the last convolution. Actions are chosen by quantiles at fixed, evenly spaced shares
instead of random ones, so that a trained agent acts alike each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import nn
from torch.func import functional_call

from colobus.algorithms.action_values import ActionValues
from colobus.algorithms.api import Source, Terms, target_parameters
from colobus.algorithms.batches import WholeBatch
from colobus.core.fields import POSITIVE, OnlyWith, Range
from colobus.core.types import AlgorithmState, Batch
from colobus.nets.config import LinearInit
from colobus.nets.heads import Head, Linear
from colobus.nets.network import Network
from colobus.ops import losses

TARGETED = OnlyWith("with --target-every above 0", lambda iqn: iqn.target_every > 0)


class ImplicitQuantiles(Head):
    """Quantiles of each action's return at any shares.

    Args:
        width: units of the hidden layer.
        actions: number of actions (A).
        cosines: of which a share's embedding is made.
        count: evenly spaced shares for acting (K).
    """

    def __init__(self, width: int, actions: int, cosines: int, count: int) -> None:
        super().__init__()
        self._cosines, self._count = cosines, count
        self.embedding = Linear(cosines, width)
        self.last = Linear(width, actions)

    def start(self, init: LinearInit) -> None:
        """Draw the initial weights of both layers."""
        self.embedding.start(init)
        self.last.start(init)

    def at(self, hidden: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Return quantiles float32[M, A, N] for hidden [M, width] and shares [M, N].

        The embedding is equation 4: ``ReLU(sum_i cos(pi i tau) w_ij + b_j)`` with i from 0.
        """
        waves = math.pi * torch.arange(self._cosines, device=hidden.device)
        # both layers take rows [M N, …]: else torch exports their weights under other names
        embedded = self.embedding(torch.cos(shares.reshape(-1, 1) * waves)).relu()
        each = hidden.unsqueeze(1) * embedded.unflatten(0, shares.shape)  # [M, N, width]
        quantiles: torch.Tensor = self.last(each.flatten(0, 1)).unflatten(0, shares.shape)
        return quantiles.transpose(1, 2)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the quantiles float32[M, A, K] for acting, whose mean is the action's value."""
        shares = (torch.arange(self._count, device=hidden.device) + 0.5) / self._count
        return self.at(hidden, shares.expand(hidden.shape[0], -1))  # len() would be exported as 2


class QuantilesAt(nn.Module):
    """A network that returns quantiles at given shares, with its own or with other parameters."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, stacks: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Return quantiles [M, A, N] of preprocessed stacks [M, K, H, W] at shares [M, N]."""
        head: ImplicitQuantiles = self.net.heads["q"]  # type: ignore[assignment]  # made in `heads`
        return head.at(self.net.features(stacks), shares)


def quantile_loss(
    quantiles: torch.Tensor, shares: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Return the quantile Huber loss [M] of equation 3, with kappa 1.

    It is the sum over the quantiles and the mean over the targets.

    Args:
        quantiles: float32[M, N].
        shares: float32[M, N], of the quantiles.
        targets: float32[M, N'], samples of what their distribution should be.
    """
    errors = targets.unsqueeze(1) - quantiles.unsqueeze(2)  # [M, N, N']
    slopes = (shares.unsqueeze(2) - (errors < 0).float()).abs()
    return (slopes * losses.huber(errors)).mean(dim=2).sum(dim=1)


@dataclass(frozen=True)
class IQN(ActionValues):
    """Hyper-parameters and methods of IQN; the defaults are those of the paper for Atari."""

    n: Annotated[int, Range(1, 65536)] = 1
    """Rewards in a return before it bootstraps, and the steps of a window."""
    double: Annotated[bool, TARGETED] = False
    """Double Q-learning: the current network chooses the action, the target network its return."""
    cosines: Annotated[int, Range(1, 1024)] = 64
    """Cosines of which the embedding of a share is made."""
    quantiles: Annotated[int, Range(1, 1024)] = 64
    """Random quantiles of the action taken that are learned in each step."""
    target_quantiles: Annotated[int, Range(1, 1024)] = 64
    """Random quantiles of the return that each of them is compared with."""
    acting_quantiles: Annotated[int, Range(1, 1024)] = 32
    """Evenly spaced quantiles whose mean is the value of an action."""
    target_every: Annotated[int, Range(0)] = 2_500
    """Updates between copies of the parameters to the target network (0: no target network)."""
    target_tau: Annotated[float, Range(above=0, high=1), TARGETED] = 1.0
    """Share of the parameters in the target network after each such copy; the rest is what was
    there before (1: a plain copy)."""
    lr: Annotated[float, POSITIVE] = 5e-5
    """Learning rate at the start …"""
    lr_end: Annotated[float, POSITIVE] = 5e-5
    """… and after anneal_steps."""

    source: ClassVar[Source] = "buffer"
    fits_cuda_graph: ClassVar[bool] = False  # the shares are drawn anew for each gradient

    def window(self, length: int) -> int:
        """Return ``n``, the steps of a return."""
        return self.n

    def learned(self, window: int) -> int:
        """Return 1: only a window's first step is learned."""
        return 1

    def heads(self, actions: int, width: int) -> dict[str, Head]:
        """Return the head of quantiles."""
        return {"q": ImplicitQuantiles(width, actions, self.cosines, self.acting_quantiles)}

    def means(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the values […] of quantiles […, K]."""
        return outputs.mean(dim=-1)

    def prepare(self, net: Network, batch: Batch, algorithm_state: AlgorithmState) -> WholeBatch:
        """Preprocess and stack the first and the last observation of each return."""
        return self.first_steps(net, batch, self.now(algorithm_state, "gamma"))

    def loss(
        self,
        net: Network,
        minibatch: WholeBatch,
        algorithm_state: AlgorithmState,
        random: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, Terms]:
        """Return the weighted mean loss of the windows' first steps, and scalars to log."""
        assert minibatch.partial is not None
        rewards, discounts, _ = minibatch.partial
        batch, count = minibatch.batch, minibatch.size
        first, following = minibatch.observations.chunks(count)
        sizes = (count, self.quantiles), (count, self.target_quantiles)
        shares, others = (torch.rand(size, generator=random).to(first.device) for size in sizes)
        quantiles_at = QuantilesAt(net)
        quantiles = losses.chosen(quantiles_at(first, shares), batch.actions[:, 0])
        with torch.no_grad():
            target = target_parameters(algorithm_state)
            named = {f"net.{name}": value for name, value in target.items()}
            returns = functional_call(quantiles_at, named, (following, others))
            chooser = {} if self.double else target  # {}: the current network
            outputs = functional_call(net, chooser, (following,))
            allowed = minibatch.observations.allowed[count:, 0]
            best = losses.masked(self.means(outputs["q"]), allowed).argmax(dim=1)
            returns = losses.chosen(returns, best)
            targets = rewards.unsqueeze(1) + discounts.unsqueeze(1) * returns
        # what is masked may be infinite, and 0 times infinity is not 0
        targets = targets.masked_fill(~batch.mask[:, :1], 0.0)
        each = quantile_loss(quantiles, shares, targets)
        values = quantiles.detach().mean(dim=1)
        errors = (targets.mean(dim=1) - values) * batch.mask[:, 0]
        columns = (each.unsqueeze(1), values.unsqueeze(1), errors.unsqueeze(1))
        return self.mean_loss(minibatch, *columns)
