"""Joining a Ray cluster, or starting one, and whether Ray itself still lives.

If its head process (GCS) or its process on this host (raylet) is gone, calls of Ray may wait for a
minute and then end this process without a word. So the two are asked in another way: by a
connection to their ports, which the system refuses at once when a process has died.
"""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import ray
import torch

from colobus.core.errors import ClusterLost, ColobusError
from colobus.core.types import Doubles, Request
from colobus.runtime.graph import Node, RoleGraph
from colobus.runtime.groups import Cluster
from colobus.runtime.ray.own_cluster import own_folder
from colobus.runtime.ray.process import Process, first_line, register_tensors
from colobus.runtime.system import usable_cores

LOOK_SECONDS = 1.0
"""Between two connections to a port."""

LOST_SECONDS = 10.0
"""After so long without an answer Ray is lost. A head process with a database may come back."""

ANSWER_SECONDS = 1.0
"""How long a port has to answer."""

Address = tuple[str, int]


@dataclass(eq=False)
class Alive:
    """Tells whether all processes that a run cannot do without can be reached."""

    ports: Mapping[str, Address]  # of each process, by what messages call it
    now: Callable[[], float] = time.monotonic  # in seconds

    def __post_init__(self) -> None:
        self._missing: dict[str, float] = {}  # since when they have given no answer
        self._looked = float("-inf")
        self.lost = ""  # what is lost for good, in words

    def look(self, at_once: bool = False) -> bool:
        """Return whether all answer; they are asked at most once a second unless ``at_once``."""
        now = self.now()
        if not at_once and now - self._looked < LOOK_SECONDS:
            return not self._missing
        self._looked = now
        for name, (host, port) in self.ports.items():
            if _answers((host, port)):
                self._missing.pop(name, None)
            elif now - self._missing.setdefault(name, now) >= LOST_SECONDS and not self.lost:
                self.lost = f"{name} at {host}:{port} has given no answer for {LOST_SECONDS:g} s"
        return not self._missing


def ports_of_ray() -> dict[str, Address]:
    """Return where Ray's head process and its process on this host listen."""
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    ports = {"the head process (GCS)": (host.strip("[]"), int(port))}
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            address = node["NodeManagerAddress"], int(node["NodeManagerPort"])
            ports["the process of this host (raylet)"] = address
    return ports


def _answers(address: Address) -> bool:
    try:
        socket.create_connection(address, ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


LEAVE_SECONDS = 10.0
"""How long Ray has to let go of this process when it is lost itself."""


@contextlib.contextmanager
def connected(cluster: Cluster, store: int = 500_000_000) -> Iterator[Alive]:
    """Join a Ray cluster, or start one on this machine, and leave nothing of it running.

    Gives what tells whether Ray lives.

    Args:
        cluster: its address; without one, RAY_ADDRESS; without that, an own one.
        store: bytes of the object store of an own one.

    Raises:
        ColobusError: if there is no such cluster or it cannot be joined, in one line.
    """
    address = cluster.joined
    if address:
        check_reachable(address, "--address" if cluster.address else "RAY_ADDRESS")
    with contextlib.ExitStack() as stack:
        own: dict[str, Any] = {}
        if not address:
            try:
                folder = stack.enter_context(own_folder())
            except OSError as error:
                raise ColobusError(f"{error}; let RAY_TMPDIR name a folder with room") from None
            own = {"include_dashboard": False, "object_store_memory": store}
            own |= {"_temp_dir": str(folder), "num_cpus": usable_cores()}  # not all of the machine
        _init(address, own)
        ports: dict[str, Address] = {}
        alive = Alive(ports)
        stack.callback(_leave, alive)
        ports.update(ports_of_ray())
        register_tensors()
        _silence()
        yield alive


def _init(address: str, own: dict[str, Any]) -> None:
    """Join the cluster at an address, or start one.

    Raises:
        ColobusError: if that fails.
    """
    here = threading.current_thread() is threading.main_thread()  # others cannot set handlers
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM) if here}
    try:
        with _quiet(), _of_the_terminal_blocked():
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
                **own,
            )
    except Exception as error:  # Ray's own are of many kinds
        kind, why = _why(error)
        raise kind(f"Ray at {address or 'this machine'}: {why}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # Ray sets its own


@contextlib.contextmanager
def _of_the_terminal_blocked() -> Iterator[None]:
    """Block SIGHUP and SIGQUIT for what is started meanwhile, as Ray itself does with SIGINT.

    A terminal that is closed sends SIGHUP to all processes of a command. Those of Ray have to live
    until the run is saved. For this process such a signal comes at the end of the context.
    """
    names = [name for name in ("SIGHUP", "SIGQUIT") if hasattr(signal, name)]
    if not names:  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in names])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave(alive: Alive) -> None:
    """Let go of Ray. If it is lost, that may hang, so it is given up after a while."""
    if alive.look(at_once=True):
        ray.shutdown()
        return
    thread = threading.Thread(target=ray.shutdown, name="leaves Ray", daemon=True)
    thread.start()
    thread.join(LEAVE_SECONDS)
    if thread.is_alive():
        atexit.unregister(ray.shutdown)  # which would wait for the thread


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Ray says from below Python while it connects, the same line each second."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _why(error: Exception) -> tuple[type[ColobusError], str]:
    """Return why Ray could not be joined: by a mistake, or as it is slow or gone."""
    said = f"{error} {error.__cause__}"  # a wrong token stands only in the cause
    if "token" in said.lower():
        what = "another token there" if "InvalidAuthToken" in said else "no token here"
        return ColobusError, (
            f"{what}: copy the head host's ~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH; if that "
            "cluster was started without a token, set RAY_AUTH_MODE=disabled"
        )
    if "mismatch" in said:  # of Ray or Python; the versions stand in the lines that follow
        return ColobusError, " ".join(str(error).split())
    kind = ColobusError if isinstance(error, ValueError) else ClusterLost
    return kind, first_line(error)


def _silence() -> None:
    """Keep Ray from printing on stdout that a worker died: the run's own log says it, once.

    Ray has no public switch for that, so a private name is used, and only if it is there.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_args, **_kwargs: None


FIGURES = {
    "steps": "environment steps",
    "version": "updates of the parameters",
    "games": "games that were played to their end",
    "seconds": "seconds since the run began",
    "score": "mean raw return of the last 50 games",
    "best": "best such mean",
    "evaluated": "mean of the evaluator's last 50 games",
    "unsaved": "seconds since the newest checkpoint",
}
"""What Prometheus is told of a run."""


class Prometheus:
    """Figures of a run for Prometheus, beside those of Ray's own, at the exporter of this host.

    Args:
        run: tells it from others.
    """

    def __init__(self, run: str) -> None:
        from ray.util.metrics import Gauge

        self._run = {"run": run}
        self._gauges = {
            name: Gauge(f"colobus_{name}", description=what, tag_keys=("run",))
            for name, what in FIGURES.items()
        }

    def tell(self, status: object) -> None:
        """Set the figures to those of a status; those that it has not stay as they are."""
        for name, gauge in self._gauges.items():
            if (value := getattr(status, name)) is not None:
                gauge.set(float(value), tags=self._run)


def is_on_network() -> bool:
    """Return whether a host of the joined cluster has another address than the loopback one."""
    there = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
    return not all(is_loopback(address) for address in there)


def is_loopback(address: str) -> bool:
    """Return whether an address is only for this machine."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return address == "localhost"


def check_reachable(address: str, flag: str = "--address") -> None:
    """Raise ColobusError if nobody listens at HOST:PORT; Ray itself would wait for a minute."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "://" in address:
        raise ColobusError(
            f"{flag} {address}: want HOST:PORT of the head process, such as 10.0.0.1:6379, and "
            "neither Ray Client nor the dashboard"
        )
    if not host or not port.isdigit():
        raise ColobusError(f"{flag} {address}: want HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, ValueError, OverflowError) as error:  # also of a name or port that is none
        kind = ClusterLost if isinstance(error, TimeoutError) else ColobusError  # slow, or none
        raise kind(
            f"{flag} {address}: nobody answers there ({getattr(error, 'strerror', None) or error});"
            " on the head host: ray start --head"
        ) from None


class Echo:
    """A role that answers calls, to measure what they take."""

    def take(self, value: Any) -> float:
        """Take what was sent; return the seconds of a core that this process has used."""
        return time.process_time()


VECTORS = (1_000_000, 300_000, 100_000)
"""Float32 numbers of vectors that are sent, the first two by way of the object store."""

PAUSE = 0.01
"""Seconds between two calls that are rare, which use more of a core than those at full speed."""


def round_trips(
    callers: Sequence[int], seconds: float, repetitions: int
) -> list[tuple[list[float], dict[str, float]]]:
    """Return what a call to a role in another process of this machine takes, in a connected Ray.

    Args:
        callers: numbers of threads that call at once.
        seconds: of measuring in all.
        repetitions: how often to measure each.

    Returns:
        For each repetition the seconds of an empty call with so many callers, and what `Calls`
        has besides the loop and the latency, each for one end of a call.
    """
    echo: Any = ray.remote(Process).options(num_cpus=0).remote(len(callers))
    node = Node(Echo, (), {}, "echo", "tracker", "echo")
    ray.get(echo.begin.remote(0, partial(RoleGraph, [node]), ["echo"], {}, seconds))
    each = seconds / (repetitions * (len(callers) + 2 + len(VECTORS)))
    vectors = [torch.zeros(size) for size in VECTORS]

    def take(value: Any) -> Any:
        return ray.get(echo.call.remote(Request(0, "echo", "take", (value,), {})))

    def trip(count: int, value: Any) -> float:
        began = time.monotonic()

        def call(_index: int) -> int:
            calls = 0
            while time.monotonic() < began + each or not calls:
                take(value)
                calls += 1
            return calls

        with ThreadPoolExecutor(count) as threads:
            calls = sum(threads.map(call, range(count)))
        return count * (time.monotonic() - began) / calls

    def used(calls: int) -> Doubles:
        """Return the seconds of a core that both processes use in as many calls and pauses."""
        before = take(b""), time.process_time()
        for _ in range(calls):
            take(b"")
            time.sleep(PAUSE)
        time.sleep(0.0 if calls else each)
        return np.subtract((take(b""), time.process_time()), before)

    for vector in vectors:
        trip(1, vector)  # the first calls are slow
    found = []
    for _ in range(repetitions):
        empty = [trip(count, b"") for count in callers]
        large, small, carried = (max(trip(1, v) - empty[0], 0.0) / 2 for v in vectors)
        byte = max(large - small, 0.0) / (vectors[0].nbytes - vectors[1].nbytes)
        rest, calls = used(0), max(int(each / PAUSE), 1)  # with the call that asks
        cpu = max(float((used(calls) - rest).mean()) / calls, 0.0)
        costs = {
            "byte": byte,
            "stored": max(small - byte * vectors[1].nbytes, 0.0),
            "carried": carried / vectors[2].nbytes,
            "cpu": cpu,
            "idle": max(float(rest[0]) - cpu, 0.0) / each,
        }
        found.append((empty, costs))
    return found
