"""Presets of PQN: Q-learning without a replay buffer (Gallici et al. 2024)."""

from __future__ import annotations

from dataclasses import replace

from gelada.algorithms.pqn import PQN
from gelada.envs.api import GameSettings
from gelada.experiment.settings import Experiment, Shape
from gelada.nets.config import NetworkSettings
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.tracker import StopRule

ON_PONG = PQN(
    lam=0.9,
    minibatch=128,
    epsilon_end=0.005,
    epsilon_steps=50_000,
    lr=1e-3,
    lr_end=1e-4,
    anneal_steps=600_000,
)

PONG = Experiment(
    algorithm=ON_PONG,
    optimizer=OptimizerSettings(optimizer="radam"),
    shape=Shape(actors=2, games=16, length=32),
    stop=StopRule(steps=2_000_000, until_score=18.0),
)

PRESETS: dict[str, Experiment] = {
    "pqn-pong": PONG,
    "pqn-catch": Experiment(
        games=GameSettings(game="catch", size=10),
        network=NetworkSettings(torso="tiny", width=64, stack=1, precision="float32"),
        algorithm=PQN(
            lam=0.9,
            minibatch=64,
            epsilon_end=0.01,
            epsilon_steps=40_000,
            lr=2e-3,
            lr_end=5e-4,
            anneal_steps=50_000,
        ),
        optimizer=OptimizerSettings(optimizer="radam"),
        shape=Shape(actors=2, games=8, length=32, random_steps=512),
        stop=StopRule(steps=150_000, until_score=0.95),
    ),
}

FAMILIES: dict[str, Experiment] = {
    "pqn": replace(
        PONG,
        games=GameSettings(life_loss_ends=True),
        algorithm=replace(ON_PONG, epsilon_steps=200_000, anneal_steps=2_500_000),
        stop=StopRule(steps=2_500_000),
    )
}

NOTES: dict[str, tuple[str, ...]] = {}
