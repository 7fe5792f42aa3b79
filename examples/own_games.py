"""Games of your own that are stepped together: many corridors in one array of numpy.

This is faster than an environment of Gymnasium (own_environment.py), and the observations are
frames, which the network stacks. A light is at the left or the right end of each corridor.
"""

from dataclasses import replace

import numpy as np

import colobus
from colobus.envs.api import GameSettings, Step
from colobus.envs.make import ENVIRONMENTS, Environment

LENGTH = 9


class Corridors:
    """One corridor for each seed; +1 at the light, -1 at the other end."""

    actions, action_names, frame_shape = 2, ("LEFT", "RIGHT"), (2, LENGTH)

    def __init__(self, settings, seeds):
        self.count = len(seeds)
        self._random = np.random.default_rng(seeds)

    def reset(self):
        """Begin all games; return the first frames uint8[B, 2, LENGTH]."""
        self._place = np.full(self.count, LENGTH // 2)
        self._light = self._random.integers(2, size=self.count) * (LENGTH - 1)
        return self._frames()

    def step(self, actions):
        """Play one step with ``actions`` int64[B]; what is over begins again in the same step."""
        self._place += 2 * actions - 1
        over = (self._place == 0) | (self._place == LENGTH - 1)
        right = self._place == self._light
        rewards = np.where(over, np.where(right, 1.0, -1.0), 0.0).astype(np.float32)
        lights = self._random.integers(2, size=self.count) * (LENGTH - 1)
        self._light = np.where(over, lights, self._light)
        self._place[over] = LENGTH // 2
        never = np.zeros(self.count, dtype=np.bool_)
        return Step(self._frames(), rewards, over, never, over, never)

    def _frames(self):
        frames = np.zeros((self.count, *self.frame_shape), dtype=np.uint8)
        games = np.arange(self.count)
        frames[games, 0, self._light] = 255
        frames[games, 1, self._place] = 255
        return frames


ENVIRONMENTS["corridor"] = Environment(Corridors, Corridors.action_names, Corridors.frame_shape)

experiment = colobus.preset("catch", steps=60_000, until_score=0.9, deterministic=True)
experiment = replace(experiment, games=GameSettings(game="corridor"))
result = colobus.train(experiment)
print(f"{result.steps} steps, score {result.score:.2f}")
