"""The runtime of one process, `Threads`: emulator and torch release the GIL."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from colobus.core.errors import (
    Closed,
    ColobusError,
    Deadline,
    GameFailed,
    Lost,
    RoleFailed,
    Stalled,
    place_of,
)
from colobus.core.timing import Condition, Gaps, now
from colobus.runtime.api import Active, Passive, RoleState, nothing
from colobus.runtime.devices import CPU, own_stream
from colobus.runtime.system import be_nicer

RESTARTS = 5
"""How often one role may be restarted in a row before the run gives up."""

PAUSES = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Seconds before each restart in a row: what is wrong may pass."""

SOUND_SECONDS = 600.0
"""After so long without an error a restart is the first in a row again."""

SLOW_START = 5
"""Multiple of the deadline for the first step of a role: loading and first kernels are slow."""


@dataclass(eq=False)
class Threads:
    """Runs roles on threads of this process (a `colobus.runtime.api.Runtime`).

    Each active role has a thread of its own, with one torch thread or its ``threads``.
    """

    roles: Mapping[str, Any]  # by name, built
    deadline: float = 120.0
    """Seconds after which a role that is stuck in one piece of work counts as hung; `SLOW_START`
    times that before its first finished step."""
    log: Callable[[str], None] = print  # takes lines for the user
    events: Callable[[dict[str, Any]], None] | None = None
    """Takes what a page or a program may want to know: a role that was restarted."""

    away = 0
    """Learners whose process is lost."""

    def __post_init__(self) -> None:
        self.active: list[Active] = [one for one in self.roles.values() if hasattr(one, "step")]
        self._gaps = Gaps()
        self._ended: set[str] = set()  # names of roles whose threads have ended
        self._stopping = threading.Event()
        self._woken = Condition()
        self.failure: ColobusError | None = None  # what ended the run
        self._threads = [
            threading.Thread(target=self._run, args=(role,), name=role.name, daemon=True)
            for role in self.active
        ]

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start all threads; they are there at once."""
        for thread in self._threads:
            thread.start()

    def has_begun(self, role: str) -> bool:
        """Return whether there is such a role."""
        return role in self.roles

    def states(self) -> tuple[RoleState, ...]:
        """Return what every active role does now."""
        self._gaps.look()
        moment, states = now(), []
        for role in self.active:
            clock, name = role.clock, role.name
            since = clock.since
            states.append(
                RoleState(
                    name,
                    clock.stage,
                    clock.waiting,
                    moment - since - self._gaps.since(since),
                    clock.steps,
                    dict(clock.seconds),
                    role.finished,
                    name in self._ended,
                )
            )
        return tuple(states)

    def wait(self, seconds: float) -> bool:
        """Wait until a role has finished or failed, at most so long; return whether one has."""
        with self._woken:
            return self._woken.wait_for(lambda: bool(self._ended or self.failure), seconds)

    def check(self) -> None:
        """Raise what ended the run, or Stalled if a role hangs."""
        if self.failure:
            raise self.failure
        for state in self.states():
            if not self._stopping.is_set() and (line := hung(state, self.deadline)):
                raise Stalled(line)

    def stop(self, patience: float = 30.0) -> list[str]:
        """Close the passive roles and end all threads; return the names of those still running."""
        self._tell_to_end()
        until = now() + patience
        for thread in self._threads:
            thread.join(max(until - now(), 0.0))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def _tell_to_end(self) -> None:
        """Close the passive roles, and have the active ones end after their step."""
        self._stopping.set()
        for role in self.roles.values():
            if isinstance(role, Passive):
                role.close()

    def _run(self, role: Active) -> None:
        torch.get_num_threads()  # else what another thread set last would hold from its first work
        torch.set_num_threads(threads_of(role))  # holds for the calling thread only
        be_nicer(getattr(role, "niceness", 0))
        restarts, raised = 0, 0.0
        try:
            with own_stream(getattr(role, "device", CPU)):
                while not (role.finished or self._stopping.is_set()):
                    try:
                        self._step(role)
                    except (Closed, Lost, Deadline):
                        raise
                    except (Exception, SystemExit, KeyboardInterrupt) as error:
                        if isinstance(error, ColobusError) and not isinstance(error, GameFailed):
                            raise
                        moment = now()
                        restarts = 1 if moment - raised > SOUND_SECONDS else restarts + 1
                        raised = moment
                        self._restart(role, error, restarts)
        except (Closed, Lost):
            pass
        except Deadline as error:
            self._fail(Stalled(f"{role.name}: {error}"))
        except ColobusError as error:
            self._fail(error)
        except Exception as error:  # of the device: its stream cannot be made, or waited for
            self._fail(failed(role, error))
        if leave := getattr(role, "leave", None):
            leave()
        with self._woken:
            self._ended.add(role.name)
            self._woken.notify_all()

    def _step(self, role: Active) -> None:
        role.step()

    def _restart(self, role: Active, error: BaseException, restarts: int) -> None:
        """Restart a role that raised; raise RoleFailed if it cannot be."""
        game = str(error) if isinstance(error, GameFailed) else ""  # which game, where and what
        error = (game and error.__cause__) or error
        what = f"{type(error).__name__}: {error}"
        place = place_of(error)
        said = str(error)  # PyTorch's, of the CPU and of a GPU
        if isinstance(error, MemoryError) or "allocate memory" in said or "out of memory" in said:
            raise RoleFailed(
                f"{role.name} needs more memory than there is, at {place}: {what}; use fewer "
                "--actors or --games, or a lower --capacity"
            ) from error
        restart: Any = getattr(role, "restart", None)
        if restart is None or restarts > RESTARTS or restart() is False:
            raise failed(role, error, restarts) from error
        with role.clock("wait after an error"):
            self._stopping.wait(PAUSES[restarts - 1])
        happened = f": {game}" if game else f" raised at {place}: {what}"
        self.log(f"{role.name}{happened}; restarted ({restarts} of {RESTARTS})")
        if self.events:
            self.events({"event": "restarted", "role": role.name, "place": place, "why": what})

    def _fail(self, error: ColobusError) -> None:
        with self._woken:
            self.failure = self.failure or error
            self._woken.notify_all()


def failed(role: Active, error: BaseException, times: int = 1) -> RoleFailed:
    """Return what ends a run whose role has raised an error so many times in a row."""
    count = f" {times} times" if times > 1 else ""
    what = f"{type(error).__name__}: {error}"
    failure = RoleFailed(f"{role.name} failed{count} at {place_of(error)}: {what}")
    failure.details = "".join(traceback.format_exception(error))
    return failure


def threads_of(role: Active) -> int:
    """Return how many torch threads a role computes with."""
    return int(getattr(role, "threads", 1))


def hung(state: RoleState, deadline: float) -> str:
    """Return a line about a role that is stuck in its work beyond the deadline, else ""."""
    deadline *= 1 if state.steps else SLOW_START
    if state.waiting or state.stuck <= deadline:
        return ""
    what = f"{state.name} has hung in {state.stage!r}"
    return f"{what} for {state.stuck:.0f} s (deadline {deadline:g} s)"
