"""Where the time of a training goes: ``colobus bench GAME --profile trace.json``.

At the end of a short training `torch.profiler` takes down what all threads do: a range for each
stage of a role and for some of its methods, and torch's operators inside them. Roles know nothing
of it: they are subclassed where the graph is made, so a run that nobody profiles pays nothing.

The trace is in Chrome's trace event format: https://ui.perfetto.dev and chrome://tracing show it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from colobus.cli.throughput import Progress, for_seconds, steady_rate, trained
from colobus.core.errors import ColobusError
from colobus.core.timing import WAIT, Clock
from colobus.experiment.settings import Experiment
from colobus.roles.backprop import Backprop
from colobus.roles.learner import Learner
from colobus.roles.parameters.published import PublishedParameters
from colobus.roles.parameters.server import ParameterServer
from colobus.roles.replay.queue import TrajectoryQueue
from colobus.runtime.devices import Devices
from colobus.runtime.graph import RoleGraph
from colobus.runtime.system import describe_machine
from colobus.training.topology import make_graph

TRACED_SECONDS = 5.0
"""At the end of the training, in the trace; of a short training it is the last third."""

INSIDE: dict[type, dict[str, str]] = {
    TrajectoryQueue: {"add": "send", "assemble": "assemble"},
    PublishedParameters: {"publish": "publish"},
    Learner: {"end_round": "end round"},
    Backprop: {"prepare": "prepare", "minibatch": "minibatch", "backward": "backward"},
    ParameterServer: {
        "refusal": "admission",
        "optimizer.step": "optimizer step",
        "publish": "publish",
    },
}
"""Methods whose calls are ranges, with the names of the ranges, by class: of a role, or of what a
learner computes with. A call runs on the thread of whoever calls it."""

OTHER = "between stages"
"""Time of a role's thread that is in no range."""


def profile(
    experiment: Experiment,
    seconds: float,
    trace: Path,
    progress: Progress | None = None,
    devices: Devices | None = None,
) -> dict[str, Any]:
    """Train on threads for so long, and write a trace of the last seconds.

    Args:
        experiment: all settings; its stop rule and what it writes do not count.
        seconds: of training.
        trace: file to write.
        progress: told "train" and the share that is done.
        devices: that learn and act.

    Returns:
        ``achieved_steps_per_s`` in steps (agent decisions) per second before the trace began, and
        ``threads``: by role and stage the share of the traced time, without that of ranges inside.
    """
    begin_at = seconds - min(TRACED_SECONDS, seconds / 3)
    tracer = Tracer()

    def tell(share: float) -> None:
        if share * seconds >= begin_at:
            tracer.begin()
        if progress:
            progress("train", share)

    try:
        counts, _ = trained(
            for_seconds(experiment, seconds), None, devices, tell, partial(marked_graph, make_graph)
        )
    finally:
        tracer.end()
    before = [count for count in counts if count[0] < begin_at]
    return {
        "game": experiment.games.game,
        "achieved_steps_per_s": round(steady_rate(before or counts), 1),
        "trace": str(trace),
        "threads": tracer.write(trace),
        "machine": describe_machine(),
    }


class Tracer:
    """Takes down what all threads of this process do between `begin` and `end`."""

    def __init__(self) -> None:
        threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        self._profiler = torch.profiler.profile(
            activities=[ProfilerActivity.CPU], experimental_config=threads
        )
        self._names: dict[int, str] = {}  # of threads by their numbers
        self._began = self._seconds = 0.0

    def begin(self) -> None:
        """Begin, with the threads that there are now, unless it has begun already."""
        if not self._began:
            roles = set(threading.enumerate()) - {threading.current_thread()}
            self._names = {t.native_id: t.name for t in roles if t.native_id}
            self._profiler.start()
            self._began = time.monotonic()

    def end(self) -> None:
        """End, if it has begun."""
        if self._began:
            self._seconds = time.monotonic() - self._began
            self._profiler.stop()

    def write(self, path: Path) -> dict[str, dict[str, float]]:
        """Write the trace; return the share of the time by role and stage, 1 together for a role.

        A stage has only the time that is in none of the ranges inside it.

        Raises:
            ColobusError: if it has not begun.
        """
        if not self._began:
            raise ColobusError("the training was over before anything was traced: more --seconds")
        self._profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
        ranges: dict[str, list[tuple[str, float, float]]] = {}
        for event in trace["traceEvents"]:
            role = self._names.get(event["tid"], "")
            if event["name"] == "thread_name" and role:
                event["args"]["name"] = role
            elif event.get("cat") == "user_annotation" and role:
                event["cat"] = kind_of(event["name"])
                one = (event["name"], event["ts"], event["ts"] + event["dur"])
                ranges.setdefault(role, []).append(one)
        path.write_text(json.dumps(trace, separators=(",", ":")), encoding="utf-8")
        shares = {}
        for role, found in ranges.items():
            own = own_seconds(found)
            own[OTHER] = max(self._seconds - sum(own.values()), 0.0)
            whole = sum(own.values())
            shares[role] = {stage: round(spent / whole, 4) for stage, spent in own.items()}
        return shares


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


def marked_graph(make: Callable[..., RoleGraph], *args: Any, **kwargs: Any) -> RoleGraph:
    """Return the graph that ``make`` makes, with roles whose stages and methods are ranges."""
    nodes = make(*args, **kwargs).nodes
    return RoleGraph([replace(node, make=marked(node.make)) for node in nodes])


def marked(make: Any) -> Any:
    """Return a subclass of a role whose stages and methods are ranges."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make.__init__(self, *args, **kwargs)
        if hasattr(self, "clock"):
            self.clock = MarkedClock()
        for owner in (self, getattr(self, "compute", None)):
            for kind, inside in INSIDE.items():
                mark(owner, inside if isinstance(owner, kind) else {})

    return type(make.__name__, (make,), {"__init__": init})


def mark(owner: Any, inside: Mapping[str, str]) -> None:
    """Make calls of methods of an object ranges with these names."""
    for path, stage in inside.items():
        *parents, method = path.split(".")
        holder = attrgetter(*parents)(owner) if parents else owner
        call = getattr(holder, method)

        @wraps(call)
        def ranged(*args: Any, _call: Any = call, _stage: str = stage, **kwargs: Any) -> Any:
            with record_function(_stage):
                return _call(*args, **kwargs)

        setattr(holder, method, ranged)


class MarkedClock(Clock):
    """A role's clock whose stages are ranges, too."""

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the time inside as ``stage``."""
        with record_function(stage), super().__call__(stage):
            yield
