"""Plays with a trained agent in a loop of your own, one game and then four at a time.

python examples/play.py runs/pong-1       (default: an agent that learns Catch first)
"""

import sys

import colobus

run = sys.argv[1] if len(sys.argv) > 1 else colobus.train("catch", steps=20_000).folder
agent = colobus.load(run)

env = agent.make_env()  # of Gymnasium, with the observations that the agent was trained on
observation, info = env.reset(seed=1)
score, over = 0.0, False
while not over:
    observation, reward, terminated, truncated, info = env.step(agent.act(observation))
    score += reward
    over = terminated or truncated
print(f"score {score:g}")

envs = agent.make_env(num_envs=4)
observations, infos = envs.reset(seed=1)
for _ in range(20):
    observations, rewards, *_ = envs.step(agent.act(observations, "greedy"))
