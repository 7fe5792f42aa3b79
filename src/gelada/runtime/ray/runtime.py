"""Ray: runs the roles of a graph in processes of a cluster, and replaces those that are lost.

Every process is a Ray actor that holds a `gelada.runtime.host.RoleHost`. Of Ray only the stable
parts are used: actors, the object store, `ray.wait`, node affinity.

What happens when a process is lost:

* A worker, that is a process whose roles are a worker, actors or a learner that stands alone, is
  replaced by a new process, on another host if its own is gone. The others go on as far as the
  quorum lets them. So is a trajectory queue that is one of several, with its actors.
* When a process with a server, a replay, the tracker or the central learner is lost, all roles
  begin again from the newest complete checkpoint, in a new epoch. Processes that still run are
  kept, with new roles.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import ray
from ray.exceptions import RayError

from gelada.core.errors import ClusterLost, GeladaError, Lost, RoleFailed, Stalled
from gelada.runtime.api import Active, nothing
from gelada.runtime.graph import Graph
from gelada.runtime.groups import ALONE, Cluster, group_processes
from gelada.runtime.host import Heartbeat, Remote
from gelada.runtime.ray.alive import Alive
from gelada.runtime.ray.checks import check_resources, check_versions
from gelada.runtime.ray.placement import Placement
from gelada.runtime.ray.process import answer_of, answered
from gelada.runtime.ray.watched import (
    ACTIVE,
    START_SECONDS,
    SilentHosts,
    WatchedProcess,
    not_started,
    seen,
)

TRIES = 5
"""How often one process may be replaced without a finished step in between: of its own roles, or
of any role if its own only answer."""

LISTEN_SECONDS = 0.1
"""Seconds between two checks for silent processes."""

PAUSE_SECONDS = 0.5
"""Seconds between two calls of the caller while processes start."""

Tell = Callable[[dict[str, Any]], None]
"""Takes an event: what was hit, lost or replaced, and why."""


class Epoch(NamedTuple):
    """One beginning of a run: at its start, after ``--resume`` or after a loss."""

    number: int
    make_graph: Callable[[], Graph]
    """Called in every process; makes the same graph in each."""


class Ray:
    """Runs a graph in processes of a connected Ray cluster (a `gelada.runtime.api.Runtime`).

    Args:
        first: the epoch to begin with.
        restore: returns an epoch above the given number, from the newest complete checkpoint.
        cluster: what processes ask for, and when they count as lost.
        deadline: seconds after which a role that is stuck in one piece of work counts as hung.
        log: takes lines for the user.
        tell: takes events.
        seed: of the choice of the process that a fault hits.
        whole: begin all roles again after any loss, also of a worker, so that a deterministic run
            goes on as if nothing had been lost.
        alive: tells whether Ray itself lives (default: it always does).

    Raises:
        GeladaError: if the cluster has not enough free CPUs.
    """

    def __init__(
        self,
        first: Epoch,
        restore: Callable[[int], Epoch],
        cluster: Cluster,
        deadline: float,
        log: Callable[[str], None],
        tell: Tell,
        seed: int = 0,
        whole: bool = False,
        alive: Alive | None = None,
    ) -> None:
        self._cluster, self._deadline = cluster, deadline
        self._alive = alive or Alive({})
        self._restore, self._log, self._tell = restore, log, tell
        self._random, self._whole = random.Random(seed), whole
        graph = first.make_graph()
        specs = group_processes(graph, cluster.per_process)
        check_resources(specs, cluster)
        self._processes = [WatchedProcess(spec) for spec in specs]
        self._process_of = {role: one for one in self._processes for role in one.spec.roles}
        self._placement = Placement(graph, self._processes, cluster)
        self._epoch, self._make_graph = first.number, ray.put(first.make_graph)
        self._active = [node.name for node in graph.nodes if node.active]
        self._learners = set(graph.names("learner"))
        self.roles: dict[str, Any] = {
            node.name: Remote(self._call, 0, node.name) for node in graph.nodes
        }
        self._patience = cluster.silence
        self._failure: GeladaError | None = None
        self._over = False
        self._silent = SilentHosts()
        self._checked = False  # the versions on all hosts

    @property
    def active(self) -> list[Active]:
        """The active roles as they were at their last heartbeats."""
        roles = [seen(name, self._process_of[name].states) for name in self._active]
        return cast("list[Active]", roles)

    @property
    def away(self) -> int:
        """Learners whose process is lost and has not come back yet."""
        lost = [role for process in self._processes if process.lost for role in process.spec.roles]
        return len(self._learners.intersection(lost))

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start all processes and wait until they have built their roles.

        Raises:
            GeladaError: if a process does not come up, or has other versions installed.
        """
        self._begin_all()
        until = time.monotonic() + START_SECONDS
        while self._beginning():
            left = until - time.monotonic()
            if left <= 0:
                raise Stalled(not_started(self._beginning(), self._cluster))
            waiting = {process.beginning: process for process in self._beginning()}
            if self._is_there():
                done, _ = ray.wait(list(waiting), timeout=min(left, PAUSE_SECONDS))
                for reference in done:
                    self._take_begun(waiting[reference], reference)
            else:
                time.sleep(PAUSE_SECONDS)
            if self._failure:
                raise self._failure
            pause()
        self._check_versions()

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
            for process in self._processes:
                process.ask_heartbeat()
            waiting = {one.beginning or one.heartbeat: one for one in self._processes}
            waiting.pop(None, None)
            for reference in self._listen(list(waiting), min(left, LISTEN_SECONDS)):
                process = waiting[reference]
                if reference is process.beginning:
                    self._take_begun(process, reference)
                else:
                    self._take_heartbeat(process, reference)
            self._find_lost()
        return True

    def check(self) -> None:
        """Raise what ended the run, if anything did."""
        if self._failure:
            raise self._failure

    def stop(self, patience: float = 30.0) -> list[str]:
        """Close and end all roles; return the names of those that did not end in time."""
        if not self._alive.look(at_once=True):
            return []
        self._patience = 60.0
        asked = {one.handle.stop.remote(patience): one for one in self._processes if one.running}
        done, late = ray.wait(list(asked), num_returns=len(asked), timeout=patience + 2.0)
        hung = [role for ref in late for role in asked[ref].spec.roles if role in self._active]
        for reference in done:
            with contextlib.suppress(RayError):
                hung += ray.get(reference)
        return hung

    def close(self) -> None:
        """End all processes."""
        there = self._alive.look(at_once=True)
        for process in self._processes:
            if there:
                process.kill()
            else:  # only Ray can kill them, but they can end themselves
                process.hit(signal.SIGKILL)

    def hit(self, kind: str, number: int) -> None:
        """Send a signal to a process of a kind, chosen by chance."""
        hittable = [
            process
            for process in self._processes
            if process.running and (kind == "any" or process.spec.is_a(kind))
        ]
        if hittable:
            process = self._random.choice(hittable)
            self._log(f"faults: {signal.Signals(number).name} to {process}")
            self._event("hit", process, signal=signal.Signals(number).name)
            process.hit(number)

    # requests to processes, and their answers

    def _begin_all(self) -> None:
        """Begin all processes; start new ones where there are none."""
        self._fill(self._processes)
        for process in self._processes:
            self._begin(process)

    def _fill(self, processes: Sequence[WatchedProcess]) -> None:
        """Start Ray actors for processes that have none; avoid silent hosts if there are others.

        The tracker writes the run's folder, so it stays on this host. Queues come last, because
        they go where their actors are.
        """
        hosts = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        silent = self._silent.to_avoid(hosts)
        for process in sorted(processes, key=lambda one: one.spec.kind == "queue"):
            if process.handle is not None:
                continue
            avoid = silent if process.spec.kind != "tracker" else set()
            host = self._placement.host(process, hosts - silent)
            process.fill(self._cluster, len(self._process_of), avoid, host)

    def _begin(self, process: WatchedProcess) -> None:
        """Ask a process to build its roles and run them."""
        elsewhere = {  # workers never call one another
            role: other.handle
            for other in self._processes
            if other.spec.kind != "worker" and other is not process
            for role in other.spec.roles
        }
        process.begin(self._epoch, self._make_graph, elsewhere, self._deadline)

    def _take_begun(self, process: WatchedProcess, reference: Any) -> None:
        """Take the answer of a process that has built its roles."""
        try:
            about = answer_of(reference, process.spec.name)
        except Lost as error:
            self._lose(process, str(error))
            return
        except GeladaError as error:
            self._fail(error)
            return
        except Exception as error:  # of any kind, such as one of what Ray unpickles
            what = f"{type(error).__name__}: {error}"
            self._fail(RoleFailed(f"{process.spec.name} cannot begin: {what}"))
            return
        process.about, process.beginning = about, None
        process.heard = time.monotonic()
        if process.lost and process.new:
            after = process.heard - process.lost
            self._log(f"{process} is back, {after:.1f} s after it was last heard")
            self._event("back", process, after=round(after, 3))
            for other in self._processes:
                other.redial(self._epoch, process)
        process.lost, process.new = 0.0, False
        if self._checked:
            self._check_versions()

    def _take_heartbeat(self, process: WatchedProcess, reference: Any) -> None:
        """Take the answer to a request for a heartbeat."""
        process.heartbeat = None
        try:
            heartbeat: Heartbeat = answer_of(reference, process.spec.name)
        except Lost as error:
            self._lose(process, str(error))
            return
        process.heard = time.monotonic()
        for line in heartbeat.lines:
            self._log(line)
        if heartbeat.epoch != self._epoch:
            return
        process.take_heartbeat(heartbeat)
        if any(state.steps for state in heartbeat.roles):  # so processes that only answer are well
            for other in self._processes:
                other.tries *= other.spec.kind in ACTIVE
        self._over = self._over or any(state.finished for state in heartbeat.roles)
        if heartbeat.failure:
            if heartbeat.details:
                self._log(heartbeat.details.rstrip())
            self._fail(heartbeat.failure)

    def _listen(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """Return the references that are answered; wait so long for the first."""
        before = time.monotonic()
        done = answered(references, seconds)
        slept = time.monotonic() - before - seconds
        if slept > self._cluster.silence / 2:  # this process got no time, so no other is to blame
            for process in self._processes:
                process.asked += slept
        return done

    # lost processes

    def _find_lost(self) -> None:
        """Find processes that are silent or stuck, and replace them."""
        for process in self._processes:
            if process.running:
                if why := process.complaint(self._cluster.silence, self._deadline):
                    if process.about:
                        self._silent.add(process.about.node)
                    self._lose(process, why)
            elif process.handle is not None and time.monotonic() - process.asked > START_SECONDS:
                self._log(not_started(self._beginning(), self._cluster))
                process.asked = time.monotonic()
        lost = [process for process in self._processes if process.handle is None]
        if lost and not self._failure and self._alive.look():
            self._recover(lost)

    def _lose(self, process: WatchedProcess, why: str) -> None:
        """End a process that counts as lost."""
        if process.handle is None or not self._alive.look(at_once=True):
            return  # if Ray itself is gone, all its processes follow
        now = time.monotonic()
        process.lost = process.lost or process.heard or now
        self._log(f"{process} {why.removeprefix(f'{process.spec.name} ')}; begun again")
        process.tries, process.losses = process.tries + 1, process.losses + 1
        silent, times = round(now - process.lost, 3), process.losses
        self._event("lost", process, why=why, silent=silent, times=times)
        if process.tries > TRIES:
            self._fail(RoleFailed(f"{process.spec.name} was lost {TRIES} times: {why}"))
        process.kill()

    def _recover(self, lost: Sequence[WatchedProcess]) -> None:
        """Replace what can be replaced alone; if more was lost, begin all from a checkpoint."""
        if not self._whole and all(process.spec.kind in ALONE for process in lost):
            self._lose_actors(lost)
            lost = [process for process in self._processes if process.handle is None]
            self._fill(lost)
            for process in lost:
                self._begin(process)
            return
        epoch = self._restore(self._epoch)
        self._epoch, self._make_graph = epoch.number, ray.put(epoch.make_graph)
        now = time.monotonic()
        for process in self._processes:
            process.lost = process.lost or now
        self._begin_all()

    def _lose_actors(self, lost: Sequence[WatchedProcess]) -> None:
        """End the actors of lost queues: a call to their queue has failed, or soon will."""
        for queue in lost:
            for process in self._placement.actors(queue):
                if process.running:
                    self._lose(process, f"has lost its queue {queue.spec.name}")

    # helpers

    def _is_there(self) -> bool:
        """Return whether Ray gives an answer now; end the run if it has been gone for too long."""
        there = self._alive.look()
        if self._alive.lost:
            self._fail(ClusterLost(f"Ray is lost: {self._alive.lost}"))
        return there

    def _beginning(self) -> list[WatchedProcess]:
        return [process for process in self._processes if process.beginning is not None]

    def _check_versions(self) -> None:
        self._checked = True
        for process in self._processes:
            try:
                check_versions(process)
            except GeladaError as error:
                self._fail(error)

    def _call(
        self, _epoch: int, role: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a role from this process, wherever it lives now."""
        handle = self._process_of[role].handle
        if handle is None or not self._alive.look():
            raise Lost(f"{role} is gone")
        reference = handle.call.remote(self._epoch, role, method, args, kwargs)
        return answer_of(reference, role, self._patience)

    def _fail(self, error: GeladaError) -> None:
        self._failure = self._failure or error

    def _event(self, event: str, process: WatchedProcess, **more: Any) -> None:
        about, spec = process.about, process.spec
        where = {"host": about.host, "process": about.process} if about else {}
        self._tell({"event": event, "what": spec.name, "kind": spec.kind} | where | more)
