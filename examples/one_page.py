"""One page that trains an agent with Colobus's parts, without threads, files or a command.

    python examples/one_page.py          Catch, in seconds
    python examples/one_page.py pong     Pong from the screen, 1,000,000 steps

One loop does the work of all roles: it plays T steps in B games, learns from them, and repeats.
"""

import argparse
from functools import partial

import numpy as np
import torch

from colobus.algorithms.appo import APPO
from colobus.algorithms.exploration import Player
from colobus.core.seeding import game_seeds
from colobus.core.types import Trajectory, Version
from colobus.envs.api import GameSettings
from colobus.envs.make import is_atari, known_games, make_games
from colobus.nets.network import Network, NetworkSettings, measure_input
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import Optimizer, OptimizerSettings
from colobus.roles.replay.queue import as_batch

known = ["catch", *filter(is_atari, known_games())]
parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__.splitlines()[0])
parser.add_argument("game", nargs="?", default="catch", choices=known, metavar="GAME")
GAME = parser.parse_args().game
B, T, K = 16, 32, 1 if GAME == "catch" else 4  # games, steps of a trajectory, frames of a stack
STEPS = 50_000 if GAME == "catch" else 1_000_000
torch.set_num_threads(1)
torch.manual_seed(1)
random = torch.Generator().manual_seed(1)

# The games, and the mean and deviation of their frames in random play.
games = make_games(GameSettings(game=GAME), game_seeds(1, "games", B))
frames = [games.reset()]
for _ in range(100):
    actions = torch.randint(games.actions, (B,), generator=random).numpy()
    frames.append(games.step(actions).frames)
statistics = measure_input(np.concatenate(frames))

# The network, its parameters as one vector, the algorithm, and an optimizer of that vector.
algorithm = APPO(anneal_steps=STEPS)
net = Network(
    NetworkSettings("tiny", width=64, stack=K) if GAME == "catch" else NetworkSettings(stack=K),
    games.frame_shape,
    partial(algorithm.heads, games.actions),
    statistics,
    "float32",
)
flat = FlatParameters(net)
exploration = algorithm.exploration(Player(0, 1, B, games.actions))
optimizer = Optimizer(flat.values, OptimizerSettings())
algorithm_state = algorithm.start()  # state of the algorithm: learning rate, entropy weight

# Each frame is stored once: observation t consists of frames t to t + K - 1.
window = np.zeros((B, T + K, *games.frame_shape), dtype=np.uint8)
window[:, -1] = games.reset()
ages = np.zeros((B, T + 1), dtype=np.int64)  # steps since the game's first frame
running, scores = np.zeros(B), list[float]()  # raw returns of running and of finished games
for round_ in range(STEPS // (B * T)):
    # Play: the network acts on stacks in which frames of the game before are black.
    window[:, :K] = window[:, -K:].copy()
    ages[:, 0] = ages[:, -1]
    steps, all_logits, chosen = [], [], []
    exploration.begin(net, T, round_ * B * T, random)
    for t in range(T):
        stacks = window[:, t : t + K].copy()
        for k in range(K - 1):
            stacks[ages[:, t] < K - 1 - k, k] = 0
        with torch.no_grad():
            logits, _state = algorithm.act(net, net.preprocess(torch.from_numpy(stacks)), None)
            chosen.append(exploration.choose(t, logits).numpy())
        all_logits.append(logits)
        step = games.step(chosen[-1])
        steps.append(step)
        window[:, t + K] = step.frames
        ages[:, t + 1] = np.where(step.over, 0, ages[:, t] + 1)
        running += step.rewards
        scores += running[step.over].tolist()
        running[step.over] = 0.0

    # Learn: compute targets once, then take several epochs of minibatches.
    fields = zip(*(step[1:6] for step in steps), strict=True)  # without the frames
    rewards, terminated, truncated, _over, forced = (np.stack(x, axis=1) for x in fields)  # [B, T]
    taken, logits = np.stack(chosen, axis=1), torch.stack(all_logits, dim=1)
    explored = exploration.end(logits, torch.from_numpy(taken), rewards)
    trajectory = Trajectory(
        actor=0,
        round=round_,
        version=Version(0, round_),
        frames=window,
        ages=ages,
        actions=taken,
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        mask=~(forced | truncated),
        log_probs=explored.log_probs.numpy(),
        independent=explored.independent,
        state=np.zeros((B, 0), dtype=np.float32),
    )
    prepared = algorithm.prepare(net, as_batch([trajectory]), algorithm_state)
    for _ in range(algorithm.epochs):
        divergences = []
        for index in torch.randperm(B * T, generator=random).split(algorithm.minibatch):
            loss, terms = algorithm.loss(net, prepared.select(index), algorithm_state)
            flat.zero_gradients()
            loss.backward()
            flat.clip(algorithm.gradient_clip)
            optimizer.step(flat.gradients, float(algorithm_state["learning_rate"]))
            divergences.append(float(terms["kl"]))
    algorithm.after(algorithm_state, {"kl": float(np.mean(divergences))}, (round_ + 1) * B * T)
    if round_ % 10 == 9 and scores:  # the first games end after a while
        print(f"{(round_ + 1) * B * T:9,d} steps   score {np.mean(scores[-50:]):6.2f}", flush=True)
print(f"mean of the last 50 games: {np.mean(scores[-50:]):.2f}")
