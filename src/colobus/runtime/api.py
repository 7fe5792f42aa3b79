"""What runs the roles of a run, and what it asks of a role.

Three classes satisfy `Runtime`: `colobus.runtime.threads.Threads` runs all roles in this process,
each active one on a thread of its own. `colobus.runtime.ray.runtime.Ray` runs them in processes of
a Ray cluster. `colobus.runtime.virtual.Virtual` runs them in simulated time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from colobus.core.timing import Clock


class Active(Protocol):
    """A role that calls others; the runtime calls its ``step`` again and again.

    An active role may have five more members. ``niceness`` lowers the priority of its thread.
    ``threads`` is the number of torch threads that it computes with, if that is not 1.
    ``device`` is the `torch.device` on which it computes, if that is not the CPU.
    ``restart()`` is called after ``step`` raised an error that is not one of
    `colobus.core.errors`; it makes the role ready for the next step, or returns False if it
    cannot. A role without it ends the run with its first such error.
    ``leave()`` is called when its thread ends, so that no other role waits for it.
    """

    name: str
    clock: Clock
    """Where the time goes, and how many steps have finished."""
    finished: bool
    """Whether the role has nothing left to do. The first role that finishes ends the run."""

    def step(self) -> None:
        """Do one piece of work. Waits only for other roles, in stages that the clock names so."""


class RoleState(NamedTuple):
    """What an active role does now."""

    name: str
    stage: str
    waiting: bool  # for another role
    stuck: float  # seconds in this stage, without those in which the process was stopped
    steps: int  # finished calls of step()
    seconds: dict[str, float]  # by stage, since it began
    finished: bool
    ended: bool  # has no thread any more


@runtime_checkable
class Passive(Protocol):
    """A role that answers calls. It never calls an active one."""

    def close(self) -> None:
        """Stop answering: callers that wait in the role get `colobus.core.errors.Closed`."""


class Done(NamedTuple):
    """How a command went that another host did."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]  # that it has made, by their places in its folder


class Errand(Protocol):
    """Has commands done on another host, one at a time."""

    def __call__(self, words: Sequence[str], files: Mapping[str, bytes]) -> Done:
        """Run ``colobus WORDS`` there, in a folder with these files.

        Raises:
            Closed: if `close` was called meanwhile.
            Lost: if that host is gone; the next errand goes to another.
        """

    def close(self) -> None:
        """End it, with what it does."""


def nothing() -> None:
    """Do nothing."""


class Runtime(Protocol):
    """Runs roles until one finishes: ``start``, ``wait`` and ``check``, ``stop``, ``close``.

    What is restarted:

    * A role that raises is restarted in its place if it has a ``restart`` method that agrees, up
      to five times in a row: actors always, learners if they can begin their round again.
      Everything else that raises ends the run with `colobus.core.errors.RoleFailed`.
    * In processes, a lost or frozen process that only has actors, or a whole worker, begins again
      alone. When any other process is lost, all roles begin again from the newest checkpoint.
    * A `colobus.core.errors.ColobusError` that a role's ``step`` raises, such as `Diverged`, always
      ends the run; what is tried again is tried within the role.
    """

    @property
    def roles(self) -> Mapping[str, Any]:
        """All roles by name, or what stands for them in this process.

        Calls to a role elsewhere raise `colobus.core.errors.Lost` while its process is gone, and
        `Closed` if it belongs to an earlier start of the run.
        """

    @property
    def away(self) -> int:
        """Learners whose process is lost and has not come back yet; always 0 in one process."""

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start all active roles, and wait until their processes are there.

        Args:
            pause: called about twice a second meanwhile. What it raises ends the start.

        Raises:
            ColobusError: if a process does not come up, or has other versions installed.
        """

    def has_begun(self, role: str) -> bool:
        """Return whether a role is there and answers calls, before ``start`` has returned too."""

    def states(self) -> Sequence[RoleState]:
        """Return what the active roles did when they were last heard of. Never waits."""

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; return whether a role has finished or the run has failed.

        Lost processes are found and replaced while this waits.
        """

    def check(self) -> None:
        """Raise what ended the run, if anything did. Never waits.

        Raises:
            Stalled: if a role is stuck in its work beyond the deadline, or waited for another
                beyond the patience.
            RoleFailed: if a role raised and could not be restarted.
            ClusterLost: if the cluster itself is lost.
            ColobusError: if a role raised one.
        """

    def stop(self, patience: float = 30.0) -> list[str]:
        """Close the passive roles and end the active ones; ``roles`` still answer some questions.

        Args:
            patience: seconds to wait at most.

        Returns:
            The names of the active roles that did not end in time.
        """

    def close(self) -> None:
        """End all processes. Call it after ``stop``, also if ``start`` failed."""
