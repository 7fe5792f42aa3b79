"""Range checks of an experiment: what is wrong is said before anything is started."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from gelada.algorithms.a3c import A3C
from gelada.algorithms.appo import APPO
from gelada.algorithms.dqn import DQN
from gelada.core.errors import GeladaError
from gelada.envs.catch import COLUMNS, ROWS
from gelada.nets.torsos import smallest_side
from gelada.roles.parameters.admission import Quorum
from gelada.roles.parameters.snapshots import KEPT
from gelada.training.experiment import Experiment, ReplaySettings


class Range(NamedTuple):
    """Allowed values; ``open_low`` leaves out ``low`` itself, ``open_high`` leaves out ``high``."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: float) -> bool:
        """Say whether ``value`` is a finite number in the range."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return math.isfinite(value) and above and below

    def __str__(self) -> str:
        low = f"above {self.low:,g}" if self.open_low else f"at least {self.low:,g}"
        if math.isinf(self.high):
            return "any finite number" if math.isinf(self.low) else low
        return f"{low} and {'below' if self.open_high else 'at most'} {self.high:,g}"


POSITIVE = Range(0.0, open_low=True)
SHARE = Range(0.0, 1.0)
DECAY = Range(0.0, 1.0, open_high=True)
ANY = Range(-math.inf)

RANGES = {
    "size": Range(1, 210),
    "frame_skip": Range(1, 60),
    "sticky": SHARE,
    "noop_max": Range(0, 1000),
    "max_frames": Range(60),
    "width": Range(1, 8192),
    "stack": Range(1, 16),
    "gamma": SHARE,
    "lam": SHARE,
    "rho_bar": POSITIVE,
    "c_bar": POSITIVE,
    "clip": POSITIVE,
    "epochs": Range(1, 100),
    "minibatch": Range(1),
    "value_coefficient": Range(0.0),
    "entropy": Range(0.0),
    "entropy_end": Range(0.0),
    "gradient_clip": POSITIVE,
    "lr": POSITIVE,
    "lr_min": Range(0.0),
    "lr_max": POSITIVE,
    "kl": POSITIVE,
    "kl_end": POSITIVE,
    "kl_slack": Range(1.0),
    "kl_adjust": Range(1.0),
    "anneal_steps": Range(0),
    "beta1": DECAY,
    "beta2": DECAY,
    "decay": DECAY,
    "momentum": DECAY,
    "epsilon": POSITIVE,
    "lr_end": POSITIVE,
    "n": Range(1, 65536),
    "ratio_clip": Range(0.0),
    "workers": Range(0, 256),
    "quorum": Range(0, 256),
    "max_staleness": Range(0),
    "batch": Range(0),
    "keep_every": Range(1),
    "pad_channels": Range(1, 64),
    "record_length": POSITIVE,
    "actors": Range(1, 256),
    "games": Range(1, 4096),
    "length": Range(1, 65536),
    "servers": Range(1, 32),
    "learners": Range(0, 256),
    "replays": Range(1, 256),
    "capacity": Range(0),
    "minimum": Range(1),
    "samples_per_insert": Range(0.0),
    "alpha": Range(0.0),
    "beta": SHARE,
    "beta_end": SHARE,
    "beta_steps": Range(0),
    "target_every": Range(0),
    "outlier": Range(0.0),
    "epsilon_start": SHARE,
    "epsilon_end": SHARE,
    "epsilon_steps": Range(0),
    "ladder_base": SHARE,
    "ladder_alpha": Range(0.0),
    "ahead": Range(0, 64),
    "random_steps": Range(0),
    "deadline": POSITIVE,
    "steps": Range(1),
    "minutes": POSITIVE,
    "until_score": ANY,
    "until_evaluated": ANY,
    "checkpoint_seconds": POSITIVE,
    "keep_checkpoints": Range(0),
    "seed": Range(0, 2**31 - 1),
}
"""By the setting's name. A number that is not here is only checked to be finite."""


def check(experiment: Experiment) -> None:
    """Raise GeladaError for the first setting that cannot be; it names value, rule and fix."""
    groups = [value for value in vars(experiment).values() if dataclasses.is_dataclass(value)]
    for group in (experiment, *groups):
        for name, value in vars(group).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                rule = RANGES.get(name, ANY)
                if not rule.holds(value):
                    raise GeladaError(f"{flag(name)} {value:g}: must be {rule}")
    if isinstance(experiment.algorithm, APPO):
        _check_rates(experiment.algorithm)
    if experiment.stop.until_evaluated is not None and not experiment.sidecars.evaluator:
        goal = experiment.stop.until_evaluated
        raise GeladaError(f"--until-evaluated {goal}: nobody evaluates; add --evaluator")
    _check_shape(experiment)
    _check_batch(experiment)
    _check_frames(experiment)


def flag(name: str) -> str:
    """Return the command line's name of a setting."""
    return "--" + name.replace("_", "-")


def _check_rates(settings: APPO) -> None:
    if settings.lr > settings.lr_max:
        raise GeladaError(
            f"--lr {settings.lr:g}: must not be above --lr-max {settings.lr_max:g}; raise that too"
        )
    if settings.lr < settings.lr_min:
        raise GeladaError(
            f"--lr {settings.lr:g}: must not be below --lr-min {settings.lr_min:g}; lower that too"
        )


def _check_shape(experiment: Experiment) -> None:
    """Refuse shapes that could never make a step, or that nobody has tested."""
    shape, algorithm = experiment.shape, experiment.algorithm
    name = type(algorithm).__name__
    if isinstance(algorithm, DQN):
        _check_store(experiment, algorithm)
    elif experiment.replay != ReplaySettings():
        raise GeladaError(
            f"an experience store with {name}: it learns from each step once; leave out "
            "--capacity and the like, or take a preset with DQN, such as apex-pong"
        )
    elif shape.learners:
        raise GeladaError(
            f"--learners {shape.learners} with {name}: only DQN's learners stand alone; use "
            "--learners 0"
        )
    if not shape.apart:
        if isinstance(algorithm, A3C):
            raise GeladaError(f"--workers 0 with {name}: its learners live in workers; use 1")
        if experiment.deterministic and shape.ahead >= KEPT:
            raise GeladaError(
                f"--ahead {shape.ahead} with --deterministic: servers keep {KEPT} versions; "
                f"use at most {KEPT - 1}"
            )
        return
    if isinstance(algorithm, APPO):
        raise GeladaError(
            f"--workers {shape.workers} with {name}: its rounds have several gradients, and a "
            "worker pushes one a batch; take a preset with A3C, such as dba3c-pong"
        )
    Quorum(shape.gradients).check(shape.learning)
    if shape.asynchronous and shape.quorum:
        raise GeladaError(
            f"--quorum {shape.quorum} with --asynchronous: every gradient makes a step; leave out "
            "one of them"
        )
    if experiment.deterministic and (shape.asynchronous or shape.gradients < shape.learning):
        what = "--asynchronous" if shape.asynchronous else f"--quorum {shape.quorum}"
        raise GeladaError(
            f"{what} with --deterministic: which gradients count depends on who is faster; use a "
            f"quorum of all {shape.workers} workers"
        )
    if experiment.deterministic and shape.batch:
        raise GeladaError(
            f"--batch {shape.batch} with --deterministic: a batch is one trajectory of each actor "
            "there; use --batch 0"
        )
    if shape.batch and shape.windows < 1:
        raise GeladaError(
            f"--batch {shape.batch}: must be at least one window of --length {shape.length} steps"
        )


def _check_store(experiment: Experiment, algorithm: DQN) -> None:
    """Refuse what an experience store, or learning from one, cannot do."""
    memory, shape = experiment.replay, experiment.shape
    if not memory.capacity:
        raise GeladaError("--capacity 0 with DQN: it learns from stored steps; use 100000 or more")
    if experiment.deterministic:
        raise GeladaError(
            "--deterministic with an experience store: what is drawn depends on who is faster; "
            "leave it out"
        )
    if shape.learners and shape.workers:
        raise GeladaError(
            f"--learners {shape.learners} with --workers {shape.workers}: a worker has its own "
            "learner; use one of the two"
        )
    if shape.learners and shape.replays > shape.actors:
        raise GeladaError(
            f"--replays {shape.replays} with {shape.actors} actors: each store needs an actor that "
            f"adds to it; use at most {shape.actors}"
        )
    if algorithm.outlier and shape.apart and not shape.asynchronous:
        raise GeladaError(
            f"--outlier {algorithm.outlier:g} without --asynchronous: a step would wait for the "
            "gradient that was dropped"
        )
    each = shape.games * (-(-shape.actors // shape.replays) if shape.learners else shape.actors)
    least = each * (max(shape.length, algorithm.window(shape.length)) + 1)
    if memory.capacity < least:
        raise GeladaError(
            f"--capacity {memory.capacity}: must be at least {least}: {each} games of "
            f"{shape.length} steps at once"
        )
    if memory.minimum > memory.capacity:
        raise GeladaError(
            f"--minimum {memory.minimum}: must not be above --capacity {memory.capacity}: the "
            "store would never be full enough to learn from"
        )


def _check_batch(experiment: Experiment) -> None:
    shape, minibatch = experiment.shape, experiment.algorithm.minibatch
    batch = shape.actors * shape.games * shape.length
    if minibatch > batch and isinstance(experiment.algorithm, APPO):
        raise GeladaError(
            f"--minibatch {minibatch}: must not be above the batch of {batch} samples "
            f"({shape.actors} actors x {shape.games} games x {shape.length} steps); lower it or "
            "raise --length"
        )


def _check_frames(experiment: Experiment) -> None:
    torso, settings = experiment.network.torso, experiment.games
    catch = settings.game == "catch"
    side = min(ROWS, COLUMNS) if catch else settings.size
    need = smallest_side(torso)
    if side < need and catch:
        raise GeladaError(f"--torso {torso}: Catch's {ROWS}x{COLUMNS} board needs --torso tiny")
    if side < need:
        raise GeladaError(f"--size {side}: the torso {torso!r} needs at least {need}")
