"""Colobus: distributed deep reinforcement learning that learns games from what an agent observes.

``colobus.train("pong")`` trains an agent, ``colobus.load("runs/pong-1")`` loads it, and
``colobus.evaluate`` and ``colobus.record`` play with it (docs/python.md).
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # most of the time of this import would be that of `typing`
if TYPE_CHECKING:
    from typing import Any

    from colobus.algorithms.a3c import A3C as A3C
    from colobus.algorithms.appo import APPO as APPO
    from colobus.algorithms.dqn import DQN as DQN
    from colobus.algorithms.iqn import IQN as IQN
    from colobus.algorithms.pqn import PQN as PQN
    from colobus.core.errors import CannotWrite as CannotWrite
    from colobus.core.errors import ColobusError as ColobusError
    from colobus.core.errors import Diverged as Diverged
    from colobus.core.errors import RoleFailed as RoleFailed
    from colobus.core.errors import Stalled as Stalled
    from colobus.core.types import Episode as Episode
    from colobus.envs.api import GameSettings as GameSettings
    from colobus.evaluation.agent import Agent as Agent
    from colobus.evaluation.agent import load as load
    from colobus.evaluation.evaluator import evaluate as evaluate
    from colobus.evaluation.films.player import Film as Film
    from colobus.evaluation.films.player import record as record
    from colobus.evaluation.protocols import Evaluation as Evaluation
    from colobus.experiment.settings import Experiment as Experiment
    from colobus.experiment.settings import ReplaySettings as ReplaySettings
    from colobus.experiment.settings import ReuseSettings as ReuseSettings
    from colobus.experiment.settings import Shape as Shape
    from colobus.experiment.settings import Sidecars as Sidecars
    from colobus.experiment.settings import settings as settings
    from colobus.nets.config import NetworkSettings as NetworkSettings
    from colobus.ops.optimizers import OptimizerSettings as OptimizerSettings
    from colobus.roles.tracker.reports import Status as Status
    from colobus.roles.tracker.reports import StopRule as StopRule
    from colobus.roles.tracker.reports import TrackerSettings as TrackerSettings
    from colobus.runtime.groups import Cluster as Cluster
    from colobus.runtime.groups import Hosts as Hosts
    from colobus.training.callbacks import StopTraining as StopTraining
    from colobus.training.entry import preset as preset
    from colobus.training.entry import train as train
    from colobus.training.run import Result as Result

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
    "Hosts": "runtime.groups",
    "ColobusError": "core.errors",
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
    "settings": "experiment.settings",
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
    "ColobusError",
    "Diverged",
    "Episode",
    "Evaluation",
    "Experiment",
    "Film",
    "GameSettings",
    "Hosts",
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
    """Import what is asked for, and not before: ``colobus --help`` needs no torch."""
    if name not in _HOME:
        from colobus.experiment.aliases import attribute_hint

        said = "" if name.startswith("_") else attribute_hint(name)
        raise AttributeError(f"module 'colobus' has no attribute {name!r}{said}")
    value = getattr(importlib.import_module(f"colobus.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, so that an interactive shell completes them."""
    return sorted(__all__)
