"""The processes of a run on a Ray cluster: what they ask for, and on which hosts they are started.

The actors of a trajectory queue go together, and the queue goes there. Each learner of a group has
its queue in its process, so its actors go where it goes. All hosts must have the same versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import ray
from ray.exceptions import RayError

from colobus.core.errors import ColobusError
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import (
    ACTIVE,
    Cluster,
    ProcessSpec,
    Room,
    actors_of_queues,
    call_threads,
    group_processes,
    spread_groups,
)
from colobus.runtime.host import versions
from colobus.runtime.ray.remote import RemoteProcess, SilentHosts, cpus_of

WAIT_SECONDS = 60.0
"""Seconds for which a queue waits at most to be told where its actors are. Where many processes
start at once on few cores, each takes long to import its libraries."""


class Placement:
    """Where the processes of a run with several queues or learners go; else Ray decides all.

    Args:
        graph: of the run.
        processes: of the run.
        cluster: what a process asks for.
    """

    def __init__(
        self, graph: RoleGraph, processes: Sequence[RemoteProcess], cluster: Cluster
    ) -> None:
        specs = [process.spec for process in processes]
        names = actors_of_queues(graph, specs)
        self._actors = {
            queue: [one for one in processes if one.spec.name in own]
            for queue, own in names.items()
        }
        learners = actors_of_queues(graph, specs, "learner")
        groups = [list(learners), *map(list, names.values())]
        if len(learners) > 1:
            groups = [[learner, *own] for learner, own in learners.items()]
        free = idle_hosts() if names or len(learners) > 1 else {}
        needs = {spec.name: Room(cluster.cpus, spec.gpus) for spec in specs}
        self._first = spread_groups(groups, needs, free) if len(free) > 1 else {}

    def actors(self, queue: RemoteProcess) -> Sequence[RemoteProcess]:
        """Return the processes whose actors add to a queue; none if it is no queue."""
        return self._actors.get(queue.spec.name, ())

    def host(self, process: RemoteProcess, hosts: Collection[str]) -> str:
        """Return the host for a new process by Ray's name; "" leaves it to Ray.

        A queue goes to the host with most of its actors, which have to be started before. The
        others have a host of their own at the first start, when it is known where there is room.

        Args:
            process: to be started.
            hosts: that there are, without those that give no answer.
        """
        first = self._first.pop(process.spec.name, "")
        if process.spec.name not in self._actors or len(hosts) < 2:
            return first
        near = hosts_of(self._actors[process.spec.name])
        return next((host for host in near if host in hosts), "")


def idle_hosts() -> dict[str, Room]:
    """Return the CPUs and GPUs of each host by Ray's name, this host first.

    {} if some of them are taken, because Ray does not say on which hosts.
    """
    there, free = map(_room, (ray.cluster_resources(), ray.available_resources()))
    if not free.holds(there):
        return {}
    here = ray.get_runtime_context().get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes.sort(key=lambda node: node["NodeID"] != here)
    return {node["NodeID"]: _room(node["Resources"]) for node in nodes}


def _room(resources: Mapping[str, float]) -> Room:
    return Room(resources.get("CPU", 0.0), resources.get("GPU", 0.0))


def hosts_of(processes: Sequence[RemoteProcess]) -> list[str]:
    """Return where processes are, the host with most of them first; wait for those that start."""
    found = Counter(one.about.node for one in processes if one.about)
    starting = [one for one in processes if one.about is None and one.handle is not None]
    if starting:
        asked = [one.handle.about.remote() for one in starting]
        done, _ = ray.wait(asked, num_returns=len(asked), timeout=WAIT_SECONDS)
        for reference in done:
            with suppress(RayError):  # it is missed soon, and replaced
                found[ray.get(reference).node] += 1
    return [host for host, _ in found.most_common()]


def check_resources(specs: Sequence[ProcessSpec], cluster: Cluster) -> None:
    """Raise ColobusError if the cluster has not enough free CPUs and GPUs for all processes."""
    all_there, all_free = ray.cluster_resources(), ray.available_resources()
    gpus = sum(spec.gpus for spec in specs)
    there, free = (resources.get("GPU", 0.0) for resources in (all_there, all_free))
    if gpus > free:
        raise ColobusError(
            f"--device cuda: the run asks for {gpus} GPUs, one for each process that learns, the "
            f"cluster has {there:g}, {free:g} of them free; use fewer learners, or --device cpu, "
            "with which Gloo adds up the gradients of a group"
        )
    wanted = sum(cpus_of(spec, cluster) for spec in specs)
    there, free = (resources.get("CPU", 0.0) for resources in (all_there, all_free))
    if wanted > free:
        count = sum(spec.kind in ACTIVE for spec in specs)
        raise ColobusError(
            f"the run asks for {wanted:g} CPUs ({count} processes, --cpus {wanted / count:g} "
            f"each), the cluster has {there:g}, {free:g} of them free; lower --cpus, raise "
            "--per-process, or take more hosts"
        )


def check_versions(process: RemoteProcess) -> None:
    """Raise ColobusError if the host of a process has other versions than this one."""
    here = versions()
    for name, version in (process.about.versions if process.about else {}).items():
        if version != here[name]:
            raise ColobusError(
                f"{process} has {name} {version}, here it is {here[name]}: install the same on "
                "all hosts"
            )


def memory_of_cluster() -> int:
    """Return the bytes of memory that the hosts of the cluster have for processes."""
    return int(ray.cluster_resources().get("memory", 0.0))


class Incarnation(NamedTuple):
    """One beginning of a run: at its start, after ``--resume`` or after a loss."""

    number: int
    make_graph: Callable[..., RoleGraph]
    """Called in every process; makes the same graph in each, with ``gpu=True`` on its GPU."""
    gpus: bool = False
    """Whether each process that learns asks for a GPU."""


class Processes:
    """Starts the processes of a run on a connected Ray cluster, and has them build their roles.

    Args:
        graph: of the run.
        first: the incarnation to begin with.
        cluster: what processes ask for.
        deadline: seconds after which a role that is stuck in one piece of work counts as hung.

    Raises:
        ColobusError: if the cluster has not enough free CPUs or GPUs.
    """

    def __init__(
        self, graph: RoleGraph, first: Incarnation, cluster: Cluster, deadline: float
    ) -> None:
        self._cluster, self._deadline = cluster, deadline
        specs = group_processes(graph, cluster.per_process, first.gpus)
        check_resources(specs, cluster)
        self.all = [RemoteProcess(spec) for spec in specs]
        self.of_role = {role: one for one in self.all for role in one.spec.roles}
        self._placement = Placement(graph, self.all, cluster)
        self._threads = call_threads(graph, specs)
        self._silent = SilentHosts()
        self.set_incarnation(first)

    @property
    def beginning(self) -> list[RemoteProcess]:
        """Processes that were asked to begin and have not answered."""
        return [process for process in self.all if process.beginning is not None]

    @property
    def missing(self) -> list[RemoteProcess]:
        """Processes that have no Ray actor: not started yet, or lost."""
        return [process for process in self.all if process.handle is None]

    def actors_of(self, queue: RemoteProcess) -> Sequence[RemoteProcess]:
        """Return the processes whose actors add to a queue; none if it is no queue."""
        return self._placement.actors(queue)

    def set_incarnation(self, incarnation: Incarnation) -> None:
        """Have all processes that begin from now on begin this incarnation."""
        self.incarnation, self._make_graph = incarnation.number, ray.put(incarnation.make_graph)

    def begin(self, processes: Sequence[RemoteProcess]) -> None:
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
            process.fill(self._cluster, self._threads[process.spec.name], avoid, host)
        for process in processes:
            self._begin(process)

    def redial(self, new: RemoteProcess) -> None:
        """Tell all other processes where the roles of a replaced one are."""
        for other in self.all:
            other.redial(self.incarnation, new)

    def avoid_host_of(self, process: RemoteProcess) -> None:
        """Note that the host of a process may be gone, as the process gives no answer."""
        if process.about:
            self._silent.add(process.about.node)

    def _begin(self, process: RemoteProcess) -> None:
        """Ask a process that is there to build its roles and run them."""
        elsewhere = {  # workers never call one another
            role: other.handle
            for other in self.all
            if other.spec.kind != "worker" and other is not process
            for role in other.spec.roles
        }
        process.begin(self.incarnation, self._make_graph, elsewhere, self._deadline)
