"""Gelada: distributed deep reinforcement learning that learns games from what an agent observes.

``gelada.train("pong")`` trains an agent, ``gelada.load("runs/pong-1")`` loads it, and
``gelada.evaluate`` and ``gelada.record`` play with it (docs/python.md).
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # most of the time of this import would be that of `typing`
if TYPE_CHECKING:
    from typing import Any

    from gelada.algorithms.a3c import A3C as A3C
    from gelada.algorithms.appo import APPO as APPO
    from gelada.algorithms.dqn import DQN as DQN
    from gelada.algorithms.iqn import IQN as IQN
    from gelada.algorithms.pqn import PQN as PQN
    from gelada.core.errors import CannotWrite as CannotWrite
    from gelada.core.errors import Diverged as Diverged
    from gelada.core.errors import GeladaError as GeladaError
    from gelada.core.errors import RoleFailed as RoleFailed
    from gelada.core.errors import Stalled as Stalled
    from gelada.core.types import Episode as Episode
    from gelada.envs.api import GameSettings as GameSettings
    from gelada.evaluation.agent import Agent as Agent
    from gelada.evaluation.agent import load as load
    from gelada.evaluation.evaluator import evaluate as evaluate
    from gelada.evaluation.films.player import Film as Film
    from gelada.evaluation.films.player import record as record
    from gelada.evaluation.protocols import Evaluation as Evaluation
    from gelada.experiment.settings import Experiment as Experiment
    from gelada.experiment.settings import ReplaySettings as ReplaySettings
    from gelada.experiment.settings import ReuseSettings as ReuseSettings
    from gelada.experiment.settings import Shape as Shape
    from gelada.experiment.settings import Sidecars as Sidecars
    from gelada.nets.config import NetworkSettings as NetworkSettings
    from gelada.ops.optimizers import OptimizerSettings as OptimizerSettings
    from gelada.roles.tracker.reports import Status as Status
    from gelada.roles.tracker.reports import StopRule as StopRule
    from gelada.roles.tracker.reports import TrackerSettings as TrackerSettings
    from gelada.runtime.groups import Cluster as Cluster
    from gelada.training.callbacks import StopTraining as StopTraining
    from gelada.training.entry import preset as preset
    from gelada.training.entry import settings as settings
    from gelada.training.entry import train as train
    from gelada.training.run import Result as Result

__version__ = "0.2.0.dev0"

_HOME = {
    "A3C": "algorithms.a3c",
    "APPO": "algorithms.appo",
    "Agent": "evaluation.agent",
    "CannotWrite": "core.errors",
    "Cluster": "runtime.groups",
    "DQN": "algorithms.dqn",
    "Diverged": "core.errors",
    "Episode": "core.types",
    "Evaluation": "evaluation.protocols",
    "Experiment": "experiment.settings",
    "Film": "evaluation.films.player",
    "GameSettings": "envs.api",
    "GeladaError": "core.errors",
    "NetworkSettings": "nets.config",
    "OptimizerSettings": "ops.optimizers",
    "IQN": "algorithms.iqn",
    "PQN": "algorithms.pqn",
    "ReplaySettings": "experiment.settings",
    "Result": "training.run",
    "ReuseSettings": "experiment.settings",
    "RoleFailed": "core.errors",
    "Shape": "experiment.settings",
    "Sidecars": "experiment.settings",
    "Stalled": "core.errors",
    "Status": "roles.tracker.reports",
    "StopRule": "roles.tracker.reports",
    "StopTraining": "training.callbacks",
    "TrackerSettings": "roles.tracker.reports",
    "evaluate": "evaluation.evaluator",
    "load": "evaluation.agent",
    "preset": "training.entry",
    "record": "evaluation.films.player",
    "settings": "training.entry",
    "train": "training.entry",
}
"""Where the names are that this module offers. A test compares them with the imports above."""

__all__ = [
    "A3C",
    "APPO",
    "DQN",
    "IQN",
    "PQN",
    "Agent",
    "CannotWrite",
    "Cluster",
    "Diverged",
    "Episode",
    "Evaluation",
    "Experiment",
    "Film",
    "GameSettings",
    "GeladaError",
    "NetworkSettings",
    "OptimizerSettings",
    "ReplaySettings",
    "Result",
    "ReuseSettings",
    "RoleFailed",
    "Shape",
    "Sidecars",
    "Stalled",
    "Status",
    "StopRule",
    "StopTraining",
    "TrackerSettings",
    "__version__",
    "evaluate",
    "load",
    "preset",
    "record",
    "settings",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and not before: ``gelada --help`` needs no torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'gelada' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"gelada.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, so that an interactive shell completes them."""
    return sorted(__all__)
