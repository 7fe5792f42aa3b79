"""Simulated time: real roles, which really learn, on hosts and links that need not be there.

A `World` is the time of a run (`colobus.core.timing.Time`). Each active role has a thread, of which
one runs at a time: that of the role whose time is the earliest. Work costs what is drawn for its
stage when a role enters it, and the threads on a host share its cores. A wait hands the turn on,
and a call to a role in another process passes that process's event loop and the links of the two
hosts. Nothing depends on the machine's own clock, so the same seed gives the same run, also with
backup workers and without any order among the learners.
"""

from __future__ import annotations

import math
import random
import threading
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from colobus.core.timing import WAIT, Condition, Time, wait_for
from colobus.core.types import Params, Remote, Request, Wait
from colobus.runtime.api import Active, nothing
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import ProcessSpec, actors_of_queues
from colobus.runtime.threads import Threads

T = TypeVar("T")

BETWEEN = "between stages"
"""What a role does in a step outside of all stages."""

STORED = 1_000_000
"""Bytes from which parameters are in Ray's object store: packed once for each version, and sent
once to each host."""

AT_ONCE = frozenset({"exchange", "pull", "push"})
"""Calls of which a caller begins several, and then waits for all."""

Draw = Callable[[str, str, random.Random], float]
"""Returns the seconds of work in a stage, from the name of a role and the stage."""


@dataclass(frozen=True)
class Calls:
    """What a call from one process to another costs."""

    loop: float = 0.0
    """Seconds for which it occupies the event loop of the process that is called."""
    latency: float = 0.0
    """Seconds that it takes, and its answer, besides."""
    byte: float = 0.0
    """Seconds of a core for packing a byte of the object store, and again for unpacking it."""
    stored: float = 0.0
    """The same for an object there besides, however large it is."""
    carried: float = 0.0
    """The same for a byte that travels with its call, as all do of less than `STORED`."""
    cpu: float = 0.0
    """Seconds of a core at each end, the event loop's included."""
    idle: float = 0.0
    """Share of a core that a process takes even if nothing is asked of it."""
    envelope: int = 500
    """Bytes of a call or an answer beside its vectors."""

    def packing(self, size: float) -> float:
        """Return the seconds of a core for packing so many bytes, and again for unpacking them."""
        return self.stored + size * self.byte if size >= STORED else size * self.carried


class Turn:
    """A thread of a run, and what it waits for."""

    def __init__(self, role: str, process: Process | None) -> None:
        self.role, self.process = role, process  # those that it works for now
        self.gate = threading.Lock()
        self.gate.acquire()
        self.stamp = 0  # events with an older one are void


@dataclass(eq=False)
class Host:
    """Cores that are shared by the threads that work, and a link that carries both directions."""

    cores: float = math.inf  # of which each thread uses one at most
    link: float = math.inf  # bytes a second in each direction

    def __post_init__(self) -> None:
        self.up = 0.0  # when what was promised has left
        self.down: list[tuple[float, float]] = []  # from when to when something comes, in order
        self.jobs: list[tuple[float, int, Turn]] = []  # by the work that is done when each ends
        self.stamp = 0
        self._done, self._since = 0.0, 0.0  # work for each thread up to a moment

    def add(self, moment: float, seconds: float, number: int, turn: Turn) -> None:
        """Begin work that takes so long on a core of its own."""
        self.run_to(moment)
        heappush(self.jobs, (self._done + seconds, number, turn))

    def run_to(self, moment: float) -> None:
        """Work until a moment."""
        self._done += (moment - self._since) * self._speed
        self._since = moment

    def next(self) -> float:
        """Return when the next work ends."""
        return self._since + max(self.jobs[0][0] - self._done, 0.0) / self._speed

    @property
    def _speed(self) -> float:
        return min(1.0, self.cores / max(len(self.jobs), 1))


def reserve(moment: float, source: Host, to: Host, size: int) -> float:
    """Reserve two links for bytes from a moment on; return when all of them are there.

    A link carries one thing after the other.
    """
    begin, took = max(moment, source.up), size / min(source.link, to.link)
    source.up = begin + size / source.link
    to.down = [busy for busy in to.down if busy[1] > moment]
    for start, end in to.down:  # what waits for its own link until then holds up nothing
        begin = begin if begin + took <= start else max(begin, end)
    insort(to.down, (begin, begin + took))
    return begin + took


class Process(NamedTuple):
    """A process on a host, whose event loop takes calls one after the other."""

    name: str
    host: Host
    loop: Condition


@dataclass
class Stored:
    """Parameters in the object store, and when each host has them."""

    values: torch.Tensor
    there: dict[int, float] = field(default_factory=dict)  # by the identity of the host


class World(Time):
    """The time of a simulated run. The thread that makes it looks at the run and has no cost.

    Args:
        draw: what work costs.
        calls: what calls between processes cost.
        seed: of what is drawn.
    """

    def __init__(self, draw: Draw, calls: Calls | None = None, seed: int = 0) -> None:
        self._draw, self.calls, self._seed = draw, calls or Calls(), seed
        self._time, self._numbers = 0.0, count()
        self._events: list[tuple[float, int, Turn | Host, int]] = []
        self._random: dict[str, random.Random] = {}
        self._stored: dict[str, Stored] = {}
        self._urgent: Turn | None = None  # was interrupted, and goes first
        self._own = threading.local()
        self._own.turn = Turn("", None)
        self._expected: dict[str, Turn] = {}
        self.roles: Mapping[str, Any] = {}
        self.under_way = 0  # calls that were begun and have not ended
        self.process_of: dict[str, Process] = {}  # by role

    # what `Time` has

    def now(self) -> float:
        """See `Time`."""
        return self._time

    def sleep(self, seconds: float) -> None:
        """See `Time`."""
        if (mine := self._mine()) is None:
            super().sleep(seconds)
            return
        self._due(mine, self._time + seconds)
        self._park(mine)

    def enter(self, stage: str) -> None:
        """Spend what the stage costs."""
        if not stage.startswith(WAIT):
            self._spend(stage)

    def leave(self, stage: str) -> None:
        """Spend what a wait costs that is over: joining a batch, taking parameters over."""
        if stage.startswith(WAIT):
            self._spend(stage)

    def take(self, lock: Condition) -> None:
        """See `Time`."""
        if (mine := self._mine()) is None:
            super().take(lock)
            return
        while not lock.acquire(blocking=False):
            lock.blocked.append(mine)
            self._park(mine)

    def freed(self, lock: Condition) -> None:
        """See `Time`."""
        self._due(lock.blocked.pop(0), self._time)

    def wait(self, changed: Condition, holds: Callable[[], T], seconds: float | None) -> T:
        """See `Time`."""
        if (mine := self._mine()) is None:
            return super().wait(changed, holds, seconds)
        until = math.inf if seconds is None else self._time + seconds
        while not (found := holds()):
            if self._time >= until:
                break
            if until < math.inf:
                self._due(mine, until)
            changed.tell_once(partial(self._wake, mine, mine.stamp))
            changed.release()
            try:
                if changed.blocked:
                    self.freed(changed)
                self._park(mine)
            finally:
                self.take(changed)
        return found

    # threads

    def expect(self, role: str) -> None:
        """Let the thread of a role take its turn from now on."""
        self._expected[role] = turn = Turn(role, self.process_of[role])
        self._due(turn, self._time)

    def begin(self, role: str) -> None:
        """Make this thread that of a role; wait for its first turn."""
        self._own.turn = turn = self._expected[role]
        turn.gate.acquire()

    def end(self) -> None:
        """Hand the turn on for good."""
        self._choose().gate.release()

    def work(self, seconds: float) -> None:
        """Work for so long on the host of this thread's role."""
        mine = self._mine()
        if mine is not None and mine.process is not None:
            self._work(mine, seconds, mine.process.host)

    # calls

    def call(self, request: Request) -> Any:
        """Call a role in another process, as the role whose thread this is."""
        mine = self._mine()
        method = getattr(self.roles[request.role], request.method)
        there = self.process_of[request.role]
        if mine is None or mine.process is None or mine.process is there:
            return method(*request.args, **request.kwargs)
        caller, here = mine.role, mine.process
        self._send(mine, here, there, size_of(request.args), back=False)
        mine.role, mine.process = request.role, there
        try:
            answer = method(*request.args, **request.kwargs)
        finally:
            mine.role, mine.process = caller, here
        size, params = size_of(answer), getattr(answer, "params", answer)
        if size >= STORED and isinstance(params, Params):
            self._fetch(mine, request.role, params.values, size, (there, here))
        else:
            self._send(mine, there, here, size, back=True)
        return answer

    def ask(self, request: Request) -> Wait:
        """Begin a call. One of parameters goes its way while the caller does something else."""
        mine = self._mine()
        if mine is None or mine.process is None or request.method not in AT_ONCE:
            return partial(self.call, request)
        turn, over, found = Turn(mine.role, mine.process), Condition(), Future[Any]()
        self._due(turn, self._time)
        self.under_way += 1

        def go() -> None:
            self._own.turn = turn
            turn.gate.acquire()
            try:
                found.set_result(self.call(request))
            except Exception as error:  # the caller gets it
                found.set_exception(error)
            self.under_way -= 1
            with over:
                over.notify_all()
            self.end()

        def wait() -> Any:
            with over:
                over.wait_for(found.done)
            return found.result()

        threading.Thread(target=go, name=f"{mine.role} asks", daemon=True).start()
        return wait

    def _send(self, mine: Turn, source: Process, to: Process, size: int, back: bool) -> None:
        """Pack what goes to another process, or comes ``back``, carry it there, and take it in."""
        calls, pack = self.calls, self.calls.packing(size)
        self._work(mine, calls.cpu / 2 + pack, source.host)
        if source.host is not to.host:
            there = reserve(self._time, source.host, to.host, size + calls.envelope)
            self._due(mine, there + calls.latency)
            self._park(mine)
        elif calls.latency:
            self.sleep(calls.latency)
        loop, unpack = (source.loop, 0.0) if back else (to.loop, pack)  # of who is called
        with loop:
            self._work(mine, calls.loop / 2 + unpack, to.host)
        self._work(mine, max(calls.cpu - calls.loop, 0.0) / 2 + pack - unpack, to.host)

    def _fetch(
        self, mine: Turn, role: str, values: torch.Tensor, size: int, ends: tuple[Process, Process]
    ) -> None:
        """Get parameters from the object store, which has them on a host after the first time."""
        source, to = ends
        stored = self._stored.get(role)
        if stored is None or stored.values is not values:
            stored = self._stored[role] = Stored(values)
            self._work(mine, self.calls.packing(size), source.host)
        if id(to.host) not in stored.there and source.host is not to.host:
            stored.there[id(to.host)] = reserve(self._time, source.host, to.host, size)
        self.sleep(max(stored.there.get(id(to.host), 0.0) - self._time, 0.0))
        self._send(mine, source, to, 0, back=True)
        self._work(mine, self.calls.packing(size), to.host)

    # turns

    def _spend(self, stage: str) -> None:
        mine = self._mine()
        if mine is None or mine.process is None:
            return
        if mine.role not in self._random:
            self._random[mine.role] = random.Random(f"{self._seed} {mine.role}")
        self.work(self._draw(mine.role, stage, self._random[mine.role]))

    def _mine(self) -> Turn | None:
        return getattr(self._own, "turn", None)

    def _due(self, turn: Turn, moment: float) -> None:
        """Give a thread its turn at a moment, and at no other."""
        turn.stamp += 1
        heappush(self._events, (moment, next(self._numbers), turn, turn.stamp))

    def _wake(self, turn: Turn, stamp: int) -> None:
        """Give a thread its turn now, if it still waits."""
        if turn.stamp == stamp:
            self._due(turn, self._time)

    def _work(self, mine: Turn, seconds: float, host: Host) -> None:
        """Work for so long on a core of a host that may be shared."""
        if seconds <= 0.0:
            return
        host.add(self._time, seconds, next(self._numbers), mine)
        self._plan(host)
        self._park(mine)

    def _plan(self, host: Host) -> None:
        """Have an event when the next work on a host ends, as its threads are now."""
        host.stamp += 1
        if host.jobs:
            heappush(self._events, (host.next(), next(self._numbers), host, host.stamp))

    def _park(self, mine: Turn) -> None:
        """Let others run until it is this thread's turn again."""
        turn = self._choose()
        if turn is mine:
            return
        turn.gate.release()
        try:
            mine.gate.acquire()
        except BaseException:  # Ctrl-C comes to a thread that has not the turn
            self._urgent = mine
            mine.gate.acquire()
            raise

    def _choose(self) -> Turn:
        """Let time pass until the next turn, and return whose it is."""
        while self._urgent is None:
            moment, _, target, stamp = heappop(self._events)
            if stamp != target.stamp:
                continue
            self._time = max(self._time, moment)
            if isinstance(target, Turn):
                target.stamp += 1
                return target
            target.run_to(self._time)
            turn = heappop(target.jobs)[2]
            self._plan(target)
            return turn
        turn, self._urgent = self._urgent, None
        turn.stamp += 1
        return turn


class Virtual(Threads):
    """Runs the roles of a graph in a `World` (a `colobus.runtime.api.Runtime`).

    Args:
        graph: of the run.
        world: the time that passes.
        places: the processes, each with its host.
        deadline, log, events: see `Threads`.
    """

    def __init__(
        self,
        graph: RoleGraph,
        world: World,
        places: Sequence[tuple[ProcessSpec, Host]],
        deadline: float = 120.0,
        log: Callable[[str], None] = print,
        events: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._world, built = world, dict[str, Any]()
        for spec, host in places:
            world.process_of |= dict.fromkeys(spec.roles, Process(spec.name, host, Condition()))
            built |= graph.build(set(spec.roles), lambda name: Remote(world.ask, 0, name))
        world.roles = {node.name: built[node.name] for node in graph.nodes}
        super().__init__(world.roles, deadline, log, events)

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start all threads; the first gets its turn when the caller waits."""
        for role in self.active:
            self._world.expect(role.name)
        super().start()

    def check(self) -> None:
        """Raise what ended the run."""
        if self.failure:
            raise self.failure

    def stop(self, patience: float = 30.0) -> list[str]:
        """Close the passive roles and let the others end; return the names of those that work."""
        self._tell_to_end()
        with self._woken:
            wait_for(self._woken, self._is_quiet, patience)
        return [role.name for role in self.active if role.name not in self._ended]

    def _is_quiet(self) -> bool:
        return len(self._ended) == len(self.active) and not self._world.under_way

    def _run(self, role: Active) -> None:
        self._world.begin(role.name)
        try:
            super()._run(role)
        finally:
            self._world.end()

    def _step(self, role: Active) -> None:
        super()._step(role)
        self._world.enter(BETWEEN)


def placed(
    graph: RoleGraph, specs: Sequence[ProcessSpec], hosts: Sequence[Host]
) -> list[tuple[ProcessSpec, Host]]:
    """Return the processes with their hosts: workers and servers are spread, each kind in turn.

    Tracker and central learner are on the first host, servers on others, queues with their actors.
    """
    found, numbers = dict[str, Host](), {kind: count() for kind in ("worker", "server", "replay")}
    for spec in specs:
        among = (spec.kind == "server" and hosts[1:]) or hosts
        found[spec.name] = among[next(numbers.get(spec.kind, count())) % len(among)]
    for queue, actors in actors_of_queues(graph, specs).items():
        found[queue] = found[actors[0]]
    return [(spec, found[spec.name]) for spec in specs]


def size_of(value: Any) -> int:
    """Return the bytes of the vectors in an argument or an answer."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.nbytes
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    return 0
