"""The processes of a run on a cluster: what they ask for, which roles share one, and their hosts.

Hosts may be named, such as in ``servers=n[1-4] workers=n[5-68]``, as Slurm writes names.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from colobus.core.errors import ColobusError
from colobus.core.fields import Range
from colobus.runtime.graph import Handle, Kind, Node, RoleGraph, handles

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
    place: str = ""
    """Hosts by name for processes of a kind, such as "servers=n[1-4] workers=n[5-68]"; colobus show
    --nodes prints who lives where (default: Ray decides)."""
    object_store: Annotated[int, Range(0)] = 0
    """MiB of the object store of a Ray that is started for the run (0: as much as it needs)."""
    wait_for_hosts: str = "0s"
    """How long to wait for hosts that have room for the run, such as 90s, 10m or 1h; an autoscaler
    is asked for them."""
    silence: Annotated[float, Range(1, 86_400)] = 4.0
    """Seconds without an answer after which a process counts as frozen and is replaced (twice
    that before its first finished step)."""
    sidecars_apart: bool = False
    """Have evaluator and recorder on another host than the command's: each asks for a CPU there (or
    a smaller --cpus), is sent checkpoints, and sends evaluations and films back."""
    shrink: bool = False
    """While more workers are lost than there are backups, a step takes the gradients of those
    left; else it waits for them, ten minutes at most."""

    @property
    def patience(self) -> float:
        """Seconds for which a run waits for hosts.

        Raises:
            ColobusError: if it is no time.
        """
        text = self.wait_for_hosts
        if not re.fullmatch(r"\d{1,6}[smh]", text, re.ASCII):
            raise ColobusError(f"--wait-for-hosts {text}: want a time such as 90s, 10m or 1h")
        return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]

    @property
    def beside(self) -> float:
        """CPUs that a sidecar apart asks for."""
        return min(self.cpus, 1.0)

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
    nodes: dict[str, list[Node]] = {}
    for node in graph.nodes:
        nodes.setdefault(node.process, []).append(node)
    kinds = {process: kind_of({node.kind for node in own}) for process, own in nodes.items()}
    groups = [[process] for process in nodes if kinds[process] != "worker"]
    workers = [process for process in nodes if kinds[process] == "worker"]
    for _, found in itertools.groupby(workers, lambda process: process.rpartition("-")[0]):
        alike = list(found)  # as hosts are named, and GPUs asked for, by what a process is
        groups += [alike[i : i + per_process] for i in range(0, len(alike), per_process)]
    specs: list[ProcessSpec] = []
    for group in groups:
        name = group[0] if len(group) == 1 else f"{group[0]} to {group[-1].rpartition('-')[2]}"
        own = [node for process in group for node in nodes[process]]
        learns = any(node.kind == "learner" for node in own)
        roles = tuple(node.name for node in own)
        specs.append(ProcessSpec(name, kinds[group[0]], roles, learns, int(gpus and learns)))
    return specs


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
    known = {node.name: set(handles(node)) for node in graph.nodes}
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


def process_groups(graph: RoleGraph, specs: Sequence[ProcessSpec]) -> list[list[str]]:
    """Return which processes should share a host: a queue's or a learner's with its actors'.

    [] in a run with one learner and one queue.
    """
    learners = actors_of_queues(graph, specs, "learner")
    if len(learners) > 1:
        return [[learner, *own] for learner, own in learners.items()]
    queues = actors_of_queues(graph, specs)
    return [list(learners), *map(list, queues.values())] if queues else []


class Room(NamedTuple):
    """What a process asks for, or a host has."""

    cpus: float
    gpus: float = 0.0
    memory: float = 0.0
    """Bytes."""

    def holds(self, need: Room) -> bool:
        """Return whether there is room for a process."""
        cpus, gpus, memory = self
        return cpus >= need.cpus - ROUNDING and gpus >= need.gpus and memory >= need.memory


def spread_groups(
    groups: Sequence[Sequence[str]],
    needs: Mapping[str, Room],
    free: Mapping[str, Room],
    named: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str]:
    """Return a host for each process, those of a group on as few hosts as it takes.

    Args:
        groups: of names of processes, in the order in which they get their hosts. One that is in
            several groups gets its host with the first.
        needs: what each process asks for.
        free: what is free on each host, the host preferred among equals first.
        named: the hosts on which a process may be (default: all).

    Returns:
        {} if they have not room.
    """
    left, found, named = dict(free), dict[str, str](), named or {}
    there = Counter[str]()  # processes on each host
    for group in groups:
        host = ""
        for name in group:
            if name in found:
                continue
            need = needs[name]
            hosts = named.get(name, list(left))
            if host not in hosts or not left[host].holds(need):
                able = [one for one in hosts if left[one].holds(need)]
                # those that ask for nothing take turns
                turn = Counter[str]() if need.cpus else there
                host = max(able, key=lambda one: (left[one].cpus, -turn[one]), default="")
            if not host:
                return {}
            found[name] = host
            there[host] += 1
            left[host] = Room(*(a - b for a, b in zip(left[host], need, strict=True)))
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


MOST_HOSTS = 65_536

UNKNOWN = Room(1e6, float("inf"), float("inf"))
"""Of a host that is only named; a number of CPUs, so that processes are spread over several."""


def expand(text: str) -> list[str]:
    """Return the hosts of a list such as ``n[1-3,07],login``, as ``scontrol show hostnames`` does.

    Raises:
        ColobusError: if it is no such list.
    """
    names: list[str] = []
    for part in re.findall(r"(?:\[[^\]]*\]|[^,\[\]])+|[\[\],]", text + ","):
        if part == ",":
            continue
        pieces = re.split(r"\[([^\]]*)\]", part)
        texts = [[piece] if i % 2 == 0 else _numbers(piece) for i, piece in enumerate(pieces)]
        many = math.prod(map(len, texts))
        if not re.fullmatch(r"[\w.:\-\[\],]+", part) or part in "[]" or not 0 < many < MOST_HOSTS:
            raise ColobusError(f"{text!r}: is no list of hosts such as n[1-4] or n1,n2,m[01-16]")
        names += map("".join, itertools.product(*texts))
    if not names or len(set(names)) < len(names) or ",," in f",{text},":
        raise ColobusError(f"{text!r}: is no list of hosts, each named once, such as n[1-4]")
    return names


def _numbers(text: str) -> list[str]:
    """Return the numbers of ``1-3,07``, as wide as they are written; [] if it is something else."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and len(first) < 7 > len(last)):
            return []
        if not int(first) <= int(last) < int(first) + MOST_HOSTS:
            return []
        found += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return found


def places(place: str) -> dict[str, tuple[str, list[str]]]:
    """Return for each word such as ``servers=n[1-4]`` the kind of processes and the hosts.

    Raises:
        ColobusError: if a word is none of these.
    """
    found: dict[str, tuple[str, list[str]]] = {}
    for word in place.split():
        kind, _, hosts = word.partition("=")
        if not (kind and hosts):
            raise ColobusError(f"--place {word}: want KIND=HOSTS, such as servers=n[1-4]")
        try:
            found[word] = (kind.removesuffix("s"), expand(hosts))
        except ColobusError as error:
            raise ColobusError(f"--place {word}: {error}") from None
    return found


def hosts_in(place: str) -> list[str]:
    """Return the hosts that words of ``--place`` name, each once: n1.cluster is n1 if both are."""
    named = dict.fromkeys(host for _, own in places(place).values() for host in own)
    return list(dict.fromkeys(s if (s := one.partition(".")[0]) in named else one for one in named))


SIDECARS = ("evaluator", "recorder")


def named_hosts(
    place: str, specs: Sequence[ProcessSpec], apart: bool = False
) -> dict[str, list[str]]:
    """Return the names of the hosts on which processes have to be, by process.

    Args:
        place: words such as ``servers=n[1-4]``.
        specs: all processes of the run.
        apart: whether sidecars have a process, too.

    Raises:
        ColobusError: if a word names no process of the run, or one again.
    """
    kinds = {spec.name: re.split(r"[-0-9]", spec.name)[0] for spec in specs}
    found: dict[str, list[str]] = {}
    for word, (kind, hosts) in places(place).items():
        if kind == "tracker":
            raise ColobusError(
                f"--place {word}: the tracker lives where the command is given, as it writes the "
                "run's folder; leave it out"
            )
        own = [spec.name for spec in specs if kind in (kinds[spec.name], spec.kind)]
        own += [kind] if kind in SIDECARS and apart else []
        if not own:
            there = ", ".join(sorted(set(kinds.values()) - {"tracker"}))
            raise ColobusError(f"--place {word}: the run has no such process; it has: {there}")
        for name in own:
            if found.setdefault(name, hosts) != hosts:
                raise ColobusError(f"--place {word}: {name} has other hosts already")
    return found


def plan_hosts(
    graph: RoleGraph,
    specs: Sequence[ProcessSpec],
    cluster: Cluster,
    free: Mapping[str, Room],
    memory: Mapping[str, int],
    ids: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the host of each process but the tracker, those of a group near one another.

    Processes without a host of their own by name go to the hosts that nobody named, if there are
    any.

    Args:
        graph: of the run.
        specs: its processes.
        cluster: what they ask for, and which hosts are named.
        free: room on each host, the one of the command first.
        memory: bytes of a role by its kind.
        ids: what ``free`` calls a host, by all of its names (default: so, or with a domain).

    Returns:
        {} if there is no room, but no process has a host by name.

    Raises:
        ColobusError: if a named host is missing, or the named ones have not enough room.
    """
    named = named_hosts(cluster.place, specs, cluster.sidecars_apart)
    if ids is None:
        every = [*free, *itertools.chain(*named.values())]
        ids = {one: host for one in every for host in (one.partition(".")[0], one) if host in free}
    needs = {spec.name: need_of(spec, cluster, memory) for spec in specs}
    needs |= {name: Room(cluster.beside) for name in SIDECARS}
    names = {host: name for name, host in reversed([*ids.items()])}  # the first of each host
    for name, hosts in named.items():
        if missing := [host for host in hosts if host not in ids]:
            known = list(dict.fromkeys(names[host] for host in ids.values()))
            there = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
            raise ColobusError(
                f"--place: {name} has to be on {missing[0]}, which is not in the cluster; "
                f"there are {there}"
            )
    fixed = {name: list(dict.fromkeys(ids[one] for one in own)) for name, own in named.items()}
    taken = set(itertools.chain.from_iterable(fixed.values()))
    rest = [host for host in free if host not in taken] or list(free)
    groups = process_groups(graph, specs)
    if named:
        near = [[name for name in group if name in named] for group in groups]
        near += [[name] for name in named if not any(name in group for group in near)]
        # those with the fewest hosts first: others may leave them no room there
        near = sorted(filter(None, near), key=lambda own: min(len(fixed[name]) for name in own))
        groups = [*near, *groups, *([spec.name] for spec in specs if spec.kind != "tracker")]
    found = spread_groups(groups, needs, free, {spec.name: rest for spec in specs} | fixed)
    if named and not found:
        for hosts in fixed.values():
            own = [needs[name].cpus for name, those in fixed.items() if those == hosts]
            _check_cpus(own, {names[host]: free[host].cpus for host in hosts})
        own = [needs[spec.name].cpus for spec in specs if spec.name not in named]
        _check_cpus(own, {names.get(host, host): free[host].cpus for host in rest})
        raise ColobusError(
            "--place: the named hosts have not enough CPUs, GPUs or memory for all that has to be "
            "on them; name more hosts, or lower --cpus"
        )
    for queue, actors in actors_of_queues(graph, specs).items():
        if found and queue not in named:
            found[queue] = Counter(found[name] for name in actors).most_common(1)[0][0]
    return found


def _check_cpus(wanted: Sequence[float], there: Mapping[str, float]) -> None:
    """Raise ColobusError, with both numbers, if hosts hold fewer processes that ask for CPUs."""
    asking = [cpus for cpus in wanted if cpus]
    each = max(asking, default=1.0)
    holds = sum(min(int((cpus + ROUNDING) // each), len(asking)) for cpus in there.values())
    if holds < len(asking):
        hosts = list(there)
        names = hosts[0] if len(hosts) == 1 else f"{hosts[0]} to {hosts[-1]}"
        raise ColobusError(
            f"--place: {len(asking)} processes that ask for {each:g} CPUs each have to be on "
            f"{names}, which hold {holds}; name more hosts, raise --per-process or lower --cpus"
        )


def need_of(spec: ProcessSpec, cluster: Cluster, memory: Mapping[str, int]) -> Room:
    """Return what a process asks for; ``memory`` has the bytes of a role by its kind."""
    own = [memory.get(role.partition("-")[0], 0) for role in spec.roles]
    cpus = round(cluster.cpus, 4) if spec.kind in ACTIVE else 0.0  # Ray counts ten-thousandths
    return Room(cpus, spec.gpus, sum(own) + memory.get("process", 0))


def hosts_of_job() -> dict[str, Room]:
    """Return the hosts of the Slurm job that this process is in, with their CPUs; {} if in none."""
    try:
        names = expand(os.environ["SLURM_JOB_NODELIST"])
        counts: list[float] = []
        for word in os.environ["SLURM_JOB_CPUS_PER_NODE"].split(","):  # such as 12(x3),8
            count, _, times = word.partition("(x")
            counts += [float(count)] * int(times.rstrip(")") or 1)
    except (KeyError, ValueError, ColobusError):
        return {}
    return {name: UNKNOWN._replace(cpus=cpus) for name, cpus in zip(names, counts, strict=False)}
