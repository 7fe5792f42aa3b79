"""A process of the run: roles in a Ray actor, and how one process calls another."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import (
    GetTimeoutError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayError,
    RayTaskError,
)

from colobus.core.errors import ColobusError, Lost
from colobus.core.types import Params, Version
from colobus.runtime.graph import RoleGraph
from colobus.runtime.host import About, Call, Request, RoleHost

FULL = (ObjectStoreFullError, OutOfDiskError)

PUT_BYTES = 100_000
"""Snapshots above this go into the object store, once per version; smaller ones travel along."""


class Process(RoleHost):
    """A role host in a Ray actor."""

    def __init__(self) -> None:
        register_tensors()
        super().__init__(dial)
        self._stored: dict[str, _Stored] = {}

    def begin(self, incarnation: int, make_graph: Callable[..., RoleGraph], *others: Any) -> About:
        """Begin as a role host, on the GPU that Ray has given to this process, if any."""
        if ray.get_gpu_ids():
            make_graph = partial(make_graph, gpu=True)
        return super().begin(incarnation, make_graph, *others)

    def about(self) -> About:
        """Return where this process is, with the name that Ray has for the host."""
        return super().about()._replace(node=ray.get_runtime_context().get_node_id())

    def die(self) -> None:
        """End this process at once."""
        os.kill(os.getpid(), signal.SIGKILL)

    def call(self, request: Request) -> Any:
        """Call a role; answer with a reference if the answer is a large snapshot of parameters."""
        answer = super().call(request)
        if isinstance(answer, Params) and answer.values.nbytes > PUT_BYTES:
            return self._store(request.role, answer)
        return answer

    def _store(self, role: str, params: Params) -> _Stored:
        """Put a snapshot once, however many pull it."""
        stored = self._stored.get(role)
        if stored is None or stored.version != params.version:
            stored = _Stored(params.version, [ray.put(params.values)])
            self._stored[role] = stored
        return stored


class _Stored(NamedTuple):
    """A snapshot in the object store."""

    version: Version
    values: list[Any]  # one reference; in a list, Ray passes it on as it is


def dial(handle: Any) -> Call:
    """Return a function that calls a role host in a Ray actor and waits for the answer."""

    return lambda request: answer_of(handle.call.remote(request), request.role)


def answer_of(reference: Any, role: str, timeout: float | None = None) -> Any:
    """Wait for an answer; raise what the role raised, or Lost if its process is gone.

    Raises:
        ColobusError: if its process could not even be made, which trying again would not change.
    """
    try:
        answer = ray.get(reference, timeout=timeout)
        if isinstance(answer, _Stored):
            return Params(answer.version, ray.get(answer.values[0], timeout=timeout))
    except RayTaskError as error:
        raise error.cause from None
    except GetTimeoutError:
        raise Lost(f"{role} gave no answer for {timeout:g} s") from None
    except RayError as error:  # its process or host is gone, or the object with it
        if isinstance(error, RayActorError) and error.actor_init_failed:
            why = str(error).strip().splitlines()[-1]
            raise ColobusError(
                f"{role} cannot start: {why}; install the same colobus[cluster] on all hosts"
            ) from None
        if isinstance(error, FULL):
            raise ColobusError(
                f"Ray's object store and the disk under it are full: {first_line(error)}; make "
                "room, or start Ray with a larger --object-store-memory"
            ) from None
        raise Lost(f"{role} is gone: {first_line(error)}") from None
    return answer


def answered(references: Sequence[Any], seconds: float) -> list[Any]:
    """Return the references that have an answer; wait at most so long for the first."""
    if not references:
        time.sleep(seconds)
        return []
    done, _ = ray.wait(references, num_returns=len(references), timeout=0.0)
    if not done:
        done, _ = ray.wait(references, num_returns=1, timeout=seconds)
    return list(done)


def register_tensors() -> None:
    """Let tensors travel as the arrays they are; by default torch writes a file into memory."""
    ray.util.register_serializer(
        torch.Tensor,
        serializer=lambda tensor: tensor.detach().cpu().numpy(),
        deserializer=lambda array: torch.from_numpy(array.copy()),  # the store's is read-only
    )


def first_line(error: BaseException) -> str:
    """Return what an error says, without Ray's further pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
