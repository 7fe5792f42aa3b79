"""Ray: the roles of a plan in processes of a cluster, watched over from here.

Every process is a Ray actor that holds a `Cell`. This module alone knows Ray, and of it only the
stable parts: actors, the object store, `ray.wait`, placement groups, node affinity.

What happens when something is lost:

* a worker (a worker of DBA3C, a remote actor of APPO) is begun again alone, elsewhere if its host
  is gone, while the others go on as far as the quorum lets them;
* anything else (a server, the learner, the tracker) takes all back to the newest complete
  checkpoint, in a new epoch: processes that live are kept, their roles are built anew.
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

from gelada.core.errors import GeladaError, Lost, RoleFailed, Stalled
from gelada.runtime.graph import Active, Plan
from gelada.runtime.groups import Cluster, parts_of
from gelada.runtime.host import Beat, Remote, versions
from gelada.runtime.ray.process import answer_of
from gelada.runtime.ray.watched import ACTIVE, START_SECONDS, Seat, cpus_of, seen

AVOID_SECONDS = 90.0
"""How long nothing new is begun on a host of which a process gave no answer."""

TRIES = 5
"""How often one process may be begun again without a finished step in between: of its own, or of
anybody if it only answers."""

LISTEN_SECONDS = 0.1
"""Between two looks at who is silent."""

Tell = Callable[[dict[str, Any]], None]
"""Takes an event of the run's life: what was lost, why, what came back."""


class Drawn(NamedTuple):
    """A plan that every process draws for itself."""

    epoch: int
    draw: Callable[[], Plan]


class Ray:
    """Runs a plan in processes of a connected Ray cluster, like `Threads` in one process.

    Args:
        plan: for the names and workers of its roles.
        drawn: the same plan, to be drawn in every process.
        again: reads the newest complete checkpoint into a plan of an epoch above the one given.
        cluster: what processes ask for.
        deadline: seconds that a role may be stuck in one piece of work.
        log: takes lines for the user.
        tell: takes events.
        seed: of the choice of whom trouble hits.
    """

    def __init__(
        self,
        plan: Plan,
        drawn: Drawn,
        again: Callable[[int], Drawn],
        cluster: Cluster,
        deadline: float,
        log: Callable[[str], None],
        tell: Tell,
        seed: int = 0,
    ) -> None:
        self._cluster, self._deadline = cluster, deadline
        self._again, self._log, self._tell = again, log, tell
        self._random = random.Random(seed)
        self._seats = [Seat(part) for part in parts_of(plan, cluster.per_process)]
        check_resources(self._seats, cluster)
        self._seat_of = {role: seat for seat in self._seats for role in seat.part.roles}
        self._epoch, self._draw = drawn.epoch, ray.put(drawn.draw)
        self._active = [node.name for node in plan.nodes if node.active]
        self.roles: dict[str, Any] = {
            node.name: Remote(self._call, 0, node.name) for node in plan.nodes
        }
        self._patience = cluster.silence
        self._failure: GeladaError | None = None
        self._over = False
        self._silent: dict[str, float] = {}  # when a process on a host gave no answer
        self._checked = False  # the versions on all hosts

    @property
    def active(self) -> list[Active]:
        """The active roles as they were at their last beats."""
        roles = [seen(name, self._seat_of[name].states) for name in self._active]
        return cast("list[Active]", roles)

    @property
    def away(self) -> int:
        """Learners that are lost for the moment."""
        lost = [role for seat in self._seats if seat.lost for role in seat.part.roles]
        return sum(role.startswith("learner") for role in lost)

    def start(self) -> None:
        """Start all processes and wait until their roles are there.

        Raises:
            GeladaError: if one does not come up, or has other versions installed.
        """
        self._begin_all()
        until = time.monotonic() + START_SECONDS
        while self._missing():
            left = until - time.monotonic()
            if left <= 0:
                raise Stalled(self._not_there())
            waiting = {seat.beginning: seat for seat in self._missing()}
            done, _ = ray.wait(list(waiting), timeout=left)
            for reference in done:
                self._begun(waiting[reference], reference)
            if self._failure:
                raise self._failure
        self._check_versions()

    def wait(self, seconds: float) -> bool:
        """Listen to the processes for so long and see to what is lost; say whether all is over."""
        until = time.monotonic() + seconds
        while not (self._over or self._failure):
            for seat in self._seats:
                seat.ask()
            waiting = {seat.beginning or seat.beat: seat for seat in self._seats}
            waiting.pop(None, None)
            left = until - time.monotonic()
            if left <= 0:
                return False
            for reference in self._listen(list(waiting), min(left, LISTEN_SECONDS)):
                seat = waiting[reference]
                if reference is seat.beginning:
                    self._begun(seat, reference)
                else:
                    self._hear(seat, reference)
            self._look()
        return True

    def check(self) -> None:
        """Raise what ended the run."""
        if self._failure:
            raise self._failure

    def stop(self, patience: float = 30.0) -> list[str]:
        """Wake and end all roles; return the names of those that did not end in time."""
        self._patience = 60.0
        asked = {seat.handle.stop.remote(patience): seat for seat in self._seats if seat.there}
        done, late = ray.wait(list(asked), num_returns=len(asked), timeout=patience + 2.0)
        hung = [role for ref in late for role in asked[ref].part.roles if role in self._active]
        for reference in done:
            with contextlib.suppress(RayError):
                hung += ray.get(reference)
        return hung

    def close(self) -> None:
        """End all processes."""
        for seat in self._seats:
            seat.kill()

    def hit(self, kind: str, number: int) -> None:
        """Send a signal to a process of a kind, chosen by chance: trouble on purpose."""
        there = [
            seat for seat in self._seats if seat.there and (kind == "any" or seat.part.is_a(kind))
        ]
        if there:
            seat = self._random.choice(there)
            self._log(f"faults: {signal.Signals(number).name} to {seat}")
            self._event("hit", seat, signal=signal.Signals(number).name)
            seat.handle.hit.options(concurrency_group="watch").remote(number)

    # what is asked, and what is heard

    def _begin_all(self) -> None:
        """Begin all processes, new ones where there are none."""
        for seat in self._seats:
            self._fill(seat)
        for seat in self._seats:
            self._begin(seat)

    def _fill(self, seat: Seat) -> None:
        """Give a process an actor, elsewhere than on a host that is silent, if there are others."""
        now = time.monotonic()
        silent = {node for node, since in self._silent.items() if now - since < AVOID_SECONDS}
        others = {node["NodeID"] for node in ray.nodes() if node["Alive"]} - silent
        avoid = silent if others and seat.part.kind != "tracker" else set()
        seat.fill(self._cluster, len(self._seat_of), avoid)

    def _begin(self, seat: Seat) -> None:
        """Ask a process to build its roles and run them."""
        elsewhere = {  # workers never call one another
            role: other.handle
            for other in self._seats
            if other.part.kind != "worker" and other is not seat
            for role in other.part.roles
        }
        seat.begin(self._epoch, self._draw, elsewhere, self._deadline)

    def _begun(self, seat: Seat, reference: Any) -> None:
        """Take the answer of a process that has built its roles."""
        try:
            about = answer_of(reference, seat.part.name)
        except Lost as error:
            self._lose(seat, str(error))
            return
        except GeladaError as error:
            self._fail(error)
            return
        seat.about, seat.beginning = about, None
        seat.heard = time.monotonic()
        if seat.lost and seat.new:
            after = seat.heard - seat.lost
            self._log(f"{seat} is back, {after:.1f} s after it was last heard")
            self._event("back", seat, after=round(after, 3))
        seat.lost, seat.new = 0.0, False
        if self._checked:
            self._check_versions()

    def _hear(self, seat: Seat, reference: Any) -> None:
        """Take a beat."""
        seat.beat = None
        try:
            beat: Beat = answer_of(reference, seat.part.name)
        except Lost as error:
            self._lose(seat, str(error))
            return
        seat.heard = time.monotonic()
        for line in beat.lines:
            self._log(line)
        if beat.epoch != self._epoch:
            return
        seat.hear(beat)
        if any(state.steps for state in beat.roles):  # so those that only answer are well too
            for other in self._seats:
                other.tries *= other.part.kind in ACTIVE
        self._over = self._over or any(state.finished for state in beat.roles)
        if beat.failure:
            if beat.details:
                self._log(beat.details.rstrip())
            self._fail(beat.failure)

    def _listen(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """Return the references that are answered; wait so long for the first."""
        before = time.monotonic()
        if not references:
            time.sleep(seconds)
            return []
        done, _ = ray.wait(references, num_returns=len(references), timeout=0.0)
        if not done:
            done, _ = ray.wait(references, num_returns=1, timeout=seconds)
        slept = time.monotonic() - before - seconds
        if slept > self._cluster.silence / 2:  # this process itself got no time: blame nobody
            for seat in self._seats:
                seat.asked += slept
        return list(done)

    def _look(self) -> None:
        """Find who is silent or stuck, and see to it."""
        for seat in self._seats:
            if seat.there:
                if why := seat.complaint(self._cluster.silence, self._deadline):
                    if seat.about:
                        self._silent[seat.about.node] = time.monotonic()
                    self._lose(seat, why)
            elif seat.handle is not None and time.monotonic() - seat.asked > START_SECONDS:
                self._log(self._not_there())
                seat.asked = time.monotonic()
        lost = [seat for seat in self._seats if seat.handle is None]
        if lost and not self._failure:
            self._recover(lost)

    # what is lost

    def _lose(self, seat: Seat, why: str) -> None:
        """Give a process up."""
        if seat.handle is None:
            return
        now = time.monotonic()
        seat.lost = seat.lost or seat.heard or now
        self._log(f"{seat} {_short(why, seat)}; begun again")
        self._event("lost", seat, why=why, silent=round(now - seat.lost, 3))
        seat.tries += 1
        if seat.tries > TRIES:
            self._fail(RoleFailed(f"{seat.part.name} was lost {TRIES} times: {why}"))
        seat.kill()

    def _recover(self, lost: Sequence[Seat]) -> None:
        """Begin the lost workers again; or, if anything else was lost, all, from a checkpoint."""
        if all(seat.part.kind == "worker" for seat in lost):
            for seat in lost:
                self._fill(seat)
                self._begin(seat)
            return
        drawn = self._again(self._epoch)
        self._epoch, self._draw = drawn.epoch, ray.put(drawn.draw)
        now = time.monotonic()
        for seat in self._seats:
            seat.lost = seat.lost or now
        self._begin_all()

    # messages and other small things

    def _missing(self) -> list[Seat]:
        return [seat for seat in self._seats if seat.beginning is not None]

    def _not_there(self) -> str:
        """Return a line about processes that have not come up."""
        names = ", ".join(seat.part.name for seat in self._missing())
        free = ray.available_resources().get("CPU", 0.0)
        return (
            f"{names} did not start within {START_SECONDS:g} s: each asks for "
            f"{self._cluster.cpus:g} CPU, the cluster has {free:g} free"
        )

    def _check_versions(self) -> None:
        """Refuse hosts with other versions than this one has."""
        self._checked = True
        here = versions()
        for seat in self._seats:
            for name, version in (seat.about.versions if seat.about else {}).items():
                if version != here[name]:
                    self._fail(
                        GeladaError(
                            f"{seat} has {name} {version}, here it is {here[name]}: install the "
                            "same on all hosts"
                        )
                    )

    def _call(
        self, _epoch: int, role: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a role from here, wherever it lives now."""
        handle = self._seat_of[role].handle
        if handle is None:
            raise Lost(f"{role} is gone")
        reference = handle.call.remote(self._epoch, role, method, args, kwargs)
        return answer_of(reference, role, self._patience)

    def _fail(self, error: GeladaError) -> None:
        self._failure = self._failure or error

    def _event(self, event: str, seat: Seat, **more: Any) -> None:
        about = seat.about
        where = {"host": about.host, "process": about.process} if about else {}
        self._tell({"event": event, "what": seat.part.name, "kind": seat.part.kind} | where | more)


def check_resources(seats: Sequence[Seat], cluster: Cluster) -> None:
    """Raise GeladaError if the cluster could never hold all processes at once."""
    wanted = sum(cpus_of(seat.part, cluster) for seat in seats)
    there, free = ray.cluster_resources().get("CPU", 0.0), ray.available_resources().get("CPU", 0.0)
    if wanted > free:
        count = sum(seat.part.kind in ACTIVE for seat in seats)
        raise GeladaError(
            f"the run asks for {wanted:g} CPUs ({count} processes, --cpus {wanted / count:g} "
            f"each), the cluster has {there:g}, {free:g} of them free; lower --cpus, raise "
            "--per-process, or take more hosts"
        )


def _short(why: str, seat: Seat) -> str:
    """Return why without the name that stands before it anyway."""
    return why.removeprefix(f"{seat.part.name} ")
