"""torch's operators on all threads of this process, for a short while of a run.

They are what a stage is made of: copies, casts and kernels. There are thousands a second, so they
are taken down for the last seconds of a profiled training only, which they slow down a little.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, schedule


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
