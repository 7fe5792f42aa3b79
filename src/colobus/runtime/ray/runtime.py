"""Ray: runs the roles of a graph in processes of a cluster, and replaces those that are lost.

Every process is a Ray actor that holds a `colobus.runtime.host.RoleHost`.

What happens when a process is lost:

* A worker, that is a process whose roles are a worker, actors or a learner that stands alone, is
  replaced by a new process, on another host if its own is gone. The others go on as far as the
  quorum lets them. So is a trajectory queue that is one of several, with its actors.
* When a process with a server, a replay, the tracker or the central learner is lost, all roles
  begin again from the newest complete checkpoint, in a new incarnation. Processes that still run
  are kept, with new roles.

Lines for the user and events for programs tell of both.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from colobus.core.errors import ClusterLost, ColobusError, Lost, RoleFailed, Stalled
from colobus.core.types import Remote, Request
from colobus.runtime.api import RoleState, nothing
from colobus.runtime.groups import ACTIVE, ALONE, Cluster
from colobus.runtime.host import Heartbeat
from colobus.runtime.ray.placement import LOOK_SECONDS, Incarnation, Processes, check_versions
from colobus.runtime.ray.process import answer_of
from colobus.runtime.ray.remote import OwnPauses, RemoteProcess
from colobus.runtime.ray.session import Alive

START_SECONDS = 60.0
"""Seconds in which a process starts (Ray's worker, imports, games); after that a line tells."""

LONGEST_START_SECONDS = 300.0
"""Seconds after which a run is given up whose processes have not all started: beside other work a
start takes long."""


def not_started(processes: Sequence[RemoteProcess], cluster: Cluster, seconds: float) -> str:
    """Return a line about processes that have not come up for so long."""
    names = ", ".join(process.spec.name for process in processes)
    free = ray.available_resources().get("CPU", 0.0)
    return (
        f"{names} did not start within {seconds:.0f} s: each asks for {cluster.cpus:g} CPU, "
        f"the cluster has {free:g} free"
    )


TRIES = 5
"""How often one process may be replaced without a finished step in between: of its own roles, or
of any role if its own only answer."""

LISTEN_SECONDS = 0.1
"""Seconds between two checks for silent processes."""


@dataclass(eq=False)
class Ray:
    """Runs a graph in processes of a connected Ray cluster (a `colobus.runtime.api.Runtime`).

    Raises:
        ColobusError: if the cluster has not enough room, unless the run waits for hosts.
    """

    first: Incarnation  # to begin with
    restore: Callable[[int], Incarnation]
    """Returns an incarnation above the given number, from the newest complete checkpoint."""
    cluster: Cluster  # what processes ask for, and when they count as lost
    deadline: float  # seconds after which a role that is stuck in one piece of work counts as hung
    log: Callable[[str], None]  # takes lines for the user
    tell: Callable[[dict[str, Any]], None]  # takes events: what was lost or replaced, and why
    whole: bool = False
    """Begin all roles again after any loss, also of a worker, so that a deterministic run goes on
    as if nothing had been lost."""
    alive: Alive = field(default_factory=lambda: Alive({}))
    """Tells whether Ray itself lives (default: it always does)."""
    disk_patience: float = 0.0  # seconds that the tracker may wait for a disk at the end
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes, by kind of role

    def __post_init__(self) -> None:
        graph = self.first.make_graph()
        self.processes = Processes(graph, self.first, self.cluster, self.deadline, self.memory)
        self._active = [node.name for node in graph.nodes if node.active]
        self._learners = set(graph.names("learner"))
        self.roles: dict[str, Any] = {
            node.name: Remote(lambda request: partial(self._call, request), 0, node.name)
            for node in graph.nodes
        }
        self._patience = self.cluster.silence
        self._watching = threading.get_ident()  # the thread that calls `wait`
        self._failure: ColobusError | None = None
        self._over = False
        self._pauses = OwnPauses(self.cluster.silence)

    @property
    def away(self) -> int:
        """Learners whose process is lost and has not come back yet."""
        lost = [role for one in self.processes.all if one.lost for role in one.spec.roles]
        return len(self._learners.intersection(lost))

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start all processes and wait until they have built their roles; see `Runtime`."""
        if self.cluster.patience:
            self.processes.wait_for_room(pause, self.log)
        self.processes.begin(self.processes.all)
        began = time.monotonic()
        while late := self.processes.beginning:
            waited = time.monotonic() - began
            if waited >= LONGEST_START_SECONDS:
                raise Stalled(not_started(late, self.cluster, waited))
            self._tell_late()
            waiting = {process.beginning: process for process in late}
            if self._is_there():
                for reference in ray.wait(list(waiting), timeout=LOOK_SECONDS)[0]:
                    self._take_begun(waiting[reference], reference)
            else:
                time.sleep(LOOK_SECONDS)
            if self._failure:
                raise self._failure
            pause()
        self._pauses.look()

    def has_begun(self, role: str) -> bool:
        """Return whether the process of a role has built its roles."""
        return self.processes.of_role[role].running

    def states(self) -> list[RoleState]:
        """Return what the active roles did at their last heartbeats."""
        return [state for process in self.processes.all for state in process.states]

    def wait(self, seconds: float) -> bool:
        """Listen to the processes for so long and replace lost ones; return whether all is over."""
        until = time.monotonic() + seconds
        while not (self._over or self._failure):
            left = until - time.monotonic()
            if left <= 0:
                return False
            if not self._is_there():
                time.sleep(min(left, LISTEN_SECONDS))
                continue
            every = self.processes.all
            for process in every:
                process.ask_heartbeat()
            waiting = {ref: one for one in every for ref in (one.beginning, one.heartbeat) if ref}
            for reference in self._listen(list(waiting), min(left, LISTEN_SECONDS)):
                process = waiting[reference]
                if reference is process.beginning:
                    self._take_begun(process, reference)
                elif reference is process.heartbeat:  # it is none if the process is lost by now
                    self._take_heartbeat(process, reference)
            self._find_lost()
        return True

    def check(self) -> None:
        """Raise what ended the run, if anything did."""
        if self._failure:
            raise self._failure

    def stop(self, patience: float = 30.0) -> list[str]:
        """Close and end all roles; return the names of those that did not end in time."""
        if not self.alive.look(at_once=True):
            return []
        self._patience = 60.0
        running = [one for one in self.processes.all if one.running]
        asked = {one.handle.stop.remote(patience): one for one in running}
        done, late = ray.wait(list(asked), num_returns=len(asked), timeout=patience + 2.0)
        hung = [role for ref in late for role in asked[ref].spec.roles if role in self._active]
        for reference in done:
            with contextlib.suppress(RayError):
                hung += ray.get(reference)
        return hung

    def close(self) -> None:
        """End all processes."""
        there = self.alive.look(at_once=True)
        for process in self.processes.all:
            if there:
                process.kill()
            else:  # only Ray can kill them, but they can end themselves
                process.ask_to_die()

    def tell_of(self, event: str, process: RemoteProcess, **more: Any) -> None:
        """Tell of something that happens to a process, with where it is."""
        about, spec = process.about, process.spec
        where = {"host": about.host, "process": about.process} if about else {}
        self.tell({"event": event, "what": spec.name, "kind": spec.kind} | where | more)

    # requests to processes, and their answers

    def _take_begun(self, process: RemoteProcess, reference: Any) -> None:
        """Take the answer of a process that has built its roles."""
        try:
            process.about = answer_of(reference, process.spec.name)
            check_versions(process)
        except Lost as error:
            self._lose(process, str(error))
            return
        except Exception as error:  # of any kind, such as one of what Ray unpickles
            what = f"{process.spec.name} cannot begin: {type(error).__name__}: {error}"
            self._fail(error if isinstance(error, ColobusError) else RoleFailed(what))
            return
        process.beginning, process.heard = None, time.monotonic()
        if process.lost and process.new:
            after = process.heard - process.lost
            self.log(f"{process} is back, {after:.1f} s after it was last heard")
            self.tell_of("back", process, after=round(after, 3))
            for other in self.processes.all:
                other.redial(self.processes.incarnation, process)
        process.lost, process.new = 0.0, False

    def _take_heartbeat(self, process: RemoteProcess, reference: Any) -> None:
        """Take the answer to a request for a heartbeat."""
        process.heartbeat = None
        try:
            heartbeat: Heartbeat = answer_of(reference, process.spec.name)
        except Lost as error:
            self._lose(process, str(error))
            return
        process.heard = time.monotonic()
        for line in heartbeat.lines:
            self.log(line)
        for event in heartbeat.events:
            self.tell_of(process=process, **event)
        if heartbeat.incarnation != self.processes.incarnation:
            return
        process.take_heartbeat(heartbeat)
        if any(state.steps for state in heartbeat.roles):  # so processes that only answer are well
            for other in self.processes.all:
                other.tries *= other.spec.kind in ACTIVE
        self._over = self._over or any(state.finished for state in heartbeat.roles)
        if heartbeat.failure:
            if heartbeat.failure.details:
                self.log(heartbeat.failure.details.rstrip())
            self._fail(heartbeat.failure)

    def _listen(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """Return the references that are answered; wait so long for the first."""
        began, done = time.monotonic(), list[Any]()
        if references:
            done, _ = ray.wait(references, num_returns=len(references), timeout=0.0)
            if not done:
                done, _ = ray.wait(references, num_returns=1, timeout=seconds)
        else:
            time.sleep(seconds)
        paused = self._pauses.around(began, seconds)
        for process in self.processes.all:
            process.asked += paused
        return done

    # lost processes

    def _find_lost(self) -> None:
        """Find processes that are silent or stuck, and replace them."""
        for process in self.processes.all:
            if why := process.complaint(self.cluster.silence, self.deadline):
                if process.about:  # its host may be gone
                    self.processes.silent[process.about.node] = time.monotonic()
                self._lose(process, why)
        self._tell_late()
        lost = self.processes.missing
        if lost and not self._failure and self.alive.look():
            self._recover(lost)

    def _lose(self, process: RemoteProcess, why: str) -> None:
        """End a process that counts as lost."""
        if process.handle is None or not self.alive.look(at_once=True):
            return  # if Ray itself is gone, all its processes follow
        now = time.monotonic()
        process.lost = process.lost or process.heard or now
        process.tries, process.losses = process.tries + 1, process.losses + 1
        self.log(f"{process} {why.removeprefix(f'{process.spec.name} ')}; begun again")
        silent = round(now - process.lost, 3)
        self.tell_of("lost", process, why=why, silent=silent, times=process.losses)
        if process.tries > TRIES:
            self._fail(RoleFailed(f"{process.spec.name} was lost {process.tries} times: {why}"))
        process.kill()

    def _recover(self, lost: Sequence[RemoteProcess]) -> None:
        """Replace what can be replaced alone; if more was lost, begin all from a checkpoint."""
        if not self.whole and all(process.spec.kind in ALONE for process in lost):
            for queue in lost:  # a call of its actors to it has failed, or soon will
                for process in self.processes.placement.actors(queue):
                    if process.running:
                        self._lose(process, f"has lost its queue {queue.spec.name}")
            self.processes.begin(self.processes.missing)
            return
        self.processes.set_incarnation(self.restore(self.processes.incarnation))
        for process in self.processes.all:
            process.lost = process.lost or time.monotonic()
            if process.spec.gpus and len(self._learners) > 1:
                process.kill()  # its GPU may wait for that of a lost one, which nothing else ends
        self.processes.begin(self.processes.all)
        self._pauses.look()

    # helpers

    def _tell_late(self) -> None:
        """Say every `START_SECONDS` which processes have not built their roles yet."""
        late, now = self.processes.beginning, time.monotonic()
        if late and now - max(process.told for process in late) > START_SECONDS:
            self.log(not_started(late, self.cluster, START_SECONDS))
            late[0].told = now

    def _is_there(self) -> bool:
        """Return whether Ray gives an answer now; end the run if it has been gone for too long."""
        there = self.alive.look()
        if self.alive.lost:
            self._fail(ClusterLost(f"Ray is lost: {self.alive.lost}"))
        return there

    def _call(self, request: Request) -> Any:
        """Call a role from this process, wherever it lives now.

        While the thread that watches waits for an answer, nobody looks for frozen processes, so it
        asks for a heartbeat too. Other threads, which hear sidecars, leave what it knows alone.
        """
        role, incarnation = request.role, self.processes.incarnation
        process, patience = self.processes.of_role[role], self._patience
        if request.method == "finish":  # it may wait for a disk that is full or slow
            patience += self.disk_patience
        handle = process.handle  # that thread may find it lost meanwhile
        if handle is None or not self.alive.look():
            raise Lost(f"{role} is gone")
        if threading.get_ident() == self._watching:
            process.ask_heartbeat(at_once=True)
            patience = process.seconds_left(patience)
        reference = handle.call.remote(request._replace(incarnation=incarnation))
        return answer_of(reference, role, patience)

    def _fail(self, error: ColobusError) -> None:
        self._failure = self._failure or error
