"""The first agent: trains it, evaluates it, and films it.

    python examples/first_agent.py

The game is Catch: a ball falls, and a paddle has to be below it. A caught ball is +1, a missed one
-1. Atari games are trained in the same way, in minutes: `colobus.train("pong")`.
"""

import colobus

result = colobus.train("catch", steps=20_000, seed=1)
print(f"{result.steps} steps, score {result.score:.2f}, folder {result.folder}")

agent = colobus.load(result.folder)
evaluation = colobus.evaluate(agent, episodes=50)
print(f"50 games: {evaluation.mean:.2f} ± {evaluation.standard_error:.2f}")

colobus.record(agent, result.folder / "film.gif", seconds=5)
