"""Learns an environment of Gymnasium that a function makes: here with an argument."""

import gymnasium

import colobus


def make(render_mode=None):
    """Return a lake of ice on which nobody slips; its 16 places are seen as 16 numbers."""
    return gymnasium.make("FrozenLake-v1", is_slippery=False, render_mode=render_mode)


result = colobus.train(
    make_env=make, name="lake", steps=60_000, until_score=0.9, deterministic=True
)
print(f"{result.steps} steps, score {result.score:.2f}")

agent = colobus.load(result.folder, make_env=make)
print(f"20 games: {colobus.evaluate(agent, episodes=20).mean:.2f}")
