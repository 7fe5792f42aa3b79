"""One process of a run, as the process that watches over the run sees it; and those of sidecars.

An evaluator or a recorder on another host needs no disk in common with the run: it does errands,
commands of Colobus, with a copy of a checkpoint, and what it makes is sent back.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from colobus.core.errors import Closed, Lost
from colobus.runtime.api import Done, RoleState
from colobus.runtime.groups import ACTIVE, ProcessSpec, Room
from colobus.runtime.host import About, Errander, Heartbeat
from colobus.runtime.ray import INLINE
from colobus.runtime.ray.process import Process, first_line
from colobus.runtime.threads import hung

HEARTBEAT_SECONDS = 0.5
"""Seconds between an answered heartbeat and the next request."""

WAITING = 100_000
"""Calls that may wait in a process, those of lost processes too; they hold no threads."""

NODE = "ray.io/node-id"
"""Ray's own label of a host."""

BEGIN_SECONDS = 30.0
"""Seconds without an answer after which a process that builds its roles anew counts as frozen: it
may be busy for longer than usual."""

LOOK_SECONDS = 0.5
"""Seconds between two looks whether an errand is still wanted."""

END_SECONDS = 2.0
"""Seconds that an errand has to end, when it is not wanted any more."""

LATE_SECONDS = 60.0
"""Seconds after which an errand that no host has taken is told of."""


@dataclass
class RemoteProcess:
    """A process of the run, whichever Ray actor holds its roles now."""

    spec: ProcessSpec
    handle: Any = None
    about: About | None = None
    beginning: Any = None  # reference of what `begin` will answer; None once it has
    heartbeat: Any = None  # reference of the heartbeat that was asked for
    asked: float = 0.0  # when it was last asked for a heartbeat
    told: float = 0.0  # when it was asked to begin, or the user was told that it has not begun
    heard: float = 0.0  # when it last answered
    states: tuple[RoleState, ...] = ()
    ended: float = 0.0  # when a role ended before it had finished (0: none has)
    losses: int = 0  # how often it was lost
    tries: int = 0  # Ray actors lost in a row before they did anything
    lost: float = 0.0  # when it was last heard before it was lost, until it is back
    new: bool = False  # it has another Ray actor since then

    def __str__(self) -> str:
        where = f" on {self.about.host} (process {self.about.process})" if self.about else ""
        return f"{self.spec.name}{where}"

    @property
    def running(self) -> bool:
        """Whether its roles have begun."""
        return self.handle is not None and self.beginning is None

    def fill(
        self,
        need: Room,
        callers: int,
        avoid: Collection[str] = (),
        hosts: Collection[str] = (),
        named: Collection[str] = (),
        joined: bool = False,
    ) -> None:
        """Start a Ray actor, as there is none.

        Args:
            need: what the process asks for.
            callers: calls that it answers at the same time; see `call_threads`.
            avoid: hosts on which not to start it if others have room.
            hosts: on which to start it (none: any that is not to be avoided).
            named: on which to start it if those have no room (none: any).
            joined: whether Ray ran before, maybe without what this process has set for it.
        """
        self.about, self.new = None, True
        actor = ray.remote(concurrency_groups={"watch": 1})(Process)
        self.handle = actor.options(
            num_cpus=need.cpus,
            num_gpus=need.gpus,
            memory=round(need.memory) or None,
            max_restarts=0,
            max_concurrency=WAITING,
            runtime_env={"env_vars": {INLINE[0]: os.environ[INLINE[0]]}} if joined else None,
            **_where(self.spec, avoid, hosts, named),
        ).remote(callers)

    def begin(
        self, incarnation: int, make_graph: Any, elsewhere: dict[str, Any], deadline: float
    ) -> None:
        """Ask it to build its roles and run them (see `colobus.runtime.host.RoleHost.begin`)."""
        self.beginning = self.handle.begin.remote(
            incarnation, make_graph, self.spec.roles, elsewhere, deadline
        )
        self.states, self.ended = (), 0.0  # the heartbeat stays: it may have lines for the user
        self.told = self.asked = time.monotonic()

    def redial(self, incarnation: int, other: RemoteProcess) -> None:
        """Tell its roles where those of a process are that was replaced."""
        if self.handle is not None and other is not self:  # also while it begins
            self.handle.redial.remote(incarnation, dict.fromkeys(other.spec.roles, other.handle))

    def ask_heartbeat(self, at_once: bool = False) -> None:
        """Ask for a heartbeat, if one is due or it is wanted at once, unless one is on its way.

        A new process gives none before it has begun. One that begins again may be frozen.
        """
        due = at_once or time.monotonic() - self.heard >= HEARTBEAT_SECONDS
        there = self.handle is not None and not self.new
        if there and self.heartbeat is None and due:
            self.heartbeat = self.handle.heartbeat.options(concurrency_group="watch").remote()
            self.asked = time.monotonic()

    def take_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Note how its roles are."""
        self.states = heartbeat.roles
        if any(state.steps for state in heartbeat.roles):
            self.tries = 0
        if not any(state.ended and not state.finished for state in heartbeat.roles):
            self.ended = 0.0
        elif not self.ended:  # a role that it called was lost; its process will be missed soon
            self.ended = time.monotonic()

    def seconds_left(self, patience: float) -> float:
        """Return how long a call may wait that is made now: until its heartbeat is late, too.

        Else a call to a frozen process would delay that it is found to be frozen.
        """
        if self.heartbeat is None or ray.wait([self.heartbeat], timeout=0.0)[0]:
            return patience
        return max(patience - (time.monotonic() - self.asked), HEARTBEAT_SECONDS)

    def complaint(self, silence: float, deadline: float) -> str:
        """Return why it counts as lost, or ""."""
        now = time.monotonic()
        if self.beginning is not None:
            silence = max(silence, BEGIN_SECONDS)
        elif not any(state.steps for state in self.states) and self.spec.kind in ACTIVE:
            silence *= 2  # first kernels, loading
        if self.heartbeat is not None and now - self.asked > silence:
            return f"has given no answer for {now - self.asked:.1f} s"
        if self.ended and now - self.ended > silence + 2 * HEARTBEAT_SECONDS:
            names = [state.name for state in self.states if state.ended and not state.finished]
            return f"lost touch: {', '.join(names)} ended"
        return next((line for state in self.states if (line := hung(state, deadline))), "")

    def ask_to_die(self) -> None:
        """Have it end itself, as `kill` cannot without Ray."""
        if self.handle is not None:
            with contextlib.suppress(Exception):
                self.handle.die.options(concurrency_group="watch").remote()

    def kill(self) -> None:
        """End its Ray actor, even if that is frozen."""
        handle, self.handle = self.handle, None
        self.beginning = self.heartbeat = None
        self.states, self.ended = (), 0.0
        if handle is not None:
            with contextlib.suppress(Exception):  # it may be gone with its host
                ray.kill(handle)


@dataclass(eq=False)
class OwnPauses:
    """Times in which the process that watches got no time itself: no other is to blame for them."""

    silence: float  # seconds after which a process counts as frozen

    def __post_init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Note that it runs now."""
        self._looked = time.monotonic()

    def around(self, began: float, seconds: float) -> float:
        """Return how long it paused in or before a wait that has just ended; 0 if hardly at all.

        Up to 1.5 times the silence, time before the wait may have been a call to a frozen process:
        half of the silence of it is no pause. Longer than that no call takes: all of it is one.

        Args:
            began: when the wait began.
            seconds: that it should have taken at most.
        """
        now = time.monotonic()
        slept, away = now - began - seconds, began - self._looked
        self._looked = now
        half = self.silence / 2
        if away <= 3 * half:
            away = max(away - half, 0.0)  # answers that came meanwhile are still to be taken
        return away + (slept if slept > half else 0.0)


@dataclass(eq=False)
class Errands:
    """Has errands done on a host, one at a time; on another than this one if there is any."""

    what: str  # whose errands, for messages
    cpus: float  # that the process asks for
    say: Callable[[str], None]  # takes lines for the user
    hosts: Sequence[str] = ()  # Ray's names of those on which it is while any lives (default: all)
    _actor: Any = None
    _over: bool = False

    def __call__(self, words: Sequence[str], files: Mapping[str, bytes]) -> Done:
        """See `colobus.runtime.api.Errand`."""
        if self._actor is None:
            self._actor = self._start()
            self._answer(self._actor.stop.remote(), LATE_SECONDS)  # there is nothing to stop yet
        done: Done = self._answer(self._actor.run.remote(words, files))
        return done

    def close(self) -> None:
        """End the process, with the errand that it does."""
        self._over = True
        if (actor := self._actor) is not None:
            with contextlib.suppress(RayError):  # it may be gone, or not be there yet, or Ray is
                ray.get(actor.stop.remote(), timeout=END_SECONDS)
            with contextlib.suppress(RayError):
                ray.kill(actor)

    def _start(self) -> Any:
        here = ray.get_runtime_context().get_node_id()
        there = {one["NodeID"] for one in ray.nodes() if one["Alive"]}
        elsewhere = {NODE: f"!in({here})"} if there - {here} else None
        if named := [host for host in self.hosts if host in there]:  # else all of them are lost
            elsewhere = _in(named)["label_selector"]
        asked = {"max_concurrency": 2, "label_selector": elsewhere, "scheduling_strategy": "SPREAD"}
        return ray.remote(Errander).options(num_cpus=round(self.cpus, 4), **asked).remote()

    def _answer(self, reference: Any, late: float = float("inf")) -> Any:
        """Wait for an answer; say so if it takes longer than ``late`` seconds."""
        until = time.monotonic() + late
        while not self._over:
            if ray.wait([reference], timeout=LOOK_SECONDS)[0]:
                try:
                    return ray.get(reference)
                except RayError as error:
                    self._actor = None
                    raise Lost(first_line(error)) from None
            if time.monotonic() > until:
                until = float("inf")
                self.say(f"the {self.what} waits for a host with {self.cpus:g} free CPU")
        raise Closed


def _in(hosts: Collection[str]) -> dict[str, dict[str, str]]:
    """Return Ray's option for some hosts (none: any)."""
    return {"label_selector": {NODE: f"in({','.join(hosts)})"} if hosts else {}}


def _where(
    spec: ProcessSpec, avoid: Collection[str], hosts: Collection[str], named: Collection[str]
) -> dict[str, Any]:
    """Return Ray's options for the place of a process; see `RemoteProcess.fill`.

    The tracker stays on this host, because it writes the run's folder. Workers and remote actors
    are spread over all hosts, and servers over the others, if these have room for them.
    """
    here = ray.get_runtime_context().get_node_id()
    if spec.kind == "tracker":
        return _in([here])
    if hosts:  # affinity would wait for room there, and one that asks for no CPU be anywhere
        return {**_in(hosts), "fallback_strategy": [_in(named)]}
    is_server = spec.kind == "server"
    apart = {*avoid, here} if is_server else avoid
    return {
        "scheduling_strategy": "SPREAD" if is_server or spec.kind == "worker" else "DEFAULT",
        "label_selector": {NODE: f"!in({','.join(sorted(apart))})"} if apart else None,
        "fallback_strategy": [_in([here] if is_server else [])] if apart else None,
    }
