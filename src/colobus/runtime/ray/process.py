"""A process of the run: roles in a Ray actor, and how one process calls another."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from colobus.core.types import Call, Exchanged, Params, Request, Version
from colobus.runtime.graph import RoleGraph
from colobus.runtime.host import About, Heartbeat, RoleHost
from colobus.runtime.ray import INLINE

ORDERS = 4
"""Orders of the process that watches which one follows at the same time: to begin, which may take
as long as the games take to load, to redial meanwhile, and to stop."""

PUT_BYTES = int(os.environ.get(INLINE[0], 100_000))
"""Snapshots above this go into the object store, once per version; smaller ones travel along."""


class Process:
    """A role host in a Ray actor; its methods are those of `RoleHost`.

    They run in Ray's event loops, so that calls which wait hold no threads: Ray itself would have
    one for each, all of them from the start.

    Args:
        callers: calls that other processes may make at the same time, without those that wait.
    """

    def __init__(self, callers: int) -> None:
        register_tensors()
        self._host = _Host(dial)
        self._threads = ThreadPoolExecutor(callers, "calls")
        self._orders = ThreadPoolExecutor(ORDERS)

    async def begin(
        self, incarnation: int, make_graph: Callable[..., RoleGraph], *others: Any
    ) -> About:
        """Begin on the GPU that Ray has given to this process, if any."""
        if ray.get_gpu_ids():
            make_graph = partial(make_graph, gpu=True)
        await self._order(self._host.begin, incarnation, make_graph, *others)
        return self.about()

    async def redial(self, *others: Any) -> None:
        """Call some roles in other processes from now on."""
        await self._order(self._host.redial, *others)

    async def stop(self, patience: float) -> list[str]:
        """End the threads of the roles."""
        late: list[str] = await self._order(self._host.stop, patience)
        return late

    async def call(self, request: Request) -> Any:
        """Call a role."""
        return await self._host.answer(request, self._threads)

    def heartbeat(self) -> Heartbeat:
        """Return how the roles are."""
        return self._host.heartbeat()

    def about(self) -> About:
        """Return where this process is, with the name that Ray has for the host."""
        return self._host.about()._replace(node=ray.get_runtime_context().get_node_id())

    def die(self) -> None:
        """End this process at once."""
        os.kill(os.getpid(), signal.SIGKILL)

    async def _order(self, what: Callable[..., Any], *args: Any) -> Any:
        """Do what the process that watches orders, while calls are answered."""
        return await asyncio.get_running_loop().run_in_executor(self._orders, what, *args)


class _Host(RoleHost):
    """Holds roles, and puts large answers into the object store."""

    def __init__(self, dial: Callable[[Any], Call]) -> None:
        super().__init__(dial)
        self._stored: dict[str, _Stored] = {}

    def call(self, request: Request) -> Any:
        """Call a role; answer with a reference instead of a large snapshot of parameters."""
        answer, role = super().call(request), request.role
        if isinstance(answer, Exchanged):
            return answer._replace(params=self._stored_if_large(role, answer.params))
        if isinstance(answer, Params):  # a target may have the version of other parameters
            return self._stored_if_large(role + request.method.removeprefix("pull"), answer)
        return answer

    def _stored_if_large(self, what: str, params: Params) -> Any:
        """Return a snapshot, or if it is large what was put into the store once for all."""
        if params.values.nbytes <= PUT_BYTES:
            return params
        stored = self._stored.get(what)
        if stored is None or stored.version != params.version:
            stored = _Stored(params.version, [ray.put(params.values)])
            self._stored[what] = stored
        return stored


class _Stored(NamedTuple):
    """A snapshot in the object store."""

    version: Version
    values: list[Any]  # one reference; in a list, Ray passes it on as it is

    def get(self, timeout: float | None) -> Params:
        """Return it, from the store of this host."""
        return Params(self.version, ray.get(self.values[0], timeout=timeout))


def dial(handle: Any) -> Call:
    """Return a function that calls a role host in a Ray actor."""

    return lambda request: partial(answer_of, handle.call.remote(request), request.role)


def answer_of(reference: Any, role: str, timeout: float | None = None) -> Any:
    """Wait for an answer; raise what the role raised, or Lost if its process is gone.

    Raises:
        ColobusError: if its process could not even be made, which trying again would not change.
    """
    try:
        answer = ray.get(reference, timeout=timeout)
        if isinstance(answer, Exchanged) and isinstance(answer.params, _Stored):
            return answer._replace(params=answer.params.get(timeout))
        if isinstance(answer, _Stored):
            return answer.get(timeout)
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
        if isinstance(error, ObjectStoreFullError | OutOfDiskError):
            raise ColobusError(
                f"Ray's object store and the disk under it are full: {first_line(error)}; make "
                "room, or start Ray with a larger --object-store-memory"
            ) from None
        raise Lost(f"{role} is gone: {first_line(error)}") from None
    return answer


def register_tensors() -> None:
    """Let tensors travel as the arrays they are; by default torch writes a file into memory."""
    ray.util.register_serializer(
        torch.Tensor,
        serializer=lambda tensor: tensor.detach().cpu().numpy(),
        deserializer=tensor_of,  # by its name: code would be sent with each tensor
    )


def tensor_of(array: Any) -> torch.Tensor:
    """Return an array as a tensor with memory of its own, as that of the store is read-only."""
    return torch.from_numpy(array.copy())


def first_line(error: BaseException) -> str:
    """Return what an error says, without Ray's further pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
