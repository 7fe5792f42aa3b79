"""All settings of a run, as frozen dataclasses, and the table of algorithms."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any

from colobus.algorithms.a3c import A3C
from colobus.algorithms.api import Algorithm
from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.algorithms.iqn import IQN
from colobus.algorithms.pqn import PQN
from colobus.core.errors import ColobusError, nearest
from colobus.core.fields import POSITIVE, OnlyWith, Range
from colobus.core.functions import find_function, is_function, name_of
from colobus.envs.api import GameSettings
from colobus.experiment.shape import ReplaySettings as ReplaySettings
from colobus.experiment.shape import ReuseSettings as ReuseSettings
from colobus.experiment.shape import Shape as Shape
from colobus.nets.config import NetworkSettings
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule, TrackerSettings


@dataclass(frozen=True)
class Sidecars:
    """Processes of low priority beside a run. They take some of the processors' time."""

    evaluator: bool = False
    """Evaluate each new checkpoint in 50 full games."""
    recorder: bool = False
    """Film each new checkpoint."""
    record_length: Annotated[
        float, POSITIVE, OnlyWith("with --recorder", lambda sidecars: sidecars.recorder)
    ] = 120.0
    """Length of a film in seconds."""
    evaluate_minutes: Annotated[
        float, Range(0), OnlyWith("with --evaluator", lambda sidecars: sidecars.evaluator)
    ] = 0.0
    """Begin no further game of an evaluation after so many minutes (0: play all 50)."""
    every: Annotated[
        bool,
        OnlyWith(
            "with --evaluator or --recorder",
            lambda sidecars: sidecars.evaluator or sidecars.recorder,
        ),
    ] = False
    """Evaluate and film every checkpoint, the oldest first, and not only the newest; wants
    --keep-checkpoints 0."""


@dataclass(frozen=True)
class Experiment:
    """All settings of a run, as saved in ``config.json``."""

    games: GameSettings = field(default_factory=GameSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    algorithm: Algorithm = field(default_factory=APPO)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    shape: Shape = field(default_factory=Shape)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    reuse: ReuseSettings = field(default_factory=ReuseSettings)
    stop: StopRule = field(default_factory=StopRule)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    sidecars: Sidecars = field(default_factory=Sidecars)
    seed: Annotated[int, Range(0, 2**31 - 1)] = 1
    """Seed of all random numbers."""
    deterministic: bool = False
    """The same seed gives the same run, bit for bit: the number of a rollout decides which
    parameters play it, and nothing in training depends on time."""

    @property
    def budget(self) -> StopRule:
        """What ``anneal_share`` is a share of; runs that must be alike follow no clock."""
        alike = self.deterministic or self.shape.topology.replicas > 1
        return replace(self.stop, minutes=None) if alike else self.stop

    @property
    def games_go_on(self) -> bool:
        """Whether games may go on after a resume, in which one core plays all of an actor's."""
        return self.deterministic or self.shape.emulators == 1


ALGORITHMS: dict[str, type[Algorithm]] = {
    "appo": APPO,
    "a3c": A3C,
    "dqn": DQN,
    "iqn": IQN,
    "pqn": PQN,
}
"""Algorithms by their names in ``config.json``."""


def groups_of(experiment: Experiment) -> dict[str, Any]:
    """Return the groups of settings of an experiment, dataclasses by name."""
    return {k: v for k, v in vars(experiment).items() if is_dataclass(v)}


@cache
def shared_names() -> frozenset[str]:
    """Return the names of settings that occur in two groups with some algorithm."""
    shared = {"epsilon"}  # the optimizer's would be mistaken for that of exploration
    for algorithm in ALGORITHMS.values():
        groups = groups_of(Experiment(algorithm=algorithm())).values()
        count = Counter(each.name for group in groups for each in fields(group))
        shared |= {name for name, times in count.items() if times > 1}
    return frozenset(shared)


def flag(name: str, group: str = "") -> str:
    """Return the flag of a setting. It begins with the group if the name is not unique."""
    own = f"{group}-{name}" if group and name in shared_names() else name
    return "--" + own.replace("_", "-")


def argument(name: str, group: str = "") -> str:
    """Return the name of a setting as an argument in Python: that of its flag, with underscores."""
    return flag(name, group).removeprefix("--").replace("-", "_")


def algorithm_name(experiment: Experiment) -> str:
    """Return the name of its algorithm in `ALGORITHMS`, or ``module:Class``."""
    kind = type(experiment.algorithm)
    return {own: name for name, own in ALGORITHMS.items()}.get(kind) or name_of(kind)


def find_algorithm(name: str) -> type[Algorithm]:
    """Return the algorithm of a name in `ALGORITHMS`, or of ``module:Class``, which is imported.

    Raises:
        ColobusError: if there is none, or it is something else.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if not is_function(name):
        raise ColobusError(
            f"unknown algorithm {name[:40]!r}; {nearest(name, ALGORITHMS)}, or name a class of "
            "your own as module:Class"
        )
    kind: Any = find_function(name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm) and is_dataclass(kind)):
        raise ColobusError(f"{name!r}: is no algorithm: a frozen dataclass that is an Algorithm")
    others = {
        each.name
        for key, value in groups_of(Experiment()).items()
        if key != "algorithm"
        for each in fields(value)
    } - shared_names()
    if taken := sorted(others & {each.name for each in fields(kind)}):
        raise ColobusError(f"{name!r}: its setting {taken[0]} has the name of another; rename it")
    found: type[Algorithm] = kind
    return found


def settings(experiment: Experiment) -> dict[str, Any]:
    """Return all settings of an experiment by the names that `preset` takes, for a tracker."""
    found: dict[str, Any] = {"algorithm": type(experiment.algorithm).__name__}
    for group, values in groups_of(experiment).items():
        found |= {argument(name, group): value for name, value in vars(values).items()}
    return found | {"seed": experiment.seed, "deterministic": experiment.deterministic}
