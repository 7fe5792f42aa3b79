"""The processes of a run on a cluster: what they ask for, and which roles share one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from colobus.core.fields import Range
from colobus.runtime.graph import Handle, Kind, RoleGraph, handles

ProcessKind = Literal["worker", "server", "replay", "queue", "learner", "tracker"]
"""A worker can be replaced alone: its roles are a worker's, or actors, or a learner that stands
alone. So can a queue, one of several. ``learner`` is the process of a central learner and the
servers that step its memory."""

ROUNDING = 1e-6
"""Of sums of CPUs."""

ACTIVE: tuple[ProcessKind, ...] = ("worker", "learner")
"""Kinds of processes with active roles; the others only answer."""

ALONE: frozenset[ProcessKind] = frozenset({"worker", "queue"})
"""Kinds of processes that can be replaced while the others go on."""


@dataclass(frozen=True)
class Cluster:
    """Where processes live, what each asks for, and when one counts as lost (with --on ray)."""

    address: str = ""
    """Of a running Ray cluster, HOST:PORT (default: RAY_ADDRESS, else a Ray of its own)."""
    per_process: Annotated[int, Range(1)] = 1
    """Workers, or remote actors, in one process."""
    cpus: Annotated[float, Range(0)] = 1.0
    """CPUs that a process with workers, actors or the learner asks for; others ask for none."""
    silence: Annotated[float, Range(1, 86_400)] = 4.0
    """Seconds without an answer after which a process counts as frozen and is replaced (twice
    that before its first finished step)."""
    sidecars_apart: bool = False
    """Have evaluator and recorder on another host than the command's: each asks for --cpus there,
    is sent checkpoints, and sends evaluations and films back."""
    shrink: bool = False
    """While more workers are lost than there are backups, a step takes the gradients of those
    left; else it waits until the lost are back."""

    @property
    def joined(self) -> str:
        """Address of the running cluster that is joined; "" if the run starts a Ray of its own."""
        return self.address or os.environ.get("RAY_ADDRESS", "")


@dataclass(frozen=True)
class Hosts:
    """Simulated hosts, and what work costs on them (with --on virtual)."""

    costs: str = ""
    """What work costs: a file of colobus bench --costs, or such as learn=50ms,emulate=1ms."""
    hosts: Annotated[int, Range(0, 100_000)] = 0
    """Hosts, among which workers and servers are spread (0: one for each worker)."""
    host_cores: Annotated[float, Range(0)] = 0.0
    """Cores of a host, which the threads there share (0: one for each thread)."""
    link: str = "10Gb"
    """Of a host, in each direction: bits a second, such as 10Gb, or bytes, such as 20MB."""


class ProcessSpec(NamedTuple):
    """The roles of one process."""

    name: str
    kind: ProcessKind
    roles: tuple[str, ...]
    learns: bool  # has a learner
    gpus: int = 0  # that it asks for


def group_processes(graph: RoleGraph, per_process: int, gpus: bool = False) -> list[ProcessSpec]:
    """Group the roles of a graph into processes, and so many workers into one process.

    With ``gpus`` each process that learns asks for a GPU, which its learners share.
    """
    roles: dict[str, list[str]] = {}
    kinds: dict[str, set[Kind]] = {}
    for node in graph.nodes:
        roles.setdefault(node.process, []).append(node.name)
        kinds.setdefault(node.process, set()).add(node.kind)
    specs: list[ProcessSpec] = []
    workers: list[str] = []
    for process, names in roles.items():
        kind = kind_of(kinds[process])
        if kind == "worker":
            workers.append(process)
        else:
            specs.append(ProcessSpec(process, kind, tuple(names), "learner" in kinds[process]))
    for i in range(0, len(workers), per_process):
        group = workers[i : i + per_process]
        name = group[0] if len(group) == 1 else f"{group[0]} to {group[-1].rpartition('-')[2]}"
        shared = [role for process in group for role in roles[process]]
        learns = any("learner" in kinds[process] for process in group)
        specs.append(ProcessSpec(name, "worker", tuple(shared), learns))
    return [spec._replace(gpus=int(gpus and spec.learns)) for spec in specs]


def actors_of_queues(
    graph: RoleGraph, specs: Sequence[ProcessSpec], kind: ProcessKind = "queue"
) -> dict[str, tuple[str, ...]]:
    """Return, for each process of a kind, the processes whose actors add to the queue in it.

    A queue that is one of several has a process of its own. In a group of learners each has its
    queue in its own process, of the kind ``learner``.
    """
    process_of = {role: spec.name for spec in specs for role in spec.roles}
    found: dict[str, dict[str, None]] = {s.name: {} for s in specs if s.kind == kind}
    for node in graph.nodes:
        for value in node.args if node.kind == "actor" else ():
            if isinstance(value, Handle) and process_of[value.name] in found:
                found[process_of[value.name]][process_of[node.name]] = None
    return {name: tuple(actors) for name, actors in found.items()}


ANSWERED = 8
"""Calls that a process answers at the same time at most; more would only share its cores. Calls
that wait are not among them (`colobus.core.timing.PatientCall`)."""


def call_threads(graph: RoleGraph, specs: Sequence[ProcessSpec]) -> dict[str, int]:
    """Return for each process how many threads it needs to answer the calls of others.

    An active role makes one call at a time: to the roles that its arguments have, or which passive
    roles in its process pass its calls on to. The process that watches makes one, too.
    """
    process_of = {role: spec.name for spec in specs for role in spec.roles}
    known = {node.name: set(handles((node.args, node.kwargs))) for node in graph.nodes}
    callers: dict[str, set[str]] = {spec.name: set() for spec in specs}
    for node in graph.nodes:
        if not node.active:
            continue
        here, found, new = process_of[node.name], set[str](), known[node.name]
        while new := new - found:
            found |= new
            near = [role for role in new if process_of[role] == here]
            new = set[str]().union(*(known[role] for role in near))
        for role in found:
            if process_of[role] != here:
                callers[process_of[role]].add(node.name)
    return {name: min(len(own) + 1, ANSWERED) for name, own in callers.items()}


class Room(NamedTuple):
    """What a process asks for, or a host has."""

    cpus: float
    gpus: float = 0.0

    def holds(self, need: Room) -> bool:
        """Return whether there is room for a process."""
        return self.cpus >= need.cpus - ROUNDING and self.gpus >= need.gpus


def spread_groups(
    groups: Sequence[Sequence[str]], needs: Mapping[str, Room], free: Mapping[str, Room]
) -> dict[str, str]:
    """Return a host for each process, those of a group on as few hosts as it takes.

    Args:
        groups: of names of processes, in the order in which they get their hosts. One that is in
            several groups gets its host with the first.
        needs: what each process asks for.
        free: what is free on each host, the host preferred among equals first.

    Returns:
        {} if they have not room.
    """
    left, found = dict(free), dict[str, str]()
    for group in groups:
        host = ""
        for name in group:
            if name in found:
                continue
            need = needs[name]
            if not host or not left[host].holds(need):
                able = [one for one, room in left.items() if room.holds(need)]
                host = max(able, key=lambda one: left[one].cpus, default="")
            if not host:
                return {}
            found[name] = host
            left[host] = Room(left[host].cpus - need.cpus, left[host].gpus - need.gpus)
    return found


def kind_of(kinds: Set[Kind]) -> ProcessKind:
    """Return the kind of a process from the kinds of its roles."""
    if "tracker" in kinds:
        return "tracker"
    if "server" in kinds:
        return "learner" if "learner" in kinds else "server"
    if kinds & {"learner", "actor"}:
        return "worker"
    return "queue" if "queue" in kinds else "replay"
