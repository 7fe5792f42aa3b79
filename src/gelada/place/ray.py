"""Ray: the roles of a plan in processes of a cluster, watched over from here.

Every process is a Ray actor that holds a `Cell`. This module alone knows Ray, and of it only the
stable parts: actors, the object store, `ray.wait`, placement groups, node affinity.

What happens when something is lost:

* a worker (a bundle of DBA3C, a remote actor of APPO) is begun again alone, elsewhere if its host
  is gone, while the others go on as far as the quorum lets them;
* anything else (a server, the learner, the tracker) takes all back to the newest complete
  checkpoint, in a new epoch: processes that live are kept, their roles are built anew.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import ray
import torch
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from gelada.errors import GeladaError, Lost, RoleFailed, Stalled
from gelada.place.cell import About, Beat, Call, Cell, Remote, versions
from gelada.place.cluster import Cluster, Part, parts_of
from gelada.place.plan import Active, Plan
from gelada.place.threads import RoleState, hung
from gelada.roles.clock import Clock
from gelada.types import Params, Version

START_SECONDS = 60.0
"""What a process gets to start: Ray's worker, imports, games."""

BEAT_SECONDS = 0.5
"""Between an answered beat and the next."""

TRIES = 5
"""How often one process may be begun again without a finished step in between."""

STORE_BYTES = 500_000_000
"""Object store of a Ray cluster of our own: snapshots and trajectories under way."""

PUT_BYTES = 100_000
"""Snapshots above this go into the object store, once per version; smaller ones travel along."""


# --- in the processes ---------------------------------------------------------------------------


class Process(Cell):
    """A cell in a Ray actor."""

    def __init__(self) -> None:
        _register_tensors()
        super().__init__(dial)
        self._stored: dict[str, _Stored] = {}

    def call(
        self, epoch: int, role: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """As a cell's; a large snapshot is answered by its place in the object store."""
        answer = super().call(epoch, role, method, args, kwargs)
        if isinstance(answer, Params) and answer.values.nbytes > PUT_BYTES:
            return self._store(role, answer)
        return answer

    def _store(self, role: str, params: Params) -> _Stored:
        """Put a snapshot once, however many pull it."""
        stored = self._stored.get(role)
        if stored is None or stored.version != params.version:
            stored = _Stored(params.version, [ray.put(params.values)])
            self._stored[role] = stored
        return stored


class _Stored(NamedTuple):
    """A snapshot in the object store."""

    version: Version
    values: list[Any]  # one reference; in a list, Ray passes it on as it is


def dial(handle: Any) -> Call:
    """Return how a cell in a Ray actor is called, to wait for the answer."""

    def call(
        epoch: int, role: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return _answer(handle.call.remote(epoch, role, method, args, kwargs), role)

    return call


def _answer(reference: Any, role: str, timeout: float | None = None) -> Any:
    """Wait for an answer; raise what the role raised, or Lost if its process is gone."""
    try:
        answer = ray.get(reference, timeout=timeout)
        if isinstance(answer, _Stored):
            return Params(answer.version, ray.get(answer.values[0], timeout=timeout))
    except RayTaskError as error:
        raise error.cause from None
    except GetTimeoutError:
        raise Lost(f"{role} gave no answer for {timeout:g} s") from None
    except RayError as error:  # its process or host is gone, or the object with it
        raise Lost(f"{role} is gone: {_first_line(error)}") from None
    return answer


def _register_tensors() -> None:
    """Let tensors travel as the arrays they are; by default torch writes a file into memory."""
    ray.util.register_serializer(
        torch.Tensor,
        serializer=lambda tensor: tensor.detach().cpu().numpy(),
        deserializer=lambda array: torch.from_numpy(array.copy()),  # the store's is read-only
    )


# --- in the driver ------------------------------------------------------------------------------


Tell = Callable[[dict[str, Any]], None]
"""Takes an event of the run's life: what was lost, why, what came back."""


class Drawn(NamedTuple):
    """A plan that every process draws for itself."""

    epoch: int
    draw: Callable[[], Plan]


@dataclass
class Seat:
    """One process of the run, whichever Ray actor fills it now."""

    part: Part
    handle: Any = None
    about: About | None = None
    beginning: Any = None  # reference of what `begin` will answer; None once it has
    beat: Any = None  # reference of the beat that was asked for
    asked: float = 0.0  # when it was asked for the beat, or to begin
    heard: float = 0.0  # when it last answered
    states: tuple[RoleState, ...] = ()
    ended: float = 0.0  # since when a role of it has ended without having finished (0: none)
    tries: int = 0
    lost: float = 0.0  # when it was last heard before it was lost, until it is back
    new: bool = False  # its actor is another one since then

    def __str__(self) -> str:
        where = f" on {self.about.host} (process {self.about.process})" if self.about else ""
        return f"{self.part.name}{where}"


@dataclass
class Seen:
    """An active role elsewhere, as a display wants it."""

    name: str
    clock: Clock = field(default_factory=Clock)
    finished: bool = False

    def step(self) -> None:
        """Is called where the role lives."""
        raise NotImplementedError


class Ray:
    """Runs a plan in processes of a connected Ray cluster, like `Threads` in one process.

    Args:
        plan: for the names and bundles of its roles.
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
        check_resources([seat.part for seat in self._seats], cluster)
        self._seat_of = {role: seat for seat in self._seats for role in seat.part.roles}
        self._epoch, self._draw = drawn.epoch, ray.put(drawn.draw)
        self._active = [node.name for node in plan.nodes if node.active]
        self.roles: dict[str, Any] = {
            node.name: Remote(self._call, 0, node.name) for node in plan.nodes
        }
        self._patience = cluster.silence
        self._failure: GeladaError | None = None
        self._over = False
        self._checked = False  # the versions on all hosts

    @property
    def active(self) -> list[Active]:
        """The active roles as they were at their last beats."""
        seen = []
        for name in self._active:
            state = next((s for s in self._seat_of[name].states if s.name == name), None)
            role = Seen(name)
            if state:
                role.clock.stage, role.clock.steps = state.stage, state.steps
                role.clock.seconds, role.finished = state.seconds, state.finished
            seen.append(role)
        return cast("list[Active]", seen)

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
            self._ask()
            waiting = {seat.beginning or seat.beat: seat for seat in self._seats}
            waiting.pop(None, None)
            left = until - time.monotonic()
            if left <= 0:
                return False
            done = self._listen(list(waiting), min(left, 0.1))
            for reference in done:
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
        asked = {
            seat.handle.stop.remote(patience): seat
            for seat in self._seats
            if seat.handle is not None and seat.beginning is None
        }
        done, late = ray.wait(list(asked), num_returns=len(asked), timeout=patience + 2.0)
        hung = [role for ref in late for role in asked[ref].part.roles if role in self._active]
        for reference in done:
            with contextlib.suppress(RayError):
                hung += ray.get(reference)
        return hung

    def close(self) -> None:
        """End all processes."""
        for seat in self._seats:
            self._kill(seat)

    def hit(self, kind: str, number: int) -> None:
        """Send a signal to a process of a kind, chosen by chance: trouble on purpose."""
        there = [
            seat
            for seat in self._seats
            if kind in ("any", seat.part.kind) or (kind == "learner" and seat.part.learns)
            if seat.about is not None and seat.beginning is None
        ]
        if there:
            seat = self._random.choice(there)
            self._log(f"chaos: {signal.Signals(number).name} to {seat}")
            self._event("hit", seat, signal=signal.Signals(number).name)
            seat.handle.hit.options(concurrency_group="watch").remote(number)

    # what is asked, and what is heard

    def _begin_all(self) -> None:
        """Begin all processes, new ones where there are none."""
        for seat in self._seats:
            self._fill(seat)
        for seat in self._seats:
            self._begin(seat)

    def _begin(self, seat: Seat) -> None:
        """Ask a process to build its roles and run them."""
        elsewhere = {  # workers never call one another
            role: other.handle
            for other in self._seats
            if other.part.kind != "worker" and other is not seat
            for role in other.part.roles
        }
        seat.beginning = seat.handle.begin.remote(
            self._epoch, self._draw, seat.part.roles, elsewhere, self._deadline
        )
        seat.beat, seat.states, seat.ended = None, (), 0.0
        seat.asked = time.monotonic()

    def _fill(self, seat: Seat) -> None:
        """Start a Ray actor for a process that has none."""
        if seat.handle is not None:
            return
        part, cluster, options = seat.part, self._cluster, dict[str, Any]()
        if part.kind == "tracker":  # writes the run's folder, so it lives where this runs
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            here = ray.get_runtime_context().get_node_id()
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(here, soft=False)
        elif part.kind == "server":
            options["scheduling_strategy"] = "SPREAD"
        seat.new = True
        callers = sum(len(other.part.roles) for other in self._seats)
        seat.about = None
        seat.handle = (
            ray.remote(concurrency_groups={"watch": 2})(Process)
            .options(
                num_cpus=cpus_of(part, cluster),
                num_gpus=cluster.gpus if part.learns else 0,
                max_restarts=0,
                max_concurrency=4 * callers + 16,  # so many may wait in a pull, of lost ones too
                **options,
            )
            .remote()
        )

    def _ask(self) -> None:
        """Ask those for a beat who are there and were not asked of late."""
        now = time.monotonic()
        for seat in self._seats:
            if seat.beginning is None and seat.beat is None and now - seat.heard >= BEAT_SECONDS:
                seat.beat = seat.handle.beat.options(concurrency_group="watch").remote()
                seat.asked = now

    def _begun(self, seat: Seat, reference: Any) -> None:
        """Take the answer of a process that has built its roles."""
        try:
            about = _answer(reference, seat.part.name)
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
            beat: Beat = _answer(reference, seat.part.name)
        except Lost as error:
            self._lose(seat, str(error))
            return
        now = seat.heard = time.monotonic()
        for line in beat.lines:
            self._log(line)
        if beat.epoch != self._epoch:
            return
        seat.states = beat.roles
        if any(state.steps for state in beat.roles):
            seat.tries = 0
        if beat.failure:
            if beat.details:
                self._log(beat.details.rstrip())
            self._fail(beat.failure)
        self._over = self._over or any(state.finished for state in beat.roles)
        if not any(state.ended and not state.finished for state in beat.roles):
            seat.ended = 0.0
        elif not seat.ended:  # because whom it called was lost: that will be heard of soon
            seat.ended = now

    def _listen(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """Return the references that are answered; wait so long for the first."""
        before = time.monotonic()
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
        now = time.monotonic()
        for seat in self._seats:
            if seat.handle is None:
                continue
            if seat.beginning is not None:
                if now - seat.asked > START_SECONDS:
                    self._log(self._not_there())
                    seat.asked = now
            elif seat.beat is not None and now - seat.asked > self._cluster.silence:
                self._lose(seat, f"has given no answer for {now - seat.asked:.1f} s")
            elif seat.ended and now - seat.ended > self._cluster.silence + 2 * BEAT_SECONDS:
                names = [s.name for s in seat.states if s.ended and not s.finished]
                self._lose(seat, f"lost touch: {', '.join(names)} ended")
            else:
                stuck = [line for s in seat.states if (line := hung(s, self._deadline))]
                if stuck:
                    self._lose(seat, stuck[0])
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
        self._kill(seat)

    def _kill(self, seat: Seat) -> None:
        handle, seat.handle = seat.handle, None
        seat.beginning = seat.beat = None
        seat.states, seat.ended = (), 0.0
        if handle is not None:
            with contextlib.suppress(Exception):
                ray.kill(handle)

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
        return _answer(reference, role, self._patience)

    def _fail(self, error: GeladaError) -> None:
        self._failure = self._failure or error

    def _event(self, event: str, seat: Seat, **more: Any) -> None:
        about = seat.about
        where = {"host": about.host, "process": about.process} if about else {}
        self._tell({"event": event, "what": seat.part.name, "kind": seat.part.kind} | where | more)


def cpus_of(part: Part, cluster: Cluster) -> float:
    """Return the CPUs that a process asks for."""
    return cluster.cpus if part.kind in ("worker", "learner") else 0.0


def check_resources(parts: Sequence[Part], cluster: Cluster) -> None:
    """Raise GeladaError if the cluster could never hold all processes at once."""
    for name, unit, wanted in (
        ("CPU", "--cpus", sum(cpus_of(part, cluster) for part in parts)),
        ("GPU", "--gpus", sum(cluster.gpus for part in parts if part.learns)),
    ):
        there, free = ray.cluster_resources().get(name, 0.0), ray.available_resources().get(name, 0)
        if wanted > free:
            count = sum(part.kind in ("worker", "learner") for part in parts)
            raise GeladaError(
                f"the plan asks for {wanted:g} {name}s ({count} processes, {unit} "
                f"{wanted / count:g} each), the cluster has {there:g}, {free:g} of them free; "
                f"lower {unit}, raise --per-process, or take more hosts"
            )


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[None]:
    """Join a Ray cluster, or start one on this machine, and leave nothing of it running.

    Args:
        cluster: its address; without one, RAY_ADDRESS; without that, an own one.

    Raises:
        GeladaError: if there is no such cluster or it cannot be joined, in one line.
    """
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    if address:
        check_reachable(address)
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    own = {
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
        "_node_ip_address": "127.0.0.1",
    }
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=False,
            **({} if address else own),
        )
    except Exception as error:  # Ray's own are of many kinds
        raise GeladaError(f"Ray at {address or 'this machine'}: {_first_line(error)}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # Ray sets its own
    _register_tensors()
    _silence()
    try:
        yield
    finally:
        ray.shutdown()


def _silence() -> None:
    """Keep Ray from printing on stdout that a worker died: the run's own log says it, once.

    Ray has no public switch for that, so this one private name is used, and only if it is there.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_args, **_kwargs: None


def check_reachable(address: str) -> None:
    """Raise GeladaError if nobody listens at HOST:PORT; Ray itself would wait for a minute."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdigit():
        raise GeladaError(f"--address {address}: want HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError as error:
        raise GeladaError(
            f"--address {address}: nobody answers there ({error.strerror or error}); on the head "
            "host: ray start --head"
        ) from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _short(why: str, seat: Seat) -> str:
    """Return why without the name that stands before it anyway."""
    return why.removeprefix(f"{seat.part.name} ")
