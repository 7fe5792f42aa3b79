"""An exploration of your own: the policy is mixed with random actions."""

from dataclasses import dataclass

import numpy as np
import torch

import colobus
from colobus.algorithms.exploration import Explored
from colobus.ops.losses import FORBIDDEN

MIX = 0.1  # share of random actions


class Mixed:
    """Draws from (1 - MIX) pi + MIX / A, with A the number of the actions that are allowed."""

    def begin(self, net, length, steps, random):
        """Keep the generator of the rollout."""
        self._random = random

    def choose(self, t, scores):
        """Return actions int64[B] for logits float32[B, A]."""
        return torch.multinomial(self._mixed(scores), 1, generator=self._random).squeeze(1)

    def end(self, scores, actions, rewards):
        """Return the log-probabilities that were really played, float32[B, T]."""
        played = self._mixed(scores).gather(2, actions.unsqueeze(2)).squeeze(2)
        return Explored(played.log(), independent=np.ones(len(actions), dtype=np.bool_))

    def _mixed(self, scores):
        allowed = (scores > FORBIDDEN).float()
        return (1 - MIX) * scores.softmax(dim=-1) + MIX * allowed / allowed.sum(-1, keepdim=True)


@dataclass(frozen=True)
class MixedAPPO(colobus.APPO):
    """APPO that explores with random actions, too."""

    def exploration(self, player):
        """Return a new exploration for an actor."""
        return Mixed()


result = colobus.train(
    "catch", algorithm=MixedAPPO, steps=60_000, until_score=0.7, deterministic=True
)
print(f"{result.steps} steps, score {result.score:.2f}")
