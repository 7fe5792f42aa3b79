"""Presets of APPO without a target policy: Pong, Catch, and ``ppo-`` for any other game."""

from __future__ import annotations

from dataclasses import replace

from gelada.algorithms.appo import APPO
from gelada.envs.api import GameSettings
from gelada.nets.config import NetworkSettings
from gelada.roles.tracker import StopRule
from gelada.training.experiment import Experiment, Shape

GENERAL = Experiment(
    games=GameSettings(size=84, life_loss_ends=True),
    network=NetworkSettings(torso="dqn2013"),
    algorithm=APPO(
        entropy=0.01,
        entropy_end=0.01,
        lr=1e-3,
        kl=0.02,
        kl_end=0.01,
        anneal_steps=6_000_000,
        hold_after=2_000,
    ),
    stop=StopRule(steps=2_500_000),
)
"""Its frames are larger than those of the Pong preset, and its schedules are for runs of hours."""

CATCH = Experiment(
    games=GameSettings(game="catch", size=10),
    network=NetworkSettings(torso="tiny", width=64, stack=1, precision="float32"),
    algorithm=APPO(anneal_steps=50_000),
    shape=Shape(actors=2, games=8, length=32, random_steps=512),
    stop=StopRule(steps=150_000, until_score=0.95),
)

PONG = Experiment(stop=StopRule(steps=1_000_000, until_score=18.0))

PRESETS: dict[str, Experiment] = {
    "pong": PONG,
    "ppo-pong": PONG,
    "catch": CATCH,
    "ppo-catch": CATCH,
    "catch-dark": replace(
        CATCH,
        games=replace(CATCH.games, game="catch-dark"),
        network=replace(CATCH.network, recurrent="lstm"),
    ),
    "catch-pair": replace(CATCH, games=replace(CATCH.games, game="catch-pair")),
}

FAMILIES: dict[str, Experiment] = {"ppo": GENERAL}

NOTES: dict[str, tuple[str, ...]] = {}
