"""Presets of APPO: as PPO, IMPALA, APPO with all its parts and IMPACT; two published systems."""

from __future__ import annotations

from dataclasses import replace

from colobus.algorithms.appo import APPO
from colobus.envs.api import GameSettings
from colobus.experiment.settings import Experiment, ReuseSettings, Shape
from colobus.nets.config import NetworkSettings
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule, TrackerSettings

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

SMALL = APPO(advantage="vtrace", lr=1e-3, lr_end=1e-4, kl_adjust=1.0, anneal_steps=1_000_000)
"""V-trace, and a learning rate that falls in a straight line."""

SMALL_IMPALA = replace(
    SMALL,
    lam=1.0,
    policy_loss="gradient",
    epochs=1,
    minibatch=512,
    normalise=False,
    value_coefficient=0.5,
    entropy=0.01,
    entropy_end=0.005,
)
"""One gradient for each batch, as in IMPALA."""

SMALL_APPO = replace(SMALL, target_every=1, kl_coeff=0.2, kl_target=0.02)

SMALL_IMPACT = replace(SMALL, lam=1.0, clip=0.3, target_every=4, epochs=2)

ONCE = ReuseSettings()

MIXED = ReuseSettings(replay_proportion=0.5, buffer_batches=2)
"""An old window for every second fresh one, and the epochs over a batch in two rounds."""

CIRCULAR = ReuseSettings(buffer_batches=4, buffer_order="random")
"""IMPACT's circular buffer: each of four batches is used twice."""

SHORT = Shape(actors=2, games=8, length=32)
"""Batches of 512 samples."""

PONG_STOP = StopRule(steps=2_000_000, until_score=18.0)


def for_any_game(algorithm: APPO, shape: Shape, reuse: ReuseSettings = ONCE) -> Experiment:
    """Return the recipe of any game with this algorithm and longer schedules."""
    slower = replace(algorithm, entropy_end=algorithm.entropy, anneal_steps=6_000_000)
    longer = replace(slower, hold_after=2_000)
    return replace(GENERAL, algorithm=longer, shape=shape, reuse=reuse)


def for_catch(algorithm: APPO, lr: float, reuse: ReuseSettings = ONCE) -> Experiment:
    """Return the preset for Catch with this algorithm and a short schedule."""
    short = replace(algorithm, lr=lr, lr_end=lr / 4, anneal_steps=100_000)
    return replace(CATCH, algorithm=short, reuse=reuse)


CATCH_DARK = replace(
    CATCH,
    games=replace(CATCH.games, game="catch-dark"),
    network=replace(CATCH.network, recurrent="lstm"),
)

CATCH_PAIR = replace(CATCH, games=replace(CATCH.games, game="catch-pair"))

PRESETS: dict[str, Experiment] = {
    "pong": PONG,
    "ppo-pong": PONG,
    "catch": CATCH,
    "ppo-catch": CATCH,
    "catch-dark": CATCH_DARK,
    "ppo-catch-dark": CATCH_DARK,
    "catch-pair": CATCH_PAIR,
    "ppo-catch-pair": CATCH_PAIR,
    "impala-pong": Experiment(algorithm=SMALL_IMPALA, shape=SHORT, stop=PONG_STOP),
    "appo-pong": Experiment(algorithm=SMALL_APPO, reuse=MIXED, stop=PONG_STOP),
    "impact-pong": Experiment(algorithm=SMALL_IMPACT, shape=SHORT, reuse=CIRCULAR, stop=PONG_STOP),
    "impala-catch": for_catch(SMALL_IMPALA, 8e-3),
    "appo-catch": for_catch(SMALL_APPO, 2e-3, MIXED),
    "impact-catch": for_catch(SMALL_IMPACT, 2e-3, CIRCULAR),
    "impala-paper": Experiment(
        games=GameSettings(game="breakout", size=84, life_loss_ends=True),
        network=NetworkSettings(torso="dqn2013", layer_norm=False),
        algorithm=replace(
            SMALL_IMPALA,
            minibatch=640,
            entropy_end=0.01,
            gradient_clip=0.0625,
            lr=6e-4,
            lr_end=0.0,
            anneal_steps=50_000_000,
        ),
        optimizer=OptimizerSettings(optimizer="rmsprop", decay=0.99, epsilon=2.44e-8),
        shape=Shape(actors=32, games=1, length=20),
        stop=StopRule(steps=50_000_000),
        tracker=TrackerSettings(keep_checkpoints=0),
    ),
    "rldm-paper": Experiment(
        network=NetworkSettings(layer_norm=False, autoencoder="latent"),
        algorithm=APPO(
            advantage="vtrace",
            lam=1.0,
            clip=0.4,
            minibatch=1000,
            normalise=False,
            entropy=0.01,
            entropy_end=0.01,
            gradient_clip=0.04,
            lr=5e-4,
            kl_adjust=1.0,
            anneal_steps=0,
        ),
        optimizer=OptimizerSettings(epsilon=1e-8),
        shape=Shape(actors=128, games=1, length=50, batch=1000, in_flight=1, broadcast_every=5),
        reuse=ReuseSettings(replay_proportion=0.5),
        stop=StopRule(steps=5_000_000, until_score=18.0),
        tracker=TrackerSettings(keep_checkpoints=0),
    ),
}

FAMILIES: dict[str, Experiment] = {
    "ppo": GENERAL,
    "impala": for_any_game(SMALL_IMPALA, SHORT),
    "appo": for_any_game(SMALL_APPO, Shape(), MIXED),
    "impact": for_any_game(SMALL_IMPACT, SHORT, CIRCULAR),
}

NOTES: dict[str, tuple[str, ...]] = {
    "impala-paper": (
        "settings of IMPALA (Espeholt et al. 2018) for one game; its deep network is "
        "--torso resnet",
        "published: rollouts of 20 steps, batches of 32 of them, RMSProp with decay 0.99 and "
        "epsilon 0.01, learning rate 0.0006 falling to 0, gradient norm 40, value loss 0.5, "
        "entropy 0.01",
        "not published, our choice: 32 actors with one game each",
        "the same in other units: losses are means over 640 steps (original: sums), so the limit "
        "of the gradient's norm is 40 / 640 and epsilon, which stands in the root, 0.01 / 640^2",
        "differs: RMSProp's mean square begins with 1 in these units, as with 640^2 in the "
        "original's, so the first 1,300 updates (0.8 M steps) are smaller, the first 640 times",
        "differs: a batch has one rollout of every actor (original: the first 32 that arrive)",
        "differs: each pixel of the input is standardised (original: divided by 255)",
        "differs: learning uses the sign of a reward (original: limited to -1 … 1)",
        "differs: the environment presses FIRE at the start of a game and after a lost life "
        "(original: the agent presses it)",
    ),
    "rldm-paper": (
        "settings of 'Accelerating Distributed Deep Reinforcement Learning' (RLDM 2019), as far "
        "as they are known from its abstract and from RLlib's code and examples of that time",
        "published: Pong solved in 1.7 M steps and under 3 minutes with 128 CPU workers and 2 GPU "
        "learners",
        "from code of that time: 42x42 frames, rollouts of 50 steps, batches of 1,000, 3 epochs, "
        "clip 0.4, value loss 1, entropy 0.01, Adam with learning rate 0.0005, gradient norm 40 "
        "of summed losses, one request in flight, parameters broadcast at every fifth version",
        "not known: what counts as solved, the learning curves, which settings gave the figure",
        "differs: losses are means (original: sums), so the limit of the gradient's norm is "
        "40 / 1,000",
        "not known: how much was replayed; our choice: one old rollout for two fresh ones",
        "not known: which form its autoencoder had; our choice: latent, with mean squares",
        "differs: one learner on the CPU (original: 2 GPUs, with threads that load batches)",
        "differs: the torso 'small' on standardised pixels (original: filters 16 of 4x4 and 32 of "
        "4x4, stride 2, pixels divided by 255)",
    ),
}
