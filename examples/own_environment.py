"""An environment of your own: a corridor with a light at one end, to which the agent walks.

It is a class of Gymnasium. `make_env` makes it, and the agent gets its two numbers.
"""

import gymnasium
import numpy as np

import colobus

END = 4  # steps from the middle to either end


class Corridor(gymnasium.Env):
    """+1 at the light, -1 at the other end."""

    action_space = gymnasium.spaces.Discrete(2)  # left, right
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin in the middle; return where the agent and the light are."""
        super().reset(seed=seed)
        self.place, self.light = 0, END * int(self.np_random.choice([-1, 1]))
        return self.look(), {}

    def step(self, action):
        """Walk one step."""
        self.place += 1 if action == 1 else -1
        over = abs(self.place) == END
        reward = 0.0 if not over else 1.0 if self.place == self.light else -1.0
        return self.look(), reward, over, False, {}

    def look(self):
        """Return the observation."""
        return np.array([self.place, self.light], np.float32) / END


result = colobus.train(
    make_env=Corridor, name="corridor", steps=60_000, until_score=0.9, deterministic=True
)
print(f"{result.steps} steps, score {result.score:.2f}")

agent = colobus.load(result.folder, make_env=Corridor)
print(f"20 games: {colobus.evaluate(agent, episodes=20).mean:.2f}")
