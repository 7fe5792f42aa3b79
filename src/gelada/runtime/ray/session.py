"""Joining a Ray cluster, or starting one, and leaving nothing of it behind."""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import ray

from gelada.core.errors import GeladaError
from gelada.runtime.groups import Cluster
from gelada.runtime.ray.alive import Address, Alive, ports_of_ray
from gelada.runtime.ray.own import own_folder
from gelada.runtime.ray.process import first_line, register_tensors
from gelada.runtime.system import usable_cores

STORE_BYTES = 500_000_000
"""Object store of a Ray cluster of our own: snapshots and trajectories under way."""

LEAVE_SECONDS = 10.0
"""How long Ray has to let go of this process when it is lost itself."""


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[Alive]:
    """Join a Ray cluster, or start one on this machine, and leave nothing of it running.

    Gives what tells whether Ray lives.

    Args:
        cluster: its address; without one, RAY_ADDRESS; without that, an own one.

    Raises:
        GeladaError: if there is no such cluster or it cannot be joined, in one line.
    """
    address = cluster.joined
    if address:
        check_reachable(address)
    with contextlib.ExitStack() as stack:
        own: dict[str, Any] = {}
        if not address:
            folder = stack.enter_context(own_folder())
            own = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
            own["_temp_dir"] = str(folder)
            own["num_cpus"] = usable_cores()  # Ray would count those that others have too
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
        GeladaError: if that fails.
    """
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
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
        raise GeladaError(f"Ray at {address or 'this machine'}: {_why(error)}") from error
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


def _why(error: Exception) -> str:
    """Return why Ray could not be joined; a wrong token stands only in its error's cause."""
    said = f"{error} {error.__cause__}"
    if "token" in said.lower():
        what = "another token there" if "InvalidAuthToken" in said else "no token here"
        return (
            f"{what}: copy the head host's ~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH; if that "
            "cluster was started without a token, set RAY_AUTH_MODE=disabled"
        )
    if "mismatch" in said:  # of Ray or Python; the versions stand in the lines that follow
        return " ".join(str(error).split())
    return first_line(error)


def _silence() -> None:
    """Keep Ray from printing on stdout that a worker died: the run's own log says it, once.

    Ray has no public switch for that, so a private name is used, and only if it is there.
    """
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_args, **_kwargs: None


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


def check_reachable(address: str) -> None:
    """Raise GeladaError if nobody listens at HOST:PORT; Ray itself would wait for a minute."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "://" in address:
        raise GeladaError(
            f"--address {address}: want HOST:PORT of the head process, such as 10.0.0.1:6379, and "
            "neither Ray Client nor the dashboard"
        )
    if not host or not port.isdigit():
        raise GeladaError(f"--address {address}: want HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except OSError as error:
        raise GeladaError(
            f"--address {address}: nobody answers there ({error.strerror or error}); on the head "
            "host: ray start --head"
        ) from None
