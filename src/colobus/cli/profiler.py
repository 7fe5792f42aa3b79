"""Where the time of a training goes: ``colobus bench GAME --profile trace.json``.

At the end of a short training `torch.profiler` takes down what all threads of all processes do: a
range for each stage of a role and for some of its methods, and torch's operators inside them. Roles
know nothing of it: where the graph is made they are subclassed, and a `Tracer` for each process is
added. So a run that nobody profiles pays nothing.

The trace is in Chrome's trace event format: https://ui.perfetto.dev and chrome://tracing show it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from colobus.cli.throughput import Progress, steady_rate, trained
from colobus.core.errors import Closed, Lost
from colobus.core.timing import WAIT, Clock, Closable, wait_for
from colobus.core.types import Remote
from colobus.experiment.settings import Experiment
from colobus.roles.backprop import Backprop
from colobus.roles.learner import Learner
from colobus.roles.parameters.published import PublishedParameters
from colobus.roles.parameters.server import ParameterServer
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.queue import TrajectoryQueue
from colobus.roles.tracker import Tracker
from colobus.runtime.devices import Devices
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster, ProcessSpec, group_processes
from colobus.runtime.system import describe_machine
from colobus.training.topology import make_graph

TRACED_SECONDS, PATIENCE = 5.0, 300.0
"""At the end of the training, in the trace; of a short training it is the last third. And those
that a process waits for the start or the trace of another."""

INSIDE: dict[type, dict[str, str]] = {
    TrajectoryQueue: {"add": "send", "assemble": "assemble"},
    ReplayBuffer: {"add": "send", "_rings.gather": "assemble"},
    Remote: {"add": "send", "episodes": "count", "keep": "count"},
    PublishedParameters: {"publish": "publish"},
    Learner: {"end_round": "end round"},
    Backprop: {"prepare": "prepare", "minibatch": "minibatch", "backward": "backward"},
    ParameterServer: {
        "refusal": "admission",
        "optimizer.step": "optimizer step",
        "publish": "publish",
    },
    Tracker: {"episodes": "count", "keep": "count", "report": "count"},
}
"""Methods whose calls are ranges, with the names of the ranges, by class: of a role, of what a
learner computes with, or of what stands for a role elsewhere. A call runs on the thread of whoever
calls it, or on one that answers the calls of other processes."""

OTHER = "between stages"
"""Time of a role's thread that is in no range."""

TRACER, CALLS = "tracer", "calls"
"""What has the facts about a trace, and how threads are called that answer other processes."""


def profile(
    experiment: Experiment,
    seconds: float,
    trace: Path,
    tell: Progress = lambda _share: None,
    devices: Devices | None = None,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Train for so long, and write a trace of the last seconds.

    Args:
        experiment: all settings; its stop rule and what it writes do not count.
        seconds: of training, since all processes are there.
        trace: file to write.
        tell: told the share that is done.
        devices: that learn and act.
        cluster: of processes (None: threads).

    Returns:
        ``achieved_steps_per_s`` in steps (agent decisions) per second before the trace began, and
        ``threads``: by role and stage the share of the traced time, without that of ranges inside.
    """
    began, longest = time.time(), seconds + 4 * PATIENCE
    with TemporaryDirectory() as folder:
        make = partial(traced_graph, cluster, Path(folder), seconds)
        run = (experiment, longest, cluster, devices)
        counts, _ = trained(*run, lambda share: tell(share * longest / seconds), make)
        begin, threads = join(Path(folder), trace)
    before = [count for count in counts if count[0] < begin - began]
    return {
        "game": experiment.games.game,
        "achieved_steps_per_s": round(steady_rate(before or counts), 1),
        "trace": str(trace),
        "threads": threads,
        "machine": describe_machine(),
    }


def traced_graph(
    cluster: Cluster | None, folder: Path, seconds: float, *args: Any, **kwargs: Any
) -> RoleGraph:
    """Return the graph of a run with marked roles, and in each process a tracer.

    Args:
        cluster: of processes (None: threads).
        folder: for their traces, on the host of the tracker.
        seconds: of training.
        args: of `make_graph`, as ``kwargs`` are.
    """
    nodes, first = make_graph(*args, **kwargs).nodes, None
    places = {node.name: node.process for node in nodes}
    graph = RoleGraph([replace(node, make=marked(node.make)) for node in nodes])
    specs = group_processes(graph, cluster.per_process) if cluster else []
    for spec in specs or [ProcessSpec("main", "tracker", ("tracker",), False)]:
        own, given = f"{TRACER}-{spec.name}", (spec.name, first, folder, len(specs) or 1, seconds)
        added = graph.add(own, "tracer", places[spec.roles[0]], Tracer, *given)
        first = first or added
    return graph


@dataclass(eq=False)
class Tracer(Closable):
    """Takes down what all threads of its process do in the last seconds; an active role."""

    process: str  # its name
    first: Tracer | None  # that of the tracker's process, which has the others wait; None: this one
    folder: Path  # for the traces of all processes
    count: int  # of processes
    seconds: float  # from when all are there to the end
    finished = False

    def __post_init__(self) -> None:
        super().__init__(PATIENCE)
        self.name, self.clock = f"{TRACER}-{self.process}", Clock()
        self._first = self.first or self
        self._met = dict[str, set[str]]()
        config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        cpu = [ProfilerActivity.CPU]
        self._profiler = torch.profiler.profile(activities=cpu, experimental_config=config)
        self._profiler.prepare_trace()

    def meet(self, process: str, when: str, trace: bytes = b"") -> None:
        """Wait until all processes have called with this word, and perhaps a compressed trace."""
        with self._changed:
            known = self._met.setdefault(when, set())
            if process not in known:  # a call that waits is made again
                (self.folder / process).write_bytes(trace)
                known.add(process)
                self._changed.notify_all()
            self.wait_until(lambda: len(known) == self.count, "sign of all processes")

    def step(self) -> None:
        """Trace once, and end the run when all have done so."""
        traced = min(TRACED_SECONDS, self.seconds / 3)
        with self.clock("wait for the trace"):
            self._first.meet(self.process, "there")
            self._wait(self.seconds - traced)
            self._first.meet(self.process, "sent", self._traced(traced))
        self.finished = True

    def _wait(self, seconds: float) -> None:
        """Wait for so long, or until the run is over."""
        with self._changed:
            wait_for(self._changed, lambda: self._closed, seconds)

    def _traced(self, seconds: float) -> bytes:
        """Trace for so long; return a file with what was taken down."""
        self._profiler.start_trace()
        began, names = time.time(), dict[int, str]()
        with suppress(Closed, Lost):  # the run may be over: what has begun is ended below
            self._first.meet(self.process, "begun")  # no trace ends before all have begun
        for more in (seconds, 0.0):  # threads come and go
            names |= {t.native_id or 0: t.name for t in threading.enumerate()}
            self._wait(more)
        about = {
            "name": f"{self.process} on {socket.gethostname()} (process {os.getpid()})",
            "process": os.getpid(),
            "began": began,
            "ended": time.time(),
            "threads": {
                number: f"{name} of {self.process}" if name.startswith(CALLS) else name
                for number, name in names.items()
            },
        }
        self._profiler.add_metadata_json(TRACER, json.dumps(about))
        self._profiler.stop_trace()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(file))
            return gzip.compress(file.read_bytes(), 1)


def join(folder: Path, file: Path) -> tuple[float, dict[str, dict[str, float]]]:
    """Write the traces of processes into one file.

    Returns:
        When it begins, and the share of the traced time by thread and stage, 1 together for a
        thread. A stage has only the time that is in none of the ranges inside it. Of several
        processes, the threads whose names differ by numbers count together.
    """
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(folder.iterdir())]
    processes = [trace[TRACER] for trace in traces]
    begin = min(process["began"] for process in processes)
    events, spent = list[dict[str, Any]](), dict[str, dict[str, float]]()
    for number, (trace, process) in enumerate(zip(traces, processes, strict=True), 1):
        names, shift = process.pop("threads"), trace["baseTimeNanoseconds"] / 1e3 - 1e6 * begin
        ranges: dict[str, list[tuple[str, float, float]]] = {}
        named = {("process_name", 0): process["name"]}
        for event in trace["traceEvents"]:
            if event.get("pid") != process["process"] or event["ph"] != "X":
                continue  # names, too: torch may have none of a thread that did something
            what, thread = event["name"], names.get(str(event["tid"]))
            event.pop("args", None)  # numbers that say nothing
            event |= {"ts": event["ts"] + shift, "pid": number}  # as hosts may have equal ones
            named["thread_name", event["tid"]] = thread or process["name"]
            if event.get("cat") == "user_annotation" and thread:
                event["cat"] = kind_of(what)
                one = (what, event["ts"], event["ts"] + event["dur"])
                ranges.setdefault(thread, []).append(one)
            events.append(event)
        for (what, thread), name in named.items():
            about = {"name": what, "tid": thread, "args": {"name": name}}
            events.append(about | {"ph": "M", "pid": number})
        for thread, found in ranges.items():
            own = own_seconds(found)
            own[OTHER] = max(process["ended"] - process["began"] - sum(own.values()), 0.0)
            kind = thread if len(traces) == 1 else re.sub(r"[-_]\d+", "", thread)
            alike = spent.setdefault(kind, {})
            alike |= {stage: alike.get(stage, 0.0) + own[stage] for stage in own}
    both = {"processes": processes, "traceEvents": events}
    file.write_text(json.dumps(both, separators=(",", ":")), encoding="utf-8")
    return begin, {
        kind: {stage: round(part / sum(own.values()), 4) for stage, part in own.items()}
        for kind, own in spent.items()
    }


def own_seconds(ranges: Sequence[tuple[str, float, float]]) -> dict[str, float]:
    """Return the seconds by stage without those of ranges inside.

    Args:
        ranges: stages of one thread with their begin and end in microseconds, in any order.
    """
    own: dict[str, float] = {}
    around: list[tuple[str, float]] = []  # stage and end, the innermost last
    for stage, start, end in sorted(ranges, key=lambda one: (one[1], -one[2])):
        while around and around[-1][1] <= start:
            around.pop()
        if around:
            own[around[-1][0]] -= (end - start) / 1e6
        own[stage] = own.get(stage, 0.0) + (end - start) / 1e6
        around.append((stage, end))
    return own


def kind_of(stage: str) -> str:
    """Return whether a stage is ``waiting`` for another role or ``busy``."""
    return "waiting" if stage.startswith(WAIT) else "busy"


def marked(make: Any) -> Any:
    """Return a subclass of a role whose stages and methods are ranges."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make.__init__(self, *args, **kwargs)
        if hasattr(self, "clock"):
            self.clock = MarkedClock()
        elsewhere = [value for value in args if isinstance(value, Remote)]
        for owner in (self, getattr(self, "compute", None), *elsewhere):
            for kind, inside in INSIDE.items():
                mark(owner, inside if isinstance(owner, kind) else {})

    return type(make.__name__, (make,), {"__init__": init})


def mark(owner: Any, inside: Mapping[str, str]) -> None:
    """Make calls of methods of an object ranges with these names."""
    for path, stage in inside.items():
        *parents, method = path.split(".")
        holder = attrgetter(*parents)(owner) if parents else owner
        setattr(holder, method, partial(ranged, getattr(holder, method), stage))


def ranged(call: Any, stage: str, *args: Any, **kwargs: Any) -> Any:
    """Make a call in a range."""
    with record_function(stage):
        return call(*args, **kwargs)


class MarkedClock(Clock):
    """A role's clock whose stages are ranges, too."""

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time inside as ``stage``."""
        with record_function(stage), super().__call__(stage):
            yield
