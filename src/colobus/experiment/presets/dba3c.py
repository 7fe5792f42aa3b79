"""Presets of DBA3C (docs/dba3c.md): A3C in workers, and the published system."""

from __future__ import annotations

from dataclasses import replace

from colobus.algorithms.a3c import A3C
from colobus.envs.api import GameSettings
from colobus.experiment.presets.appo import CATCH
from colobus.experiment.settings import Experiment, Shape, Sidecars
from colobus.nets.config import NetworkSettings
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule, TrackerSettings

SMALL_A3C = A3C(
    n=20,
    entropy=0.02,
    entropy_end=0.002,
    gradient_clip=0.3,
    lr=3e-3,
    lr_end=1e-3,
    anneal_steps=700_000,
)

DBA3C_PONG = Experiment(
    algorithm=SMALL_A3C,
    shape=Shape(workers=2, servers=2, actors=1, games=8, length=20),
    stop=StopRule(steps=3_000_000, until_score=18.0),
)

DBA3C_CATCH = replace(
    CATCH,
    algorithm=A3C(n=9, gradient_clip=1.0, lr=4e-3, anneal_steps=150_000),
    shape=Shape(workers=2, servers=2, actors=1, games=8, length=9, random_steps=512),
    stop=StopRule(steps=300_000, until_score=0.95),
)

PRESETS: dict[str, Experiment] = {
    "dba3c-pong": DBA3C_PONG,
    "a3c-pong": replace(DBA3C_PONG, shape=Shape(workers=1, servers=1, actors=2, length=20)),
    "dba3c-breakout": replace(
        DBA3C_PONG,
        games=GameSettings(game="breakout", life_loss_ends=True),
        algorithm=replace(
            SMALL_A3C, n=10, entropy=0.01, entropy_end=0.005, lr=2e-3, anneal_steps=10_000_000
        ),
        shape=replace(DBA3C_PONG.shape, length=10),
        stop=StopRule(steps=10_000_000),
    ),
    "dba3c-catch": DBA3C_CATCH,
    "a3c-catch": replace(DBA3C_CATCH, shape=Shape(workers=1, actors=2, length=9, random_steps=512)),
    "dba3c-breakout-paper": Experiment(
        games=GameSettings(
            game="breakout",
            size=84,
            colour=True,
            sticky=0.25,
            noop_max=0,
            max_frames=160_000,
            fire_at_reset=False,
            fire_on_life_loss=False,
        ),
        network=NetworkSettings(
            torso="ba3c",
            width=128,
            hidden="linear",
            layer_norm=False,
            conv_init="normal",
            fc_init="uniform",
            pad_channels=16,
        ),
        algorithm=A3C(tensor_clip=0.1, lr=1e-3, lr_end=1e-3, anneal_steps=0),
        optimizer=OptimizerSettings(beta1=0.8, beta2=0.75, epsilon=1e-8),
        shape=Shape(
            workers=64,
            quorum=60,
            servers=4,
            actors=1,
            games=10,
            length=5,
            batch=32,
            keep_every=1000,
        ),
        stop=StopRule(until_evaluated=300.0),
        tracker=TrackerSettings(keep_checkpoints=0),
        sidecars=Sidecars(evaluator=True, recorder=True),
    ),
}

FAMILIES: dict[str, Experiment] = {
    "dba3c": PRESETS["dba3c-breakout"],
    "a3c": replace(PRESETS["dba3c-breakout"], shape=PRESETS["a3c-pong"].shape),
}

NOTES: dict[str, tuple[str, ...]] = {
    "dba3c-breakout-paper": (
        "settings of the best command of Distributed-BA3C (2018); needs the cores of 64 workers",
        "differs: a batch has whole windows of 5 steps, so 30 steps instead of 32",
        "differs: a step has 4 emulator frames, the last 2 combined (original: 2 to 4 at random)",
        "differs: the learner computes the values again (original: values from acting)",
        "differs: each pixel of the input is standardised (original: divided by 255)",
        "its --schedule_hyper, which that command leaves out, is --lr-jumps "
        "38.4M:0.0005,115.2M:0.0001 --entropy-jumps 76.8M:0.005,153.6M:0.001 here",
        "differs: servers have equal slices (original: an idle chief, a 1600 x 128 layer split)",
    ),
}
