"""A network of your own: functions make its torso and its heads."""

import torch
from torch import nn

import colobus
from colobus.nets.heads import Head, Linear


def torso(settings, frame_shape, planes):
    """Return two dense layers with tanh."""
    height, width = frame_shape
    inputs = settings.stack * height * width
    layers = (nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, settings.width), nn.Tanh())
    return nn.Sequential(nn.Flatten(), *layers)


class Deep(Head):
    """A policy with a hidden layer of its own."""

    def __init__(self, width, actions):
        super().__init__()
        self.hidden, self.last = Linear(width, 32), Linear(32, actions, gain=0.01)

    def start(self, init):
        """Draw the initial weights."""
        self.hidden.start(init)
        self.last.start(init)

    def forward(self, hidden):
        """Return the logits float32[M, actions]."""
        return self.last(torch.tanh(self.hidden(hidden)))


def heads(own, width):
    """Return the heads of the algorithm with another policy."""
    return own | {"policy": Deep(width, own["policy"].out_features)}


result = colobus.train(
    "catch",
    own_torso=torso,
    own_heads=heads,
    steps=60_000,
    until_score=0.9,
    deterministic=True,
)
print(f"{result.steps} steps, score {result.score:.2f}")
