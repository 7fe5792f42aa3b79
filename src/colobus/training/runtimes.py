"""Where the roles of a run live: the table of runtimes, and the one of this process.

A runtime is one file with a subclass of `Launcher`, and one line in `RUNTIMES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

from colobus.core.files import Events
from colobus.envs.api import Games
from colobus.experiment.autoscale import idle
from colobus.experiment.memory import check_limits
from colobus.experiment.settings import Experiment
from colobus.roles.tracker import Status
from colobus.runs.config import Config
from colobus.runs.folder import EVENTS
from colobus.runtime.api import Errand, Runtime
from colobus.runtime.devices import Devices, Placement, place, prepare
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster, Hosts
from colobus.runtime.system import usable_cores
from colobus.runtime.threads import Threads
from colobus.training.start import Start

Log = Callable[[str], None]
"""Takes lines for the user."""


class Plan(NamedTuple):
    """What the roles of a run are made from."""

    experiment: Experiment
    folder: Path
    config: Config
    start: Start
    games: list[Games] | None  # that are open already, by actor
    began: float  # `time.monotonic` when the run began
    make: Callable[..., RoleGraph]  # makes the graph of the roles, as `make_graph` does
    placement: Placement
    log: Log

    def events(self, began: float, file: str = EVENTS) -> Events:
        """Return what writes events, with the seconds of the run: it may have been resumed."""
        return Events(self.folder / file, began - self.start.counters.get("seconds", 0.0))

    def graph(self, **more: Any) -> RoleGraph:
        """Return the graph of the roles; ``more`` are further arguments of `make_graph`."""
        about = (self.experiment, self.start, self.folder)
        return self.make(*about, placement=self.placement, **more)


class Launcher:
    """Makes ready for the roles of a run, and hands them to a runtime.

    This one has all roles in this process, each active one on a thread of its own.
    """

    remote = False
    """Whether roles live in other processes, which open games and devices themselves."""
    shrinks = False
    """Whether steps take the gradients of the learners that are there while others are lost."""
    time = ""
    """What ``config.json`` says about the seconds of a run; "" for those of the clock."""

    def __init__(self, cluster: Cluster | Hosts | None = None) -> None:
        """Take the settings of a cluster or of simulated hosts, which threads have not."""

    def check(self, experiment: Experiment, devices: Devices, resumed: bool = False) -> Placement:
        """Return the devices of a run.

        Raises:
            ColobusError: if there is no such device, or no room for the run.
        """
        placement = place(devices)
        check_limits(experiment, None, placement, resumed)
        return placement

    def prepare(self, experiment: Experiment, placement: Placement, log: Log) -> None:
        """Set up this process for a run; say so if most of its cores would be idle."""
        prepare(placement, experiment.deterministic)
        if line := idle(experiment, usable_cores(), placement.learn.type == "cuda"):
            log(line)

    def join(self, experiment: Experiment, stack: ExitStack, log: Log) -> None:
        """Join the processes of others, if there are any, until the stack is left."""

    def tell(self, status: Status) -> None:
        """Take the status of the run, about twice a second."""

    def elsewhere(self, what: str, log: Log) -> Errand | None:
        """Return what sends the errands of a sidecar to another host; None: it is a child here."""
        return None

    def launch(self, plan: Plan, status: Callable[[], Status]) -> tuple[RoleGraph, Runtime]:
        """Return the graph of the roles, and the runtime that will run them.

        Args:
            plan: what the roles are made from.
            status: returns the status of the run when it was last heard of.
        """
        graph = plan.graph(began=plan.began, games=plan.games)
        deadline, events = plan.experiment.shape.deadline, plan.events(plan.began)
        return graph, Threads(graph.build(), deadline, plan.log, events)


RuntimeName = Literal["threads", "ray", "virtual"]

RUNTIMES: dict[RuntimeName, tuple[str, str]] = {
    "threads": ("colobus.training.runtimes", "Launcher"),
    "ray": ("colobus.training.on_ray", "OnRay"),
    "virtual": ("colobus.training.on_virtual", "OnVirtual"),
}
"""Modules and classes of launchers by the names that ``--on`` takes."""


def runtime_of(cluster: Cluster | Hosts | None) -> RuntimeName:
    """Return the runtime of a run that names its cluster and no runtime."""
    if isinstance(cluster, Hosts):
        return "virtual"
    return "threads" if cluster is None else "ray"


def launcher(on: RuntimeName, cluster: Cluster | Hosts | None = None) -> Launcher:
    """Return what launches runs on a runtime; ``cluster`` has the settings of its processes."""
    module, name = RUNTIMES[on]
    made: Launcher = getattr(importlib.import_module(module), name)(cluster)
    return made
