"""Prediction of the next steps from the hidden layer, instead of a reconstruction of pixels."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from gelada.nets.config import NetworkSettings
from gelada.nets.init import RELU_GAIN, start_linear

REWARDS = 3
"""Classes of a reward: negative, none, positive."""


class Prediction(nn.Module):
    """Predicts, from a hidden layer and actions, each step's outcome and the next hidden layer.

    One layer of ``width`` units sees the hidden layer and the action; all predictions are linear
    in it, as in MR.Q (Fujimoto et al. 2025). Applied to its own predictions it looks several steps
    ahead, as in SPR (Schwarzer et al. 2021).

    Args:
        settings: width and initial weights.
        actions: number of actions.

    ``outputs`` is the memory for one step in float32 values.
    """

    def __init__(self, settings: NetworkSettings, actions: int) -> None:
        super().__init__()
        width, init = settings.width, settings.fc_init
        self.joint = nn.Linear(width, width)
        self.action = nn.Linear(actions, width, bias=False)
        self.latent = nn.Linear(width, width)
        self.outcome = nn.Linear(width, REWARDS + 1)
        self.outputs = 2 * width + REWARDS + 1
        for layer, gain in (
            (self.joint, RELU_GAIN),
            (self.action, RELU_GAIN),
            (self.latent, 1.0),
            (self.outcome, 0.01),
        ):
            start_linear(layer, init, gain)

    def forward(
        self, latents: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return hidden layers float32[M, H, width] and logits float32[M, H, REWARDS + 1], ahead.

        The first `REWARDS` logits are those of the reward's sign, the last one is that of the end.
        The time goes into the number of small operations, so actions and outcomes of all steps are
        computed at once.

        Args:
            latents: hidden layers of observations, [M, width].
            actions: int64[M, H], played from there on.
        """
        joints, predicted = [], []
        for chosen in functional.embedding(actions, self.action.weight.t()).unbind(dim=1):
            joint = (self.joint(latents) + chosen).relu()
            latents = self.latent(joint)
            joints.append(joint)
            predicted.append(latents)
        outcomes = self.outcome(torch.stack(joints, dim=1))
        return torch.stack(predicted, dim=1).float(), outcomes.float()
