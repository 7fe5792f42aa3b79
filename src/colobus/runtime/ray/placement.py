"""The processes of a run on a Ray cluster: what they ask for, and on which hosts they are started.

The actors of a trajectory queue go together, and the queue goes there. Each learner of a group has
its queue in its process, so its actors go where it goes. All hosts must have the same versions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from colobus.core.errors import ColobusError
from colobus.core.timing import clock
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import (
    ROUNDING,
    Cluster,
    ProcessSpec,
    Room,
    actors_of_queues,
    call_threads,
    group_processes,
    named_hosts,
    need_of,
    plan_hosts,
    process_groups,
)
from colobus.runtime.ray.remote import RemoteProcess
from colobus.runtime.system import versions

TELL_SECONDS, LOOK_SECONDS = 30.0, 0.5
"""Between two lines that say which room is missing, and between two looks for it, or for processes
that start; the caller is called then, too."""

AVOID_SECONDS = 90.0
"""Seconds for which no process is started on a host of which one gave no answer. Ray takes up to a
minute to see that a host is gone, and starts actors there until then."""

RESOURCES = ("CPU", "GPU", "memory")
"""Ray's names of what a `Room` has, in its order."""

WAIT_SECONDS = 60.0
"""Seconds for which a queue waits at most to be told where its actors are. Where many processes
start at once on few cores, each takes long to import its libraries."""


@dataclass(eq=False)
class Placement:
    """Where the processes of a run with several queues or learners go, or with hosts by name; else
    Ray decides all.

    Raises:
        ColobusError: if a host by name is missing, or has not enough room.
    """

    graph: RoleGraph
    processes: Sequence[RemoteProcess]
    cluster: Cluster  # what a process asks for, and which hosts are named
    memory: Mapping[str, int]  # bytes of a role by its kind

    def __post_init__(self) -> None:
        graph, cluster, memory = self.graph, self.cluster, self.memory
        specs = [process.spec for process in self.processes]
        self._actors = {
            queue: [one for one in self.processes if one.spec.name in own]
            for queue, own in actors_of_queues(graph, specs).items()
        }
        self._first, self.named = dict[str, str](), dict[str, list[str]]()  # hosts by process
        if cluster.place:
            ids, free = hosts_by_name(), hosts_there()
            self._first = plan_hosts(graph, specs, cluster, free, memory, ids)
            named = named_hosts(cluster.place, specs, cluster.sidecars_apart)
            self.named = {name: [ids[host] for host in hosts] for name, hosts in named.items()}
        elif process_groups(graph, specs) and len(free := idle_hosts()) > 1:
            self._first = plan_hosts(graph, specs, cluster, free, memory)

    def actors(self, queue: RemoteProcess) -> Sequence[RemoteProcess]:
        """Return the processes whose actors add to a queue; none if it is no queue."""
        return self._actors.get(queue.spec.name, ())

    def hosts(self, process: RemoteProcess, hosts: Collection[str]) -> list[str]:
        """Return the hosts for a new process by Ray's names; none leaves it to Ray.

        A queue goes to the host with most of its actors, which have to be started before. The
        others have a host of their own at the first start, when it is known where there is room.
        One that has to be on a host by name is begun again on one of its kind's with room; if none
        of these is left, Ray decides.

        Args:
            process: to be started.
            hosts: that there are, without those that give no answer.
        """
        name = process.spec.name
        first = [host for host in [self._first.pop(name, "")] if host in hosts]
        if name in self.named:
            return first or [host for host in self.named[name] if host in hosts]
        if name not in self._actors or len(hosts) < 2:
            return first
        return [host for host in hosts_of(self._actors[name]) if host in hosts][:1]


def _nodes() -> list[dict[str, Any]]:
    """Return what Ray knows of the hosts that live, this host first."""
    here = ray.get_runtime_context().get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return sorted(nodes, key=lambda node: bool(node["NodeID"] != here))


def hosts_there() -> dict[str, Room]:
    """Return what each host has by Ray's name, whether it is taken or not."""
    return {node["NodeID"]: _room(node["Resources"]) for node in _nodes()}


def hosts_by_name() -> dict[str, str]:
    """Return Ray's name of each host by its own names: with and without domain, and its address."""
    found: dict[str, str] = {}
    for node in _nodes():
        full, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
        names = [node.get("NodeName", address), full.split(".")[0], full, address]
        # own names first: Ray names a head that was given no name by its address
        names.sort(key=lambda name: name == address)
        found |= {name: node["NodeID"] for name in names if name not in found}
    return found


def idle_hosts() -> dict[str, Room]:
    """Return the CPUs and GPUs of each host by Ray's name, this host first.

    {} if some of them are taken, because Ray does not say on which hosts.
    """
    there, free = map(_room, (ray.cluster_resources(), ray.available_resources()))
    return hosts_there() if free.holds(there._replace(memory=0.0)) else {}


def _room(resources: Mapping[str, float]) -> Room:
    return Room(*(resources.get(name, 0.0) for name in RESOURCES))


def hosts_of(processes: Sequence[RemoteProcess]) -> list[str]:
    """Return where processes are, the host with most of them first; wait for those that start."""
    found = Counter(one.about.node for one in processes if one.about)
    starting = [one for one in processes if one.about is None and one.handle is not None]
    if starting:
        asked = [one.handle.about.remote() for one in starting]
        for reference in ray.wait(asked, num_returns=len(asked), timeout=WAIT_SECONDS)[0]:
            with suppress(RayError):  # it is missed soon, and replaced
                found[ray.get(reference).node] += 1
    return [host for host, _ in found.most_common()]


def check_resources(
    specs: Sequence[ProcessSpec], cluster: Cluster, memory: Mapping[str, int]
) -> None:
    """Raise ColobusError if the cluster has not enough that is free for all processes.

    Args:
        specs: all processes of the run.
        cluster: what they ask for.
        memory: bytes of a role by its kind.
    """
    there, free = map(_room, (ray.cluster_resources(), ray.available_resources()))
    gpus = sum(spec.gpus for spec in specs)
    if gpus > free.gpus:
        raise ColobusError(
            f"--device cuda: the run asks for {gpus} GPUs, one for each process that learns, the "
            f"cluster has {there.gpus:g}, {free.gpus:g} of them free; use fewer learners, or "
            "--device cpu, with which Gloo adds up the gradients of a group"
        )
    needs = [need_of(spec, cluster, memory) for spec in specs]
    count = sum(need.cpus > 0 for need in needs)
    if count * cluster.cpus > free.cpus + ROUNDING:
        raise ColobusError(
            f"the run asks for {count * cluster.cpus:g} CPUs ({count} processes, --cpus "
            f"{cluster.cpus:g} each), the cluster has {there.cpus:g}, {free.cpus:g} of them free; "
            "lower --cpus, raise --per-process, or take more hosts"
        )
    bytes_ = sum(need.memory for need in needs)
    if bytes_ > free.memory:
        raise ColobusError(
            f"the {len(specs)} processes of the run ask for {bytes_ / 2**30:.1f} GiB of memory, "
            f"and {free.memory / 2**30:.1f} GiB of the cluster are free; raise --per-process, "
            "lower --games, or take more hosts"
        )
    hosts = idle_hosts() if count else {}
    holds = sum(int((room.cpus + ROUNDING) // cluster.cpus) for room in hosts.values())
    if hosts and holds < count:
        most = max(room.cpus for room in hosts.values())
        raise ColobusError(
            f"{count} processes ask for {cluster.cpus:g} CPUs each, and the hosts hold {holds} of "
            f"them: none has more than {most:g} CPUs; lower --cpus or --cores, or take more hosts"
        )
    rooms = hosts_there().values()
    for spec, need in zip(specs, needs, strict=True):
        if not any(room.holds(need) for room in rooms):
            raise ColobusError(
                f"{spec.name} asks for {need.cpus:g} CPUs, {need.gpus:g} GPUs and "
                f"{need.memory / 2**30:.1f} GiB of memory, and no host has all of it; lower --cpus "
                "or --games, or take larger hosts"
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


@dataclass(eq=False)
class Processes:
    """Starts the processes of a run on a connected Ray cluster, and has them build their roles.

    Raises:
        ColobusError: if the cluster has not enough room, unless the run waits for it.
    """

    graph: RoleGraph
    first: Incarnation  # to begin with
    cluster: Cluster  # what processes ask for
    deadline: float  # seconds after which a role that is stuck in one piece of work counts as hung
    memory: Mapping[str, int]  # bytes of a role by its kind

    def __post_init__(self) -> None:
        specs = group_processes(self.graph, self.cluster.per_process, self.first.gpus)
        named_hosts(self.cluster.place, specs, self.cluster.sidecars_apart)  # raises before a wait
        self.all = [RemoteProcess(spec) for spec in specs]
        self.of_role = {role: one for one in self.all for role in one.spec.roles}
        self._threads = call_threads(self.graph, specs)
        self.silent: dict[str, float] = {}  # hosts with a process that gave no answer, and when
        self.late = 0.0  # seconds that the run has waited for hosts, which do not count
        self.set_incarnation(self.first)
        if not self.cluster.patience:
            self.find_room()

    def find_room(self) -> None:
        """Find a place for all processes; raise ColobusError if the cluster has not enough room."""
        check_resources([process.spec for process in self.all], self.cluster, self.memory)
        self.placement = Placement(self.graph, self.all, self.cluster, self.memory)

    def wait_for_room(self, pause: Callable[[], None], log: Callable[[str], None]) -> None:
        """Wait for hosts with enough room, and ask an autoscaler for them; then as `find_room`.

        Args:
            pause: called about twice a second meanwhile.
            log: told twice a minute what is missing.
        """
        from ray.autoscaler.sdk import request_resources

        began, told = time.monotonic(), float("-inf")
        needs = [need_of(process.spec, self.cluster, self.memory) for process in self.all]
        bundles = [dict(zip(RESOURCES, need, strict=True)) for need in needs if need.cpus]
        request_resources(bundles=bundles)
        try:
            while True:
                try:
                    self.find_room()
                    self.late = time.monotonic() - began
                    self.set_incarnation(self.first)
                    return
                except ColobusError as error:
                    now = time.monotonic()
                    left = self.cluster.patience - (now - began)
                    if left <= 0:
                        said = f"after {clock(now - began)} of --wait-for-hosts"
                        raise ColobusError(f"{said}: {error}") from None
                    if now - told >= TELL_SECONDS:
                        log(f"waiting for hosts, {clock(left)} at most: {error}")
                        told = now
                pause()
                time.sleep(LOOK_SECONDS)
        finally:
            request_resources(bundles=[])

    @property
    def beginning(self) -> list[RemoteProcess]:
        """Processes that were asked to begin and have not answered."""
        return [process for process in self.all if process.beginning is not None]

    @property
    def missing(self) -> list[RemoteProcess]:
        """Processes that have no Ray actor: not started yet, or lost."""
        return [process for process in self.all if process.handle is None]

    def set_incarnation(self, incarnation: Incarnation) -> None:
        """Have all processes that begin from now on begin this incarnation."""
        self.incarnation = incarnation.number
        make = incarnation.make_graph
        self._make_graph = ray.put(partial(make, late=self.late) if self.late else make)

    def begin(self, processes: Sequence[RemoteProcess]) -> None:
        """Ask processes to build their roles and run them; start those that have no Ray actor.

        Hosts that give no answer are avoided if there are others. Queues are started last, because
        they go where their actors are.
        """
        hosts = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        now = time.monotonic()
        silent = {host for host, since in self.silent.items() if now - since < AVOID_SECONDS}
        silent = silent if hosts - silent else set()
        for process in sorted(processes, key=lambda one: one.spec.kind == "queue"):
            if process.handle is not None:
                continue
            spec, named = process.spec, self.placement.named
            its = self.placement.hosts(process, hosts - silent), named.get(process.spec.name, ())
            need = need_of(spec, self.cluster, self.memory)
            process.fill(need, self._threads[spec.name], silent, *its, bool(self.cluster.joined))
        for process in processes:
            elsewhere = {  # workers never call one another
                role: other.handle
                for other in self.all
                if other.spec.kind != "worker" and other is not process
                for role in other.spec.roles
            }
            process.begin(self.incarnation, self._make_graph, elsewhere, self.deadline)
