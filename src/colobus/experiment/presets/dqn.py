"""Presets of Q-learning: DQN alone, as Ape-X, Gorila and Gorila's published system; IQN; PQN."""

from __future__ import annotations

from dataclasses import replace

from colobus.algorithms.dqn import DQN
from colobus.algorithms.iqn import IQN
from colobus.algorithms.pqn import PQN
from colobus.envs.api import GameSettings
from colobus.experiment.presets.appo import CATCH
from colobus.experiment.settings import Experiment, ReplaySettings, Shape
from colobus.nets.config import NetworkSettings
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule, TrackerSettings

SMALL_DQN = DQN(
    returns="q_lambda",
    lam=0.95,
    target_every=100,
    epsilon_end=0.005,
    epsilon_steps=10_000,
    lr=2e-3,
    lr_end=2e-4,
    anneal_steps=350_000,
)
"""Long returns over recent experience. With n-step returns and a large replay buffer this network
has learned nothing in Pong after 100,000 steps; with these settings it plays well after 300,000."""

DQN_PONG = Experiment(
    algorithm=SMALL_DQN,
    shape=Shape(actors=2, games=8, length=32),
    replay=ReplaySettings(capacity=8_000, minimum=3_000, windows=8, samples_per_insert=0.125),
    stop=StopRule(steps=2_000_000, until_score=18.0),
)

GORILA_PONG = replace(
    DQN_PONG,
    algorithm=replace(SMALL_DQN, outlier=3.0),
    shape=Shape(workers=2, asynchronous=True, servers=2, actors=1, games=8, length=32),
    replay=replace(DQN_PONG.replay, capacity=4_000, minimum=1_500),
)

APEX_PONG = replace(
    DQN_PONG,
    algorithm=replace(SMALL_DQN, explore="ladder"),
    replay=replace(DQN_PONG.replay, prioritized=True, beta_steps=350_000),
    stop=StopRule(steps=400_000),
)
"""It does not stop at a score: some games of the ladder explore to the end and lower the mean."""


def for_any_game(pong: Experiment) -> Experiment:
    """Return a DQN preset for Pong with longer schedules, for any game."""
    assert isinstance(pong.algorithm, DQN)
    algorithm = replace(pong.algorithm, epsilon_steps=100_000, anneal_steps=1_500_000)
    buffer = pong.replay
    buffer = replace(buffer, beta_steps=1_500_000) if buffer.prioritized else buffer
    return replace(pong, algorithm=algorithm, replay=buffer, stop=StopRule(steps=2_500_000))


GENERAL = replace(
    DQN_PONG,
    games=GameSettings(life_loss_ends=True, downscale="maximum"),
    network=NetworkSettings(torso="pooled"),
    algorithm=replace(
        SMALL_DQN,
        values="histograms",
        duelling=True,
        munchausen_end=0.9,
        munchausen_steps=1_500_000,
        gamma=0.98,
        gamma_end=0.996,
        gamma_steps=1_500_000,
        epsilon_steps=100_000,
        hold_after=2_000,
        lr_end=1e-4,
        anneal_steps=1_000_000,
        anneal_share=1.0,
    ),
    optimizer=OptimizerSettings(average=0.999),
    shape=replace(DQN_PONG.shape, games=16),
    replay=replace(DQN_PONG.replay, capacity=50_000),
    stop=StopRule(steps=2_500_000),
)
"""The recipe of a game without a preset (docs/recipe.md)."""

SMALL_PQN = PQN(
    lam=0.9,
    minibatch=128,
    epsilon_end=0.005,
    epsilon_steps=50_000,
    lr=1e-3,
    lr_end=1e-4,
    anneal_steps=600_000,
)

PQN_PONG = Experiment(
    algorithm=SMALL_PQN,
    optimizer=OptimizerSettings(optimizer="radam"),
    shape=Shape(actors=2, games=16, length=32),
    stop=StopRule(steps=2_000_000, until_score=18.0),
)

FIRST_STEPS = DQN(
    n=3,
    double=True,
    target_every=100,
    epsilon_end=0.02,
    epsilon_steps=10_000,
    lr=1e-3,
    lr_end=2e-4,
    anneal_steps=80_000,
)

DQN_CATCH = replace(
    CATCH,
    algorithm=FIRST_STEPS,
    shape=Shape(actors=2, games=8, length=16, random_steps=1024),
    replay=ReplaySettings(capacity=50_000, minimum=1_000, windows=64, samples_per_insert=8.0),
    stop=StopRule(steps=100_000, until_score=0.95),
)
"""Also for vectors: CartPole-v1 was at 475 after 73,000 steps (seed 11)."""

PRESETS: dict[str, Experiment] = {
    "dqn-pong": DQN_PONG,
    "dqn-catch": DQN_CATCH,
    "apex-catch": replace(
        DQN_CATCH,
        algorithm=replace(FIRST_STEPS, explore="ladder"),
        replay=replace(DQN_CATCH.replay, prioritized=True, beta_steps=80_000),
        stop=StopRule(steps=50_000),
    ),
    "apex-pong": APEX_PONG,
    "gorila-pong": GORILA_PONG,
    "gorila-breakout": replace(for_any_game(GORILA_PONG), games=GameSettings(game="breakout")),
    "gorila-catch": replace(
        CATCH,
        algorithm=DQN(
            n=3,
            target_every=50,
            epsilon_end=0.01,
            epsilon_steps=6_000,
            lr=2e-3,
            lr_end=5e-4,
            anneal_steps=16_000,
        ),
        shape=Shape(
            workers=2, asynchronous=True, servers=2, actors=1, games=8, length=16, random_steps=512
        ),
        replay=ReplaySettings(capacity=20_000, minimum=500, windows=64, samples_per_insert=2.0),
    ),
    "iqn-catch": replace(
        CATCH,
        algorithm=IQN(
            n=3,
            target_every=50,
            epsilon_steps=6_000,
            lr=2e-3,
            lr_end=5e-4,
            anneal_steps=16_000,
        ),
        shape=Shape(actors=2, games=8, length=16, random_steps=512),
        replay=ReplaySettings(capacity=20_000, minimum=500, windows=64, samples_per_insert=2.0),
        stop=StopRule(steps=100_000, until_score=0.95),
    ),
    "pqn-pong": PQN_PONG,
    "pqn-catch": replace(
        CATCH,
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
    ),
    "gorila-paper": Experiment(
        games=GameSettings(game="breakout", size=84, noop_max=31),
        network=NetworkSettings(torso="nature", width=512, layer_norm=False),
        algorithm=DQN(
            target_every=60_000, outlier=3.0, epsilon_steps=1_000_000, lr=1e-3, lr_end=1e-3
        ),
        optimizer=OptimizerSettings(optimizer="adagrad"),
        shape=Shape(
            workers=100,
            asynchronous=True,
            max_staleness=100,
            servers=31,
            actors=1,
            games=1,
            length=4,
            keep_every=1000,
        ),
        replay=ReplaySettings(capacity=1_000_000, minimum=50_000, samples_per_insert=8.0),
        stop=StopRule(steps=50_000_000),
        tracker=TrackerSettings(keep_checkpoints=0),
    ),
}

FAMILIES: dict[str, Experiment] = {
    "gorila": PRESETS["gorila-breakout"],
    "dqn": GENERAL,
    "iqn": Experiment(
        games=GameSettings(life_loss_ends=True),
        network=NetworkSettings(torso="pooled"),
        algorithm=IQN(
            n=3,
            double=True,
            target_every=500,
            epsilon_steps=100_000,
            lr=5e-4,
            lr_end=5e-5,
            anneal_steps=1_500_000,
        ),
        shape=Shape(actors=2, games=8, length=32),
        replay=ReplaySettings(capacity=50_000, minimum=3_000, samples_per_insert=4.0),
        stop=StopRule(steps=2_500_000),
    ),
    "apex": for_any_game(APEX_PONG),
    "pqn": replace(
        PQN_PONG,
        games=GameSettings(life_loss_ends=True),
        algorithm=replace(SMALL_PQN, epsilon_steps=200_000, anneal_steps=2_500_000),
        stop=StopRule(steps=2_500_000),
    ),
}

NOTES: dict[str, tuple[str, ...]] = {
    "gorila-paper": (
        "settings of Gorila (Nair et al. 2015); they need the memory of 100 machines",
        "published: 100 workers, 31 servers, replay buffers of 1 M frames, a new target network "
        "every 60,000 updates, AdaGrad, epsilon 1 to 0.1, one setting for all games",
        "not published, our choice: batches of 32, one update for 4 steps of play, learning rate "
        "0.001, epsilon over 1 M steps, gradients at most 100 updates old, losses at most 3 "
        "standard deviations above the mean, 50,000 steps before learning",
        "differs: each pixel of the input is standardised (original: divided by 255)",
        "differs: the environment presses FIRE at the start of a game and after a lost life "
        "(original: the agent presses it)",
    ),
}
