"""DQN learns Catch from a plain list of trajectories."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from gelada.algorithms.dqn import DQN
from gelada.core.types import Batch, Episode, Ints, Trajectory, Update, Version
from gelada.envs.catch import CatchGames
from gelada.nets.config import Autoencoder
from gelada.nets.network import Network, NetworkSettings, measure_input
from gelada.ops.flat import FlatParameters
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.actor import Actor, ActorSettings, Pace
from gelada.roles.backprop import Backprop
from gelada.roles.learner import Learner
from gelada.roles.parameters.client import LocalClient
from gelada.roles.parameters.server import ParameterServer, Quorum, ServerSettings
from gelada.roles.policy import make_policy
from gelada.roles.replay.queue import as_batch
from gelada.roles.schedule import Schedule
from gelada.roles.tracker import ResumePoint

GAMES, LENGTH, ROUNDS, UPDATES, BATCH = 8, 16, 150, 4, 64
FIELDS = ("actions", "rewards", "terminated", "truncated", "mask", "log_probs")
QUICK = DQN(
    epsilon_end=0.01, epsilon_steps=6000, target_every=50, lr=2e-3, lr_end=5e-4, anneal_steps=16_000
)
WAYS = {
    "double, duelling, three steps": replace(QUICK, double=True, duelling=True, n=3),
    "lambda without a target": replace(QUICK, returns="q_lambda", target_every=0),
}

PREDICTS = "lambda without a target"


class ReplaySettings:
    """TrajectoryQueue and tracker: keeps all, and hands out windows cut anywhere."""

    depth = 0

    def __init__(self, steps: int) -> None:
        self.steps, self.random = steps, np.random.default_rng(1)
        self.kept: list[Trajectory] = []
        self.scores: list[float] = []

    def wait_for_room(self, actor: int = 0) -> None:
        """There always is."""

    def add(self, trajectory: Trajectory) -> None:
        self.kept.append(trajectory)

    def sample(self) -> Batch:
        windows = BATCH if self.steps < LENGTH else BATCH // 4
        return as_batch([self.window() for _ in range(windows)])

    def window(self) -> Trajectory:
        whole = self.kept[self.random.integers(len(self.kept))]
        b, start = self.random.integers(GAMES), self.random.integers(LENGTH - self.steps + 1)
        row, end = slice(b, b + 1), start + self.steps
        return whole._replace(
            frames=whole.frames[row, start : end + 1],
            ages=whole.ages[row, start : end + 1],
            state=whole.state[row],
            **{name: getattr(whole, name)[row, start:end] for name in FIELDS},
        )

    def update(self, keys: Ints, generations: Ints, priorities: Ints) -> None:
        """All are drawn alike."""

    def episode(self, episode: Episode) -> None:
        self.scores.append(episode.score)

    def begin(self, name: str) -> ResumePoint:
        return ResumePoint(0, 0)

    def report(self, update: Update) -> bool:
        return False

    def wants_checkpoint(self) -> bool:
        return False


def make_catch_net(algorithm: DQN, autoencoder: Autoencoder) -> Network:
    """Return a network that knows what frames look like."""
    games = CatchGames(np.arange(1, 9))
    random = np.random.default_rng(0)
    frames = [games.step(random.integers(3, size=8)).frames for _ in range(100)]
    settings = NetworkSettings(torso="tiny", width=64, stack=1, autoencoder=autoencoder)
    statistics = measure_input(np.concatenate(frames))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Network(
            settings, games.frame_shape, partial(algorithm.heads, 3), statistics, "float32"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "autoencoder"), [*((way, "off") for way in WAYS), (PREDICTS, "predict")]
)
def test_catch_is_learned(way: str, autoencoder: Autoencoder) -> None:
    algorithm = WAYS[way]
    net = make_catch_net(algorithm, autoencoder)
    flat, first = FlatParameters(net), Version(0, 0)
    every = algorithm.target_every
    server = ParameterServer(
        flat.values,
        OptimizerSettings(),
        Quorum(1),
        first,
        ServerSettings(patience=0.0, target_every=every),
    )
    memory: Any = ReplaySettings(algorithm.window(LENGTH))

    def make_games(seeds: Ints) -> CatchGames:
        return CatchGames(seeds)

    settings = ActorSettings(0, 1, GAMES, LENGTH, 1, Pace(None))
    actor = Actor(
        settings, make_games, make_policy(net, algorithm), algorithm, [server], memory, memory
    )
    learner = Learner(
        0,
        algorithm,
        LocalClient(flat, [server], first, every),
        Backprop(algorithm, 0, 1),
        Schedule(algorithm, algorithm.start(), 0),
        memory,
        memory,
    )
    for _ in range(ROUNDS):
        actor.step()
        for _ in range(UPDATES):
            learner.step()
    assert np.mean(memory.scores[:100]) < 0.0  # at random -0.6
    assert np.mean(memory.scores[-50:]) >= 0.9
