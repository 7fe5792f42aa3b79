"""Range checks of an experiment: what is wrong is said before anything is started."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from gelada.envs.catch import COLUMNS, ROWS
from gelada.errors import GeladaError
from gelada.nets.torsos import TORSOS
from gelada.presets import Experiment


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
    "passes": Range(1, 100),
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
    "actors": Range(1, 256),
    "games": Range(1, 4096),
    "length": Range(1, 65536),
    "servers": Range(1, 32),
    "ahead": Range(0, 64),
    "random_steps": Range(0),
    "deadline": POSITIVE,
    "steps": Range(1),
    "minutes": POSITIVE,
    "until_score": ANY,
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
    _check_rates(experiment)
    _check_batch(experiment)
    _check_frames(experiment)


def flag(name: str) -> str:
    """Return the command line's name of a setting."""
    return "--" + name.replace("_", "-")


def _check_rates(experiment: Experiment) -> None:
    settings = experiment.algorithm
    if settings.lr > settings.lr_max:
        raise GeladaError(
            f"--lr {settings.lr:g}: must not be above --lr-max {settings.lr_max:g}; raise that too"
        )
    if settings.lr < settings.lr_min:
        raise GeladaError(
            f"--lr {settings.lr:g}: must not be below --lr-min {settings.lr_min:g}; lower that too"
        )


def _check_batch(experiment: Experiment) -> None:
    shape, minibatch = experiment.shape, experiment.algorithm.minibatch
    batch = shape.actors * shape.games * shape.length
    if minibatch > batch:
        raise GeladaError(
            f"--minibatch {minibatch}: must not be above the batch of {batch} samples "
            f"({shape.actors} actors x {shape.games} games x {shape.length} steps); lower it or "
            "raise --length"
        )


def _check_frames(experiment: Experiment) -> None:
    torso, settings = experiment.network.torso, experiment.games
    catch = settings.game == "catch"
    side = min(ROWS, COLUMNS) if catch else settings.size
    need = 1
    for convolution in reversed(TORSOS[torso]):
        need = (need - 1) * convolution.stride + convolution.kernel
    if side < need and catch:
        raise GeladaError(f"--torso {torso}: Catch's {ROWS}x{COLUMNS} board needs --torso tiny")
    if side < need:
        raise GeladaError(f"--size {side}: the torso {torso!r} needs at least {need}")
