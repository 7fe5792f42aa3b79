"""Presets for environments of Gymnasium: vectors of numbers, and pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from colobus.algorithms.appo import APPO
from colobus.envs.api import GameSettings
from colobus.envs.make import environment_of, gymnasium_id
from colobus.experiment.settings import Experiment, Shape
from colobus.nets.config import NetworkSettings, TorsoName
from colobus.roles.tracker import StopRule

SMALL = APPO(
    reward_clip="none",
    entropy=0.01,
    entropy_end=0.001,
    epochs=6,
    minibatch=256,
    value_coefficient=0.1,
    lr=1e-3,
    lr_max=4e-3,
    kl=0.03,
    kl_end=0.01,
    anneal_steps=200_000,
)

VECTOR = Experiment(
    games=GameSettings(game="CartPole-v1"),
    network=NetworkSettings(torso="mlp", width=64, stack=1, precision="float32"),
    algorithm=SMALL,
    shape=Shape(actors=2, games=8, length=64, random_steps=2048),
    stop=StopRule(steps=500_000),
)
"""For environments whose observations are vectors.

Their rewards are raw, so returns of up to 100 are usual, and the value loss is large beside the
policy's. With all of it CartPole took 104,000 to more than 400,000 steps to 475 (seeds 11 to 18);
with a tenth of it 53,000 to 96,000, and 51,000 to 130,000 with 16 other seeds. A limit of 10 for
the gradient's norm did not help (benchmarks/results/logs/cartpole-tried).
"""

PIXELS = replace(
    VECTOR,
    games=GameSettings(game="minigrid:MiniGrid-Empty-5x5-v0"),
    network=replace(VECTOR.network, width=128),
)
"""For environments whose observations are small pictures, such as those of MiniGrid."""

PRESETS: dict[str, Experiment] = {
    "vector": VECTOR,
    "pixels": PIXELS,
    "CartPole-v1": replace(VECTOR, stop=StopRule(steps=500_000, until_score=475.0)),
}

RECIPES = {
    "CartPole-v1": PRESETS["CartPole-v1"],
    "Acrobot-v1": replace(
        VECTOR,
        # with less entropy the policy settles before the first success (seed 13)
        algorithm=replace(SMALL, entropy=0.05, entropy_end=0.01, lr_max=2e-3),
        shape=replace(VECTOR.shape, length=128),
        stop=StopRule(steps=500_000, until_score=-88.0),
    ),
    "Pendulum-v1": replace(
        VECTOR,
        algorithm=replace(SMALL, gamma=0.9),
        stop=StopRule(steps=300_000, until_score=-165.0),
    ),
    "LunarLander-v3": replace(
        VECTOR,
        algorithm=replace(
            SMALL,
            gamma=0.995,
            lam=0.97,
            values="quantiles",
            value_coefficient=0.5,
            anneal_steps=600_000,
        ),
        shape=replace(VECTOR.shape, length=128),
        stop=StopRule(steps=1_000_000),  # a score that ends it early is luck too often
    ),
    "MiniGrid-DoorKey-5x5-v0": replace(
        PIXELS,
        stop=StopRule(steps=500_000, until_score=0.94),
    ),
}
"""Settings of environments by name, without that of a module. Most need a package that not
everybody has (LunarLander-v3: gymnasium[box2d]), so they are no presets, which are made for lists
and tests."""


def for_environment(settings: GameSettings) -> Experiment:
    """Return the settings with which an environment of Gymnasium is learned by its name alone."""
    name = gymnasium_id(settings.game)
    if name in RECIPES:
        return replace(RECIPES[name], games=GameSettings(game=settings.game))
    own = environment_of(settings)
    height, width = own.seen_shape
    base = VECTOR if height == 1 else PIXELS
    base = replace(base, games=GameSettings(game=settings.game))
    side = min(height // own.planes, width)
    if side < 42:  # of pixels, from which a torso of convolutions is taken
        return base
    torso: TorsoName = "dqn2013" if side >= 84 else "small"
    return replace(base, network=replace(base.network, torso=torso, width=256, stack=4))


def in_family(catch: Experiment, base: Experiment) -> Experiment:
    """Return the settings with which a family of algorithms learns an environment of Gymnasium.

    Args:
        catch: the family's preset for Catch, which is of the same size as most environments.
        base: the settings of the environment alone.
    """
    algorithm: Any = replace(cast("Any", catch.algorithm), reward_clip="none")
    return replace(
        catch, games=base.games, network=base.network, algorithm=algorithm, stop=base.stop
    )
