"""Threads: one per active role, in this process. The emulator and torch release the GIL."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from gelada.errors import Closed, Deadline, GeladaError, RoleFailed, Stalled
from gelada.place.plan import Active, Passive, Plan

RESTARTS = 5
"""How often one role may be restarted before the run gives up."""

SLOW_START = 5
"""Times the deadline that a role gets for its first step: loading and first kernels are slow."""


class Threads:
    """Runs a plan's active roles, each on a thread of its own with one torch thread.

    A role that raises is restarted if it can be (`restart`), and otherwise ends the run. A role
    that stays in one piece of work for longer than ``deadline`` seconds (`SLOW_START` times that
    before its first finished step) is named by `check`.
    """

    def __init__(
        self, plan: Plan, deadline: float = 120.0, log: Callable[[str], None] = print
    ) -> None:
        self.roles = plan.build()
        self.active: list[Active] = [self.roles[n.name] for n in plan.nodes if n.active]
        self._deadline = deadline
        self._log = log
        self._stopping = threading.Event()
        self._woken = threading.Condition()
        self._failure: GeladaError | None = None
        self._ended = 0
        self._threads = [
            threading.Thread(target=self._run, args=(role,), name=role.name, daemon=True)
            for role in self.active
        ]

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until a role has finished or failed, at most so long; say whether one has."""
        with self._woken:
            return self._woken.wait_for(self._is_over, seconds)

    def check(self) -> None:
        """Raise what ended the run, or Stalled if a role hangs."""
        if self._failure:
            raise self._failure
        now = time.monotonic()
        for role in self.active:
            clock = role.clock
            if clock.waiting or self._stopping.is_set():
                continue
            stage, stuck = clock.stage, now - clock.since
            deadline = self._deadline * (1 if clock.steps else SLOW_START)
            if stuck > deadline:
                raise Stalled(
                    f"{role.name} has hung in {stage!r} for {stuck:.0f} s (deadline {deadline:g} s)"
                )

    def stop(self, patience: float = 30.0) -> list[str]:
        """Wake and end all threads; return the names of those that did not end in time."""
        self._stopping.set()
        for role in self.roles.values():
            if isinstance(role, Passive):
                role.close()
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _run(self, role: Active) -> None:
        torch.set_num_threads(1)  # holds for this thread only, so every thread says it itself
        restarts = 0
        try:
            while not (role.finished or self._stopping.is_set()):
                try:
                    role.step()
                except (Closed, Deadline, GeladaError):
                    raise
                except Exception as error:
                    restarts += 1
                    self._restart(role, error, restarts)
        except Closed:
            pass
        except (Deadline, GeladaError) as error:
            self._fail(
                error if isinstance(error, GeladaError) else Stalled(f"{role.name}: {error}")
            )
        with self._woken:
            self._ended += 1
            self._woken.notify_all()

    def _restart(self, role: Active, error: Exception, restarts: int) -> None:
        """Restart a role that raised, or raise RoleFailed."""
        what = f"{type(error).__name__}: {error}"
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rsplit('/', 1)[-1]}:{where.lineno}"
        restart: Any = getattr(role, "restart", None)
        if restart is None or restarts > RESTARTS or restart() is False:
            count = f" {restarts} times" if restarts > 1 else ""
            raise RoleFailed(f"{role.name} failed{count} at {place}: {what}") from error
        self._log(f"{role.name} raised at {place}: {what}; restarted ({restarts} of {RESTARTS})")

    def _fail(self, error: GeladaError) -> None:
        with self._woken:
            self._failure = self._failure or error
            self._woken.notify_all()

    def _is_over(self) -> bool:
        return self._ended > 0 or self._failure is not None
