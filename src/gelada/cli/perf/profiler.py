"""Where the time of a training goes: spans of all stages on all role threads.

A role's `Clock` knows its stages; here it also notes when each began and ended, and what happens
inside of a stage is noted by wrapping methods of the roles that are there. Roles know nothing of
it, so a run that nobody profiles pays nothing. For a short while at the end torch's operators are
taken down too.

The trace is in Chrome's trace event format: https://ui.perfetto.dev and chrome://tracing show it.

torch's operators on all threads of this process, for a short while of a run.

They are what a stage is made of: copies, casts and kernels. There are thousands a second, so they
are taken down for the last seconds of a profiled training only, which they slow down a little.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from gelada.core.timing import WAIT, Clock
from gelada.roles.backprop import Backprop, GraphBackprop
from gelada.roles.learner import Learner
from gelada.roles.parameters.published import PublishedParameters
from gelada.roles.parameters.server import ParameterServer
from gelada.roles.replay.queue import TrajectoryQueue


class Span(NamedTuple):
    """Something that a thread did; nanoseconds of `time.monotonic_ns`."""

    stage: str
    start: int
    end: int


class Operators:
    """Takes down operators between `record` and `stop`. Making one loads torch's profiler."""

    def __init__(self) -> None:
        threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        self._profiler = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=1),
            experimental_config=threads,
        )
        self._profiler.start()
        self._names: dict[int, str] = {}
        self._clocks = 0  # nanoseconds from `time.monotonic_ns` to `time.time_ns`
        self.since: float | None = None  # `time.monotonic` of the first operators

    def record(self) -> None:
        """Begin, with the threads that there are now."""
        self._names = {t.native_id: t.name for t in threading.enumerate() if t.native_id}
        self._clocks = between_clocks()
        self.since = time.monotonic()
        self._profiler.step()

    def stop(self) -> dict[str, list[Span]]:
        """End; return the operators by the names of their threads, in no order."""
        self._profiler.stop()
        found: dict[str, list[Span]] = {name: [] for name in self._names.values()}
        if self.since is None:
            return found
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "operators.json"
            self._profiler.export_chrome_trace(str(path))
            trace = json.loads(path.read_text(encoding="utf-8"))
        first = trace["baseTimeNanoseconds"] - self._clocks
        for event in trace["traceEvents"]:
            if event.get("cat") == "cpu_op" and event["tid"] in self._names:
                start = first + round(1000 * event["ts"])
                span = Span(event["name"], start, start + round(1000 * event["dur"]))
                found[self._names[event["tid"]]].append(span)
        return found


def between_clocks(reads: int = 100) -> int:
    """Return the nanoseconds from `time.monotonic_ns` to `time.time_ns`.

    On a busy machine a thread may have to wait between two readings, for milliseconds; so this is
    of the quickest of several ``reads``.
    """
    found = []
    for _ in range(reads):
        before, there, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        found.append((after - before, there - (before + after) // 2))
    return min(found)[1]


INSIDE: dict[type, dict[str, str]] = {
    TrajectoryQueue: {"add": "send", "assemble": "assemble"},
    PublishedParameters: {"publish": "publish"},
    Learner: {"end_round": "end round"},
    Backprop: {"prepare": "prepare", "forward": "forward", "backward": "backward"},
    GraphBackprop: {"prepare": "prepare", "minibatch": "minibatch"},
    ParameterServer: {
        "refusal": "admission",
        "optimizer.step": "optimizer step",
        "publish": "publish",
    },
}
"""Methods whose calls are spans, with the names of the spans, by class: of a role, or of what a
learner computes with. A call runs on the thread of whoever calls it."""

OTHER = "between stages"
"""Time of a role's thread that is in no span."""


class Spans:
    """Takes down what the threads of a run's roles do. Times are in no order."""

    def __init__(self) -> None:
        self._of: dict[str, list[Span]] = {}  # by name of the thread

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Note the time inside as ``stage`` of this thread."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            self.note(stage, start)

    def note(self, stage: str, start: int) -> None:
        """Note a ``stage`` of this thread that ends now; nanoseconds of `time.monotonic_ns`."""
        span = Span(stage, start, time.monotonic_ns())
        self._of.setdefault(threading.current_thread().name, []).append(span)

    def watch(self, roles: Mapping[str, Any]) -> None:
        """Note all stages of these roles from now on. Must be called before they run."""
        for name, role in roles.items():
            if hasattr(role, "clock"):
                role.clock = SpanClock(self)
                self._of[name] = []
            for watched in (role, getattr(role, "compute", None)):
                for path, stage in INSIDE.get(type(watched), {}).items():
                    *owner, method = path.split(".")
                    self._wrap(attrgetter(*owner)(watched) if owner else watched, method, stage)

    def of(self, role: str) -> list[Span]:
        """Return the spans of a role's thread in the order of their starts, outer ones first."""
        return sorted(self._of[role], key=lambda span: (span.start, -span.end))

    def roles(self) -> list[str]:
        """Return the names of the active roles."""
        return list(self._of)

    def shares(self, since: float, until: float) -> dict[str, dict[str, float]]:
        """Return the share of the time between two times by role and stage.

        A stage has only the time that is in none of the spans inside it, so the shares of a role
        and that of `OTHER` are 1 together. Times are seconds of `time.monotonic`.
        """
        found = {}
        for role in self.roles():
            seconds = own_seconds(self.of(role), since, until)
            seconds[OTHER] = until - since - sum(seconds.values())
            found[role] = {stage: s / (until - since) for stage, s in seconds.items()}
        return found

    def write(self, path: Path, operators: Mapping[str, Sequence[Span]]) -> None:
        """Write the trace, with operators by thread; its times count from the first span."""
        first = min((span.start for spans in self._of.values() for span in spans), default=0)
        events: list[dict[str, Any]] = []
        for number, role in enumerate(self.roles(), 1):
            about = {"pid": 1, "tid": number}
            names = {"args": {"name": role}}, {"args": {"sort_index": number}}
            events.append({"ph": "M", "name": "thread_name", **about, **names[0]})
            events.append({"ph": "M", "name": "thread_sort_index", **about, **names[1]})
            both = [(span, kind_of(span.stage)) for span in self.of(role)]
            both += [(span, "operator") for span in operators.get(role, ())]
            for (stage, start, end), kind in nested(both):
                times = {"ts": (start - first) / 1000, "dur": (end - start) / 1000}  # microseconds
                events.append({"ph": "X", "name": stage, "cat": kind, **about, **times})
        text = json.dumps({"traceEvents": events}, separators=(",", ":"))
        path.write_text(text, encoding="utf-8")

    def _wrap(self, owner: Any, method: str, stage: str) -> None:
        inner: Callable[..., Any] = getattr(owner, method)

        @wraps(inner)
        def noted(*args: Any, **kwargs: Any) -> Any:
            with self(stage):
                return inner(*args, **kwargs)

        setattr(owner, method, noted)


class SpanClock(Clock):
    """A role's clock that also notes spans."""

    def __init__(self, spans: Spans) -> None:
        super().__init__()
        self._spans = spans

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time inside as ``stage``, and note it."""
        start = time.monotonic_ns()
        try:
            with super().__call__(stage):
                yield
        finally:
            self._spans.note(stage, start)


def kind_of(stage: str) -> str:
    """Return whether a stage is ``waiting`` for another role or ``busy``."""
    return "waiting" if stage.startswith(WAIT) else "busy"


def nested(spans: Sequence[tuple[Span, str]]) -> list[tuple[Span, str]]:
    """Return one thread's spans by their starts, each cut off where the one around it ends.

    torch reads another clock than we do, and differs by some nanoseconds; without the cuts viewers
    would leave out what crosses an edge. Operators end where a stage begins, and never cut one.
    """
    begins = sorted(span.start for span, kind in spans if kind != "operator")
    fitting: list[tuple[Span, str]] = []
    around: list[Span] = []  # the innermost last
    order = sorted(spans, key=lambda pair: (pair[0].start, pair[1] == "operator", -pair[0].end))
    for span, kind in order:
        while around and around[-1].end <= span.start:
            around.pop()
        ends = [span.end, *(one.end for one in around[-1:])]
        if kind == "operator":
            later = bisect_right(begins, span.start)
            ends += begins[later : later + 1]
        inner = span._replace(end=min(ends))
        around.append(inner)
        fitting.append((inner, kind))
    return fitting


def own_seconds(spans: Sequence[Span], since: float, until: float) -> dict[str, float]:
    """Return the seconds between two times by stage, without those of spans inside.

    Args:
        spans: of one thread, in the order of their starts, outer ones first.
        since: seconds of `time.monotonic`.
        until: the same.
    """
    low, high = round(1e9 * since), round(1e9 * until)
    own: dict[str, int] = {}
    around: list[Span] = []  # the innermost last
    for stage, start, end in spans:
        span = Span(stage, max(start, low), min(end, high))
        if span.end <= span.start:
            continue
        while around and around[-1].end <= span.start:
            around.pop()
        if around:
            own[around[-1].stage] -= span.end - span.start
        own[stage] = own.get(stage, 0) + span.end - span.start
        around.append(span)
    return {stage: nanoseconds / 1e9 for stage, nanoseconds in own.items()}
