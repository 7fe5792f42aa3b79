"""Ctrl-C, SIGTERM and the like: the run is saved first, whatever is pressed meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

NAMES: dict[signal.Signals, str] = {
    getattr(signal, name): "Ctrl-C" if name == "SIGINT" else name
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1")
    if hasattr(signal, name)  # Windows has only the first two
}
"""The signals that end a command in good order, in words. A closed terminal sends SIGHUP, a job of
Slurm whose time is nearly over SIGUSR1."""

GIVE_UP_SECONDS = 10.0
"""A signal this long after the first one ends the process: the disk may hang."""

SAY_SECONDS = 3.0
"""Between two lines that say that the end is under way."""


class Interrupted(KeyboardInterrupt):
    """A signal ended the command, which then returns ``exit_code``."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class Interrupts:
    """Catches `NAMES` while it is entered (main thread only).

    While ``gentle``, a signal is only remembered, and `raise_if_any` turns it into an `Interrupted`
    where the caller can take one: a second Ctrl-C during the last checkpoint changes nothing.
    Otherwise a signal raises `Interrupted` at once; while a module is being imported, where an
    exception may be lost or end as another one, it ends the process. Only the first one counts.
    Later ones are ignored for `GIVE_UP_SECONDS`; after that one ends the process at once. A SIGHUP
    that is ignored already, as under ``nohup``, stays so.

    Args:
        now: returns the time in seconds.
        end: ends the process with an exit code.
        say: takes a line every few seconds from a signal until the end (None: nothing is said).
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        end: Callable[[int], object] = os._exit,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.signal = 0
        self.gentle = False
        self._now, self._end, self._say = now, end, say
        self._first = 0.0  # when the first one came
        self._over = threading.Event()

    def __enter__(self) -> Interrupts:
        self._before = {
            number: signal.signal(number, self._catch)
            for number, name in NAMES.items()
            if name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for number, handler in self._before.items():  # after a signal the process is about to end
            signal.signal(number, signal.SIG_IGN if self.signal else handler)

    @property
    def exit_code(self) -> int:
        """What a process stopped by this signal returns, such as 130 or 143."""
        return 128 + (self.signal or signal.SIGINT)

    @property
    def name(self) -> str:
        """The signal in words."""
        return NAMES[signal.Signals(self.signal or signal.SIGINT)]

    def raise_if_any(self) -> None:
        """Raise `Interrupted` if a signal has come."""
        if self.signal:
            raise Interrupted(self.exit_code)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.signal:  # the process is on its way out already
            if self._now() - self._first >= GIVE_UP_SECONDS:
                self._end(self.exit_code)
            return
        self.signal, self._first = number, self._now()
        if self._say:
            threading.Thread(target=self._remind, name="says that it ends", daemon=True).start()
        if not self.gentle and _is_importing(frame):
            os.write(2, b"colobus: stopped\n")
            self._end(self.exit_code)
        if not self.gentle:
            raise Interrupted(self.exit_code)

    def _remind(self) -> None:
        """Say every few seconds that the signal was heard."""
        assert self._say is not None
        while not self._over.wait(SAY_SECONDS):
            seconds = self._now() - self._first
            again = "; one more ends it at once" if seconds >= GIVE_UP_SECONDS else ""
            self._say(f"{self.name} was heard {seconds:.0f} s ago: the run is ending{again}")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and "importlib._bootstrap" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None
