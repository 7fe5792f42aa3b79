"""RoleHost: holds the roles of one process, in a run that is spread over several.

Every process makes the same graph, builds the roles that are its own, runs them on threads and
answers calls from other processes. Nothing here knows how a call travels.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from colobus.core.errors import Closed, ColobusError, Deadline, RoleFailed
from colobus.core.timing import PIECE_SECONDS, Condition, NotYet, PatientCall, wait_for
from colobus.core.types import Call, Remote, Request, Wait
from colobus.runtime.api import Done, RoleState
from colobus.runtime.graph import RoleGraph
from colobus.runtime.system import keep_freed_memory, versions
from colobus.runtime.threads import Threads

LOOK_SECONDS = 0.05
"""Seconds between two looks whether a command has ended."""

END_SECONDS = 1.0
"""How long the threads of an earlier incarnation have to end. One that waits for a lost process
never does."""

BEGIN_SECONDS = 300.0
"""Seconds that a call waits for the roles of its incarnation: as many as their start may take."""


class About(NamedTuple):
    """Where a process lives, and what is installed there."""

    host: str
    process: int
    versions: dict[str, str]  # of Python and packages
    node: str = ""  # how the cluster names the host


class Heartbeat(NamedTuple):
    """How the roles of a process are."""

    incarnation: int
    roles: tuple[RoleState, ...]
    failure: ColobusError | None  # what ends the run
    lines: tuple[str, ...]  # for the user, since the heartbeat before
    events: tuple[dict[str, Any], ...] = ()  # likewise for a page or a program


class RoleHost:
    """Holds and runs roles in one process. Methods may be called from several threads at once.

    Args:
        dial: from what stands for another process (see `begin`) to a function that calls it.
    """

    def __init__(self, dial: Callable[[Any], Call]) -> None:
        keep_freed_memory()
        torch.set_num_threads(1)
        self._dial = dial
        self._changed = Condition()
        self._asked = self._incarnation = -1
        self._threads: Threads | None = None
        self._elsewhere: dict[str, Call] = {}  # calls to each role of another process
        self._lines: list[str] = []
        self._events: list[dict[str, Any]] = []

    def about(self) -> About:
        """Return where this process is."""
        return About(socket.gethostname(), os.getpid(), versions())

    def begin(
        self,
        incarnation: int,
        make_graph: Callable[[], RoleGraph],
        own: Sequence[str],
        elsewhere: Mapping[str, Any],
        deadline: float,
    ) -> None:
        """End earlier roles, build those of this process and start their threads.

        Args:
            incarnation: of the run; calls from an earlier one are refused from now on.
            make_graph: makes the graph of the whole run.
            own: names of the roles that live here.
            elsewhere: for each role of another process by name, what `dial` takes.
            deadline: see `colobus.runtime.threads.Threads`.
        """
        with self._changed:
            if incarnation <= self._asked:  # a newer incarnation has begun meanwhile
                return
            before, self._asked, self._threads = self._threads, incarnation, None
            self._elsewhere = {name: self._dial(there) for name, there in elsewhere.items()}
        if before:
            before.stop(END_SECONDS)

        def call_there(request: Request) -> Wait:
            return self._elsewhere[request.role](request)  # in the process that has it now

        roles = make_graph().build(set(own), lambda name: Remote(call_there, incarnation, name))
        with self._changed:
            if incarnation == self._asked:
                self._incarnation = incarnation
                self._threads = Threads(roles, deadline, self._lines.append, self._events.append)
                self._threads.start()
            self._changed.notify_all()

    def redial(self, incarnation: int, elsewhere: Mapping[str, Any]) -> None:
        """Call some roles in other processes from now on, because theirs was replaced.

        Args:
            incarnation: of the run; of another incarnation nothing is taken.
            elsewhere: as for `begin`.
        """
        with self._changed:
            if incarnation == self._asked:
                self._elsewhere |= {name: self._dial(there) for name, there in elsewhere.items()}

    def call(self, request: Request) -> Any:
        """Call a method of a role for another process.

        Raises:
            Closed: if the caller is of another incarnation.
            RoleFailed: if the role raised an unexpected error; names it and has its traceback.
        """
        incarnation, role, method, args, kwargs = request
        with self._changed:
            # the first calls of a new incarnation may come before its roles are there
            wait_for(self._changed, lambda: self._incarnation >= incarnation, BEGIN_SECONDS)
            threads = self._threads
            if incarnation != self._incarnation or threads is None:
                raise Closed
        try:
            return getattr(threads.roles[role], method)(*args, **kwargs)
        except (Closed, Deadline, NotYet, ColobusError, OSError):
            raise
        except Exception as error:
            failure = RoleFailed(f"{role} failed in {method}: {type(error).__name__}: {error}")
            failure.details = traceback.format_exc()
            raise failure from None

    async def answer(self, request: Request, threads: ThreadPoolExecutor) -> Any:
        """Call a method of a role as `call`, on one of some threads, but none while it waits."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        call = PatientCall(lambda: loop.call_soon_threadsafe(changed.set))
        while True:
            changed.clear()
            try:
                return await loop.run_in_executor(threads, call, self.call, request)
            except NotYet:
                while not changed.is_set() and (left := call.left()):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), min(left, PIECE_SECONDS))

    def heartbeat(self) -> Heartbeat:
        """Return how the roles are. Never waits."""
        threads, lines, events = self._threads, tuple(self._lines), tuple(self._events)
        del self._lines[: len(lines)], self._events[: len(events)]
        states, failure = (threads.states(), threads.failure) if threads else ((), None)
        return Heartbeat(self._incarnation, states, failure, lines, events)

    def stop(self, patience: float) -> list[str]:
        """End the threads, not the roles; return the names of those that did not end in time."""
        return self._threads.stop(patience) if self._threads else []


class Errander:
    """Runs commands of Colobus in a process of a cluster, one at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def run(self, words: Sequence[str], files: Mapping[str, bytes]) -> Done:
        """Run ``colobus WORDS`` in a temporary folder with these files; return what it has made."""
        with TemporaryDirectory(prefix="colobus-errand-") as name:
            folder, made = Path(name), dict[str, bytes]()
            for file, data in files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(data)
            words = [*words, "--parent", str(os.getpid())]  # it ends if this process does
            self._child = child = subprocess.Popen(
                [sys.executable, "-P", "-m", "colobus.cli.main", *words],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            out, err = child.communicate()
            for path in folder.rglob("*"):
                if path.is_file() and (file := path.relative_to(folder).as_posix()) not in files:
                    made[file] = path.read_bytes()
        self._child = None
        return Done(child.returncode, out, err, made)

    def stop(self) -> None:
        """End the command, if there is one, and wait until its folder is gone."""
        if self._child is not None:
            self._child.terminate()
        while self._child is not None:
            time.sleep(LOOK_SECONDS)
