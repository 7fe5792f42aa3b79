"""On which hosts processes go: the actors of a trajectory queue together, and the queue there.

Each learner of a group has its queue in its process, so its actors go where it goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import ray
from ray.exceptions import RayError

from gelada.runtime.graph import Graph
from gelada.runtime.groups import Cluster, Room, actors_of_queues, spread_groups
from gelada.runtime.ray.watched import WatchedProcess

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

    def __init__(self, graph: Graph, processes: Sequence[WatchedProcess], cluster: Cluster) -> None:
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

    def actors(self, queue: WatchedProcess) -> Sequence[WatchedProcess]:
        """Return the processes whose actors add to a queue; none if it is no queue."""
        return self._actors.get(queue.spec.name, ())

    def host(self, process: WatchedProcess, hosts: Collection[str]) -> str:
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


def hosts_of(processes: Sequence[WatchedProcess]) -> list[str]:
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
