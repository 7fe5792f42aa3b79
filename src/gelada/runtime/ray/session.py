"""Joining a Ray cluster, or starting one, and leaving nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator

import ray

from gelada.core.errors import GeladaError
from gelada.runtime.groups import Cluster
from gelada.runtime.ray.process import first_line, register_tensors

STORE_BYTES = 500_000_000
"""Object store of a Ray cluster of our own: snapshots and trajectories under way."""


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
    }
    try:
        with _quiet():
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
                **({} if address else own),
            )
    except Exception as error:  # Ray's own are of many kinds
        raise GeladaError(f"Ray at {address or 'this machine'}: {_why(error)}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # Ray sets its own
    register_tensors()
    _silence()
    try:
        yield
    finally:
        ray.shutdown()


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
        return f"{what}: copy the head host's ~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH"
    if "mismatch" in said:  # of Ray or Python; the versions stand in the lines that follow
        return " ".join(str(error).split())
    return first_line(error)


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
