"""What is told about the processes of a run: lines for the user, and events for programs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from gelada.core.errors import Stalled
from gelada.runtime.groups import Cluster
from gelada.runtime.ray.watched import WatchedProcess

START_SECONDS = 60.0
"""Seconds in which a process starts (Ray's worker, imports, games); after that a line tells."""

LONGEST_START_SECONDS = 300.0
"""Seconds after which a run is given up whose processes have not all started: beside other work a
start takes long."""

Tell = Callable[[dict[str, Any]], None]
"""Takes an event: what was hit, lost or replaced, and why."""


class Reports:
    """Tells what happens to processes.

    Args:
        log: takes lines for the user.
        tell: takes events.
    """

    def __init__(self, log: Callable[[str], None], tell: Tell) -> None:
        self._log, self._tell = log, tell

    def hit(self, process: WatchedProcess, number: int) -> None:
        """Tell that a process is about to be sent a signal on purpose."""
        name = signal.Signals(number).name
        self._log(f"faults: {name} to {process}")
        self._event("hit", process, signal=name)

    def lost(self, process: WatchedProcess, why: str, silent: float) -> None:
        """Tell that a process counts as lost, so many seconds after it was last heard."""
        self._log(f"{process} {why.removeprefix(f'{process.spec.name} ')}; begun again")
        self._event("lost", process, why=why, silent=round(silent, 3), times=process.losses)

    def back(self, process: WatchedProcess, after: float) -> None:
        """Tell that a lost process is back, so many seconds after it was last heard."""
        self._log(f"{process} is back, {after:.1f} s after it was last heard")
        self._event("back", process, after=round(after, 3))

    def _event(self, event: str, process: WatchedProcess, **more: Any) -> None:
        about, spec = process.about, process.spec
        where = {"host": about.host, "process": about.process} if about else {}
        self._tell({"event": event, "what": spec.name, "kind": spec.kind} | where | more)


class SlowStart:
    """Tells every `START_SECONDS` who has not started; gives up after `LONGEST_START_SECONDS`.

    Args:
        cluster: what processes ask for.
        log: takes lines for the user.
    """

    def __init__(self, cluster: Cluster, log: Callable[[str], None]) -> None:
        self._cluster, self._log = cluster, log
        self._began, self._told = time.monotonic(), 0  # lines so far

    def look(self, late: Sequence[WatchedProcess]) -> None:
        """Note which processes have not started yet; to be called again and again.

        Raises:
            Stalled: if they have taken too long.
        """
        waited = time.monotonic() - self._began
        if waited >= LONGEST_START_SECONDS:
            raise Stalled(not_started(late, self._cluster, waited))
        if waited // START_SECONDS > self._told:
            self._told += 1
            self._log(not_started(late, self._cluster, waited))


def not_started(processes: Sequence[WatchedProcess], cluster: Cluster, seconds: float) -> str:
    """Return a line about processes that have not come up for so long."""
    names = ", ".join(process.spec.name for process in processes)
    free = ray.available_resources().get("CPU", 0.0)
    return (
        f"{names} did not start within {seconds:.0f} s: each asks for {cluster.cpus:g} CPU, "
        f"the cluster has {free:g} free"
    )
