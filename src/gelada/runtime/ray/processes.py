"""The processes of a run: where each of them is started, and the epoch that they are to begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import ray

from gelada.runtime.graph import Graph
from gelada.runtime.groups import Cluster, group_processes
from gelada.runtime.ray.checks import check_resources
from gelada.runtime.ray.placement import Placement
from gelada.runtime.ray.watched import SilentHosts, WatchedProcess


class Epoch(NamedTuple):
    """One beginning of a run: at its start, after ``--resume`` or after a loss."""

    number: int
    make_graph: Callable[..., Graph]
    """Called in every process; makes the same graph in each, with ``gpu=True`` on its GPU."""
    gpus: bool = False
    """Whether each process that learns asks for a GPU."""


class Processes:
    """Starts the processes of a run on a connected Ray cluster, and has them build their roles.

    Args:
        graph: of the run.
        first: the epoch to begin with.
        cluster: what processes ask for.
        deadline: seconds after which a role that is stuck in one piece of work counts as hung.

    Raises:
        GeladaError: if the cluster has not enough free CPUs or GPUs.
    """

    def __init__(self, graph: Graph, first: Epoch, cluster: Cluster, deadline: float) -> None:
        self._cluster, self._deadline = cluster, deadline
        specs = group_processes(graph, cluster.per_process, first.gpus)
        check_resources(specs, cluster)
        self.all = [WatchedProcess(spec) for spec in specs]
        self.of_role = {role: one for one in self.all for role in one.spec.roles}
        self._placement = Placement(graph, self.all, cluster)
        self._silent = SilentHosts()
        self.set_epoch(first)

    @property
    def beginning(self) -> list[WatchedProcess]:
        """Processes that were asked to begin and have not answered."""
        return [process for process in self.all if process.beginning is not None]

    @property
    def missing(self) -> list[WatchedProcess]:
        """Processes that have no Ray actor: not started yet, or lost."""
        return [process for process in self.all if process.handle is None]

    def actors_of(self, queue: WatchedProcess) -> Sequence[WatchedProcess]:
        """Return the processes whose actors add to a queue; none if it is no queue."""
        return self._placement.actors(queue)

    def set_epoch(self, epoch: Epoch) -> None:
        """Have all processes that begin from now on begin this epoch."""
        self.epoch, self._make_graph = epoch.number, ray.put(epoch.make_graph)

    def begin(self, processes: Sequence[WatchedProcess]) -> None:
        """Ask processes to build their roles and run them; start those that have no Ray actor.

        Hosts that give no answer are avoided if there are others. The tracker writes the run's
        folder, so it stays on this host. Queues are started last, because they go where their
        actors are.
        """
        hosts = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        silent = self._silent.to_avoid(hosts)
        for process in sorted(processes, key=lambda one: one.spec.kind == "queue"):
            if process.handle is not None:
                continue
            avoid = silent if process.spec.kind != "tracker" else set()
            host = self._placement.host(process, hosts - silent)
            process.fill(self._cluster, len(self.of_role), avoid, host)
        for process in processes:
            self._begin(process)

    def redial(self, new: WatchedProcess) -> None:
        """Tell all other processes where the roles of a replaced one are."""
        for other in self.all:
            other.redial(self.epoch, new)

    def avoid_host_of(self, process: WatchedProcess) -> None:
        """Note that the host of a process may be gone, as the process gives no answer."""
        if process.about:
            self._silent.add(process.about.node)

    def _begin(self, process: WatchedProcess) -> None:
        """Ask a process that is there to build its roles and run them."""
        elsewhere = {  # workers never call one another
            role: other.handle
            for other in self.all
            if other.spec.kind != "worker" and other is not process
            for role in other.spec.roles
        }
        process.begin(self.epoch, self._make_graph, elsewhere, self._deadline)
