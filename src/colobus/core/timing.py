"""Time: the stage that a role is in and since when, waiting, and gaps in which nothing ran.

All roles ask `now` for the time, and wait and sleep here. So a runtime can simulate time: it puts
another `Time` in the place of the machine's (`passing`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from colobus.core.errors import Closed, Deadline

T = TypeVar("T")

WAIT = "wait"
"""In a stage whose name starts with this, a role waits for another role."""


def clock(seconds: float | None) -> str:
    """Return seconds as 3:05 or 1:02:03."""
    minutes, rest = divmod(int(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Time:
    """How time passes for the roles of a run; this one is the time of the machine."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for so long."""
        time.sleep(seconds)

    def enter(self, stage: str) -> None:
        """Take note that a role enters a stage, before it does anything there."""

    def leave(self, stage: str) -> None:
        """Take note that a role has left a stage."""

    def take(self, lock: Condition) -> None:
        """Wait for a lock that another thread has."""
        lock.acquire()

    def freed(self, lock: Condition) -> None:
        """Take note that a lock is free for those in its ``blocked``."""

    def wait(self, changed: Condition, holds: Callable[[], T], seconds: float | None) -> T:
        """Wait for at most so long until ``holds`` is true; return what it returned last."""
        return threading.Condition.wait_for(changed, holds, seconds)


_time = Time()


@contextmanager
def passing(other: Time) -> Iterator[None]:
    """Have another time pass in this process until the context is left."""
    global _time
    before, _time = _time, other
    try:
        yield
    finally:
        _time = before


def now() -> float:
    """Return the time in seconds: `time.monotonic`, or simulated."""
    return _time.now()


def sleep(seconds: float) -> None:
    """Wait for so long."""
    _time.sleep(seconds)


class Condition(threading.Condition):
    """A lock and a condition, for which roles wait as the time of their run passes.

    Calls that hold no thread can wait for it, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocked: list[Any] = []  # those that a simulated time lets wait for the lock
        self._calls: list[Callable[[], object]] = []

    def __enter__(self) -> bool:
        if not self.acquire(blocking=False):
            _time.take(self)
        return True

    def __exit__(self, *error: object) -> None:
        self.release()
        if self.blocked:
            _time.freed(self)

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """See `threading.Condition`."""
        return _time.wait(self, predicate, timeout)

    def tell_once(self, call: Callable[[], object]) -> None:
        """Have something called at the next change; the caller has the condition."""
        self._calls.append(call)

    def notify_all(self) -> None:
        """Wake all who wait."""
        super().notify_all()
        calls, self._calls = self._calls, []
        for call in calls:
            call()


class Clock:
    """Seconds in each stage of one active role; the runtime and the profiler read it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stage = "starting"
        self.since = now()
        self.steps = 0  # finished calls of step()
        self._inside = 0.0  # seconds of the stages inside of the present one

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time in this context, without that of stages inside, as time of ``stage``."""
        before, outside, start = self.stage, self._inside, now()
        self.stage, self.since, self._inside = stage, start, 0.0
        try:
            _time.enter(stage)
            yield
        finally:
            _time.leave(stage)
            end = now()
            self.seconds[stage] = self.seconds.get(stage, 0.0) + end - start - self._inside
            self.stage, self.since, self._inside = before, end, outside + end - start

    @property
    def waiting(self) -> bool:
        """Whether the role is waiting for another role now."""
        return self.stage.startswith(WAIT)


def bounding_stage(stages: Mapping[str, Mapping[str, float]]) -> str:
    """Return what bounds the speed, from seconds (or shares of a role's time) by role and stage.

    If the learners wait longer than they work, it is the stage that takes the other roles most
    time; otherwise "learn".
    """
    waiting = working = 0.0
    acting: dict[str, float] = {}
    for role, seconds in stages.items():
        for stage, spent in seconds.items():
            waits = stage.startswith(WAIT)
            if role.startswith("learner"):
                waiting, working = waiting + waits * spent, working + (not waits) * spent
            elif not waits and not role.startswith("loader"):  # they work beside the actors
                acting[stage] = acting.get(stage, 0.0) + spent
    if acting and waiting > working:
        return max(acting, key=lambda stage: acting[stage])
    return "learn" if working else "starting"


PIECE_SECONDS = 5.0
"""Longest wait at once, and longest gap between two looks that counts as time that passed."""


class NotYet(Exception):
    """What a call waits for does not hold yet; it is made again when that may have changed."""


class PatientCall:
    """A call that holds no thread while it waits: `wait_for` ends it with `NotYet` instead.

    So a process can answer the calls of thousands with a few threads. What waits must change
    nothing before, as it is called again from the beginning.

    Args:
        wake: called by the thread that changes what the call waits for.
    """

    _of_thread = threading.local()

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._changed: Condition | None = None
        self._came: object = None
        self._patience = Patience(0.0)

    def __call__(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function; raise `NotYet` where it would wait."""
        self._of_thread.call = self
        try:
            return function(*args)
        finally:
            self._of_thread.call = None

    @classmethod
    def of_thread(cls) -> PatientCall | None:
        """Return the call that this thread makes now."""
        return getattr(cls._of_thread, "call", None)

    def left(self) -> float:
        """Return the seconds for which it may still wait; to be called after each piece."""
        return self._patience.left()

    def wait(self, changed: Condition, patience: float, came: object) -> None:
        """Raise `NotYet` unless the patience is over; ``changed`` wakes the call."""
        if (self._changed, self._came) != (changed, came):
            self._changed, self._came, self._patience = changed, came, Patience(patience)
        if self.left():
            changed.tell_once(self._wake)
            raise NotYet


def wait_for(
    changed: Condition, holds: Callable[[], bool], patience: float, came: object = None
) -> bool:
    """Wait until ``holds`` returns true, at most ``patience`` seconds in which this process ran.

    A process that was stopped (SIGSTOP, a virtual machine that is paused) does not find its
    patience used up when it goes on.

    Args:
        changed: condition that the caller has, notified when ``holds`` may have changed.
        holds: says whether the wait is over.
        patience: seconds.
        came: what has come until now; with more, the patience of a `PatientCall` begins anew.

    Returns:
        What ``holds`` returned last.

    Raises:
        NotYet: in a `PatientCall`.
    """
    if call := PatientCall.of_thread():
        if not (there := holds()):
            call.wait(changed, patience, came)
        return there
    while True:
        piece = min(patience, PIECE_SECONDS)
        if changed.wait_for(holds, piece):
            return True
        patience -= piece
        if patience <= 0:
            return False


class Closable:
    """What callers of several threads wait for, until it is closed.

    Args:
        patience: seconds that a call waits before it raises `Deadline` (0: it never waits).
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._changed = Condition()
        self._closed = False

    def close(self) -> None:
        """Stop: wake everybody who waits. From now on calls raise `Closed`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_until(
        self,
        holds: Callable[[], bool],
        what: str,
        why: Callable[[], str] = str,
        patience: float | None = None,
        comes: Callable[[], object] = str,
    ) -> None:
        """Wait until ``holds`` returns true; the caller has the condition.

        Args:
            holds: says whether the wait is over.
            what: is waited for, in the message.
            why: returns how the message goes on.
            patience: seconds to wait at most, instead of its own.
            comes: what changes while the wait gets somewhere, and patience begins anew.

        Raises:
            Deadline: if it took longer than the patience.
            Closed: if it is closed.
        """
        patience = self._patience if patience is None else patience
        came = comes()
        while not wait_for(self._changed, lambda: self._closed or holds(), patience, came):
            before, came = came, comes()
            if came == before:
                raise Deadline(f"no {what} for {patience:g} s{why()}")
        if self._closed:
            raise Closed


class Patience:
    """Seconds of waiting that are left, for one who waits in pieces; see `wait_for`.

    Args:
        seconds: in which this process runs.
    """

    def __init__(self, seconds: float) -> None:
        self._left, self._last = seconds, now()

    def left(self) -> float:
        """Return the seconds left, at least 0; to be called after each piece."""
        moment = now()
        self._left -= min(moment - self._last, PIECE_SECONDS)
        self._last = moment
        return max(self._left, 0.0)


class Gaps:
    """Times in which this process did not run, found by looking at the clock again and again."""

    def __init__(self) -> None:
        self._last = now()
        self._gaps: deque[tuple[float, float]] = deque(maxlen=100)  # begin, end

    def look(self) -> None:
        """Compare with the look before; to be called more often than every `PIECE_SECONDS`."""
        moment = now()
        if moment - self._last > PIECE_SECONDS:
            self._gaps.append((self._last, moment))
        self._last = moment

    def since(self, moment: float) -> float:
        """Return the seconds of all gaps after a moment, which may lie within the first of them."""
        return sum(max(end - max(begin, moment), 0.0) for begin, end in self._gaps)
