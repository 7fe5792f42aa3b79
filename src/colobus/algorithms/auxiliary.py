"""Losses of the autoencoder: reconstruction of pixels, or prediction of the next steps.

The reconstruction is that of "Accelerating Distributed Deep Reinforcement Learning" (RLDM 2019).
The prediction is self-predictive learning in its simplest form that works (SPR, Schwarzer et al.
2021; Ni et al. 2024): the hidden layer of the next steps is a target without gradient, compared by
the cosine. The sign of the reward and the end of the game are predicted too (UNREAL, Jaderberg et
al. 2017; MR.Q, Fujimoto et al. 2025). Targets cost no forward pass of their own: APPO has the
hidden layers that it computed before the first epoch, DQN those of the pass that it learns from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from colobus.core.types import Batch
from colobus.nets.autoencoder import REWARDS, Decoder, Prediction
from colobus.nets.network import Network, Observed
from colobus.ops.losses import mean_of

HORIZON = 3
"""Steps that are predicted ahead."""


def first_part(count: int, part: float) -> int:
    """Return how many of ``count`` samples of a minibatch the loss takes, at least one."""
    return math.ceil(count * part)


class Ahead(NamedTuple):
    """What followed each of ``M`` steps, ``H`` steps ahead; the first is the step itself."""

    actions: torch.Tensor  # int64[M, H]
    rewards: torch.Tensor  # int64[M, H], 0: negative, 1: none, 2: positive
    ends: torch.Tensor  # float32[M, H], 1 where the game terminated
    weights: torch.Tensor  # float32[M, H] of reward and end; 0 from the first unknown step on
    latents: torch.Tensor  # float32[M, H, width], hidden layer of the observation after each
    follows: torch.Tensor  # float32[M, H], weights of the latents: 0 where the game ended, too


class Future:
    """The next `HORIZON` steps of every step of a batch.

    A step is known if it is in the same window, all steps up to it have a loss (those whose mask
    is 0 were truncated, or played another action than the recorded one), and no step before it
    was the last of a game. The observation after a step is known if that step is and was not the
    last of a game.

    Args:
        batch: ``N`` windows of ``T`` steps.
        latents: float32[N * (T + 1), width], hidden layers of all its observations.
        part: of a minibatch that the loss takes.
    """

    def __init__(self, batch: Batch, latents: torch.Tensor, part: float) -> None:
        windows, length = batch.actions.shape
        device = batch.actions.device
        steps = torch.arange(length, device=device).unsqueeze(1)
        steps = steps + torch.arange(HORIZON, device=device)  # [T, H]
        inside, steps = steps < length, steps.clamp(max=length - 1)
        learned = batch.mask[:, steps] & inside  # [N, T, H]
        over = (batch.terminated | batch.truncated)[:, steps]
        goes_on = (learned & ~over).float().cumprod(dim=2)
        before = functional.pad(goes_on[..., :-1], (1, 0), value=1.0)
        rewards = batch.rewards.masked_fill(~batch.mask, 0.0)  # what has no loss may hold anything
        signs = (rewards > 0).long() - (rewards < 0).long() + 1
        first = torch.arange(windows, device=device).view(-1, 1, 1) * (length + 1)
        weights = batch.weights.view(-1, 1, 1)
        self._after = (first + steps + 1).flatten(0, 1)  # [N * T, H], index of the observation
        self._latents, self._part = latents, part
        self._actions = batch.actions[:, steps].flatten(0, 1)
        self._rewards = signs[:, steps].flatten(0, 1)
        self._ends = batch.terminated[:, steps].float().flatten(0, 1)
        self._weights = (weights * learned * before).flatten(0, 1)
        self._follows = (weights * goes_on).flatten(0, 1)

    def select(self, index: torch.Tensor) -> Ahead:
        """Return what followed the first part of the steps with indices int64[M], ``n * T + t``."""
        index = index[: first_part(len(index), self._part)]
        return Ahead(
            self._actions[index],
            self._rewards[index],
            self._ends[index],
            self._weights[index],
            self._latents[self._after[index]],
            self._follows[index],
        )


def loss(
    net: Network,
    code: torch.Tensor,
    observations: torch.Tensor | Observed,
    ahead: Ahead | None,
    weights: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the autoencoder's loss times its weight, and scalars to log by name.

    It is that of the first samples of a minibatch (`first_part`), which are in random order.

    Args:
        net: has a decoder or a prediction.
        code: what the network computed from the observations for it.
        observations: [M, K, H, W], preprocessed; or in sequences.
        ahead: what followed the first part, for a prediction.
        weights: float32[M] of the samples, for a reconstruction.
    """
    stacks = observations.stacks if isinstance(observations, Observed) else observations
    count = first_part(len(code), net.auxiliary_part)
    code = code[:count]
    if isinstance(net.auxiliary, Decoder):
        with net.casting():
            found = net.auxiliary(code)
        wanted = net.auxiliary.wanted(stacks[:count])
        total = reconstruction_loss(found, wanted, weights[:count])
        return net.auxiliary_weight * total, {"reconstruction_loss": total.detach()}
    assert ahead is not None
    return prediction_loss(net, code, ahead)


def window_loss(
    net: Network, codes: torch.Tensor, batch: Batch
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the loss of a prediction from whole windows times its weight, and scalars to log.

    It is that of a part of the steps, evenly spread over the windows. The targets are those of the
    network itself, without gradient.

    Args:
        net: has a prediction.
        codes: its output `CODE` for all observations of the batch, [N * (T + 1), width].
        batch: ``N`` windows of ``T`` steps.
    """
    length, steps = batch.actions.shape[1], batch.actions.numel()
    count = first_part(steps, net.auxiliary_part)
    index = torch.arange(count, device=codes.device) * steps // count
    ahead = Future(batch, codes.detach(), 1.0).select(index)
    return prediction_loss(net, codes[index + index // length], ahead)


def prediction_loss(
    net: Network, code: torch.Tensor, ahead: Ahead
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the loss of a prediction times its weight, and scalars to log by name.

    It is the sum of the losses of reward, end and next hidden layer. They are means over all known
    steps: the cross-entropy of the reward's sign, that of the end, and 1 minus the cosine between
    the predicted hidden layer and the target.

    Args:
        net: has a prediction.
        code: what it predicts from, hidden layers [M, width].
        ahead: what followed.
    """
    assert isinstance(net.auxiliary, Prediction)
    with net.casting():
        latents, outcomes = net.auxiliary(code, ahead.actions)  # [M, H, width], logits
    signs, end = outcomes[..., :REWARDS], outcomes[..., REWARDS]
    reward = functional.cross_entropy(signs.mT, ahead.rewards, reduction="none")
    ends = functional.binary_cross_entropy_with_logits(end, ahead.ends, reduction="none")
    angle = 1.0 - functional.cosine_similarity(latents, ahead.latents, dim=2)
    terms = {
        "reward_prediction_loss": mean_of(reward, ahead.weights),
        "end_prediction_loss": mean_of(ends, ahead.weights),
        "latent_prediction_loss": mean_of(angle, ahead.follows),
    }
    total = torch.stack(list(terms.values())).sum()
    logged = {name: term.detach() for name, term in terms.items()}
    return net.auxiliary_weight * total, logged | {"prediction_loss": total.detach()}


def reconstruction_loss(
    found: torch.Tensor, wanted: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return half the mean square of the errors of standardised pixels.

    Args:
        found: [M, C, H, W], reconstructed.
        wanted: [M, C, H, W], standardised pixels.
        weights: float32[M] of the samples.
    """
    rows = [x.permute(0, 2, 3, 1).flatten(1).float() for x in (found, wanted)]  # no copies
    return 0.5 * mean_of((rows[0] - rows[1]).square().mean(dim=1), weights)
