"""One process of a run as its watcher sees it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from gelada.core.timing import Clock
from gelada.runtime.groups import Cluster, Part
from gelada.runtime.host import About, Beat
from gelada.runtime.ray.process import Process
from gelada.runtime.threads import RoleState, hung

START_SECONDS = 60.0
"""What a process gets to start: Ray's worker, imports, games."""

BEAT_SECONDS = 0.5
"""Between an answered beat and the next."""


NODE = "ray.io/node-id"
"""Ray's own label of a host."""

ACTIVE = ("worker", "learner")
"""Kinds of processes that have work of their own; the others only answer."""


@dataclass
class Seat:
    """A process of the run, whichever Ray actor fills it now."""

    part: Part
    handle: Any = None
    about: About | None = None
    beginning: Any = None  # reference of what `begin` will answer; None once it has
    beat: Any = None  # reference of the beat that was asked for
    asked: float = 0.0  # when it was asked for the beat, or to begin
    heard: float = 0.0  # when it last answered
    states: tuple[RoleState, ...] = ()
    ended: float = 0.0  # since when a role of it has ended without having finished (0: none)
    tries: int = 0  # actors in a row that were lost before they did anything
    lost: float = 0.0  # when it was last heard before it was lost, until it is back
    new: bool = False  # its actor is another one since then

    def __str__(self) -> str:
        where = f" on {self.about.host} (process {self.about.process})" if self.about else ""
        return f"{self.part.name}{where}"

    @property
    def there(self) -> bool:
        """Whether its roles run."""
        return self.handle is not None and self.beginning is None

    def fill(self, cluster: Cluster, callers: int, avoid: Collection[str] = ()) -> None:
        """Start a Ray actor, if there is none.

        Args:
            cluster: what it asks for.
            callers: roles that may wait in it at the same time.
            avoid: hosts (as Ray names them) that gave no answer of late. It takes Ray up to a
                minute to see that a host is gone, and until then it starts actors there.
        """
        if self.handle is not None:
            return
        self.about, self.new = None, True
        actor = ray.remote(concurrency_groups={"watch": 2})(Process)
        self.handle = actor.options(
            num_cpus=cpus_of(self.part, cluster),
            max_restarts=0,
            max_concurrency=4 * callers + 16,  # those of lost processes wait on for a while
            scheduling_strategy=_where(self.part),
            label_selector={NODE: f"!in({','.join(sorted(avoid))})"} if avoid else None,
        ).remote()

    def begin(self, epoch: int, draw: Any, elsewhere: dict[str, Any], deadline: float) -> None:
        """Ask it to build its roles and run them (see `gelada.runtime.host.Cell.begin`)."""
        self.beginning = self.handle.begin.remote(epoch, draw, self.part.roles, elsewhere, deadline)
        self.beat, self.states, self.ended = None, (), 0.0
        self.asked = time.monotonic()

    def ask(self) -> None:
        """Ask it for a beat, if that is due."""
        now = time.monotonic()
        if self.there and self.beat is None and now - self.heard >= BEAT_SECONDS:
            self.beat = self.handle.beat.options(concurrency_group="watch").remote()
            self.asked = now

    def hear(self, beat: Beat) -> None:
        """Take what its roles do."""
        self.states = beat.roles
        if any(state.steps for state in beat.roles):
            self.tries = 0
        if not any(state.ended and not state.finished for state in beat.roles):
            self.ended = 0.0
        elif not self.ended:  # because whom it called was lost: that will be heard of soon
            self.ended = time.monotonic()

    def complaint(self, silence: float, deadline: float) -> str:
        """Return why it is to be given up, or "". It must be there."""
        now = time.monotonic()
        if not any(state.steps for state in self.states) and self.part.kind in ACTIVE:
            silence *= 2  # first kernels, loading
        if self.beat is not None and now - self.asked > silence:
            return f"has given no answer for {now - self.asked:.1f} s"
        if self.ended and now - self.ended > silence + 2 * BEAT_SECONDS:
            names = [state.name for state in self.states if state.ended and not state.finished]
            return f"lost touch: {', '.join(names)} ended"
        return next((line for state in self.states if (line := hung(state, deadline))), "")

    def kill(self) -> None:
        """End its actor, frozen or not."""
        handle, self.handle = self.handle, None
        self.beginning = self.beat = None
        self.states, self.ended = (), 0.0
        if handle is not None:
            with contextlib.suppress(Exception):  # it may be gone with its host
                ray.kill(handle)


@dataclass
class Seen:
    """An active role elsewhere, as a display wants it."""

    name: str
    clock: Clock = field(default_factory=Clock)
    finished: bool = False

    def step(self) -> None:
        """Is called where the role lives."""
        raise NotImplementedError


def seen(name: str, states: Sequence[RoleState]) -> Seen:
    """Return a role as it was at its last beat."""
    role = Seen(name)
    for state in states:
        if state.name == name:
            role.clock.stage, role.clock.steps = state.stage, state.steps
            role.clock.seconds, role.finished = state.seconds, state.finished
    return role


def cpus_of(part: Part, cluster: Cluster) -> float:
    """Return the CPUs that a process asks for."""
    return cluster.cpus if part.kind in ACTIVE else 0.0


def _where(part: Part) -> Any:
    """Return Ray's strategy for a process: servers on different hosts, the tracker on this one."""
    if part.kind == "tracker":  # it writes the run's folder
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return "SPREAD" if part.kind == "server" else "DEFAULT"
