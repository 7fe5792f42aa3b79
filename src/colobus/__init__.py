"""Colobus: distributed deep reinforcement learning that learns games from what an agent observes.

``colobus.train("pong")`` trains an agent, ``colobus.load("runs/pong-1")`` loads it, and
``colobus.evaluate`` and ``colobus.record`` play with it (docs/python.md).
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # most of the time of this import would be that of `typing`
if TYPE_CHECKING:
    from typing import Any

    from colobus.algorithms.a3c import A3C
    from colobus.algorithms.appo import APPO
    from colobus.algorithms.dqn import DQN
    from colobus.algorithms.iqn import IQN
    from colobus.algorithms.pqn import PQN
    from colobus.core.errors import CannotWrite, ColobusError, Diverged, RoleFailed, Stalled
    from colobus.core.types import Episode
    from colobus.envs.api import GameSettings
    from colobus.evaluation.agent import Agent, load
    from colobus.evaluation.evaluator import evaluate
    from colobus.evaluation.films.player import Film, record
    from colobus.evaluation.protocols import Evaluation
    from colobus.experiment.settings import (
        Experiment,
        ReplaySettings,
        ReuseSettings,
        Shape,
        Sidecars,
        settings,
    )
    from colobus.nets.config import NetworkSettings
    from colobus.ops.optimizers import OptimizerSettings
    from colobus.roles.tracker.reports import Status, StopRule, TrackerSettings
    from colobus.runtime.groups import Cluster, Hosts
    from colobus.training.callbacks import StopTraining
    from colobus.training.entry import preset, train
    from colobus.training.run import Result

__version__ = "0.2.0.dev0"

_HOME = {
    "algorithms.a3c": "A3C",
    "algorithms.appo": "APPO",
    "algorithms.dqn": "DQN",
    "algorithms.iqn": "IQN",
    "algorithms.pqn": "PQN",
    "core.errors": "CannotWrite ColobusError Diverged RoleFailed Stalled",
    "core.types": "Episode",
    "envs.api": "GameSettings",
    "evaluation.agent": "Agent load",
    "evaluation.evaluator": "evaluate",
    "evaluation.films.player": "Film record",
    "evaluation.protocols": "Evaluation",
    "experiment.settings": "Experiment ReplaySettings ReuseSettings Shape Sidecars settings",
    "nets.config": "NetworkSettings",
    "ops.optimizers": "OptimizerSettings",
    "roles.tracker.reports": "Status StopRule TrackerSettings",
    "runtime.groups": "Cluster Hosts",
    "training.callbacks": "StopTraining",
    "training.entry": "preset train",
    "training.run": "Result",
}
"""Modules and the names of each that this one offers. A test compares them with the imports."""

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
    home = next((home for home, names in _HOME.items() if name in names.split()), None)
    if home is None:
        from colobus.experiment.aliases import attribute_hint

        said = "" if name.startswith("_") else attribute_hint(name)
        raise AttributeError(f"module 'colobus' has no attribute {name!r}{said}")
    value = getattr(importlib.import_module(f"colobus.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, so that an interactive shell completes them."""
    return sorted(__all__)
