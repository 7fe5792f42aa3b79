"""What a cluster is asked for, and how a plan's roles are grouped into processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from gelada.core.settings import Range
from gelada.runtime.graph import Plan

Kind = Literal["worker", "server", "store", "learner", "tracker"]


@dataclass(frozen=True)
class Cluster:
    """Where processes live, what each asks for, and when one counts as lost (with --on ray)."""

    address: str = ""
    """Of a running Ray cluster, HOST:PORT (default: RAY_ADDRESS, else a Ray of its own)."""
    per_process: Annotated[int, Range(1)] = 1
    """Workers, or remote actors, in one process."""
    cpus: Annotated[float, Range(0)] = 1.0
    """CPUs that a process with workers, actors or the learner asks for; others ask for none."""
    silence: Annotated[float, Range(1)] = 4.0
    """Seconds without an answer after which a process counts as frozen and is begun anew (twice
    that before its first finished step)."""
    shrink: bool = False
    """While workers are lost beyond the backups, steps take the gradients of those left; else
    they wait for the lost to be back."""


class Part(NamedTuple):
    """The roles of one process."""

    name: str
    kind: Kind
    roles: tuple[str, ...]
    learns: bool  # has a learner

    def is_a(self, kind: str) -> bool:
        """Say whether it is of a kind; some workers are learners and others actors."""
        if kind == "actor":
            return self.kind == "worker" and not self.learns
        return kind == self.kind or (kind == "learner" and self.learns)


def parts_of(plan: Plan, per_process: int) -> list[Part]:
    """Group a plan's roles into processes; workers share one as asked."""
    processes: dict[str, list[str]] = {}
    for node in plan.nodes:
        processes.setdefault(node.process, []).append(node.name)
    parts: list[Part] = []
    workers: list[list[str]] = []
    for process, roles in processes.items():
        kind = kind_of(process)
        if kind == "worker":
            if not workers or len(workers[-1]) == per_process:
                workers.append([])
            workers[-1].append(process)
        else:
            parts.append(Part(process, kind, tuple(roles), kind == "learner"))
    for group in workers:
        roles = [role for process in group for role in processes[process]]
        name = group[0] if len(group) == 1 else f"{group[0]} to {group[-1].rpartition('-')[2]}"
        parts.append(
            Part(name, "worker", tuple(roles), any(r.startswith("learner") for r in roles))
        )
    return parts


def kind_of(process: str) -> Kind:
    """Return what the roles of a process are together."""
    for start, kind in KINDS.items():
        if process.startswith(start):
            return kind
    raise ValueError(f"no kind of process for {process!r}")


KINDS: dict[str, Kind] = {
    "worker": "worker",
    "actor": "worker",
    "learner": "worker",
    "store": "store",
    "server": "server",
    "tracker": "tracker",
    "main": "learner",
}
"""By the beginning of a process's name."""
