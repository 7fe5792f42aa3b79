"""Ctrl-C and SIGTERM: the run is saved first, whatever is pressed meanwhile."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class Interrupts:
    """Catches SIGINT and SIGTERM while it is entered (main thread only).

    While ``gentle``, a signal is only remembered, and `raise_if_any` turns it into a
    KeyboardInterrupt where the caller can take one: a second Ctrl-C during the last checkpoint
    changes nothing. Otherwise a signal raises KeyboardInterrupt at once. Only the first one counts;
    once there was one, later ones are ignored until the process ends.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.gentle = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.signal else handler)

    @property
    def exit_code(self) -> int:
        """What a process stopped by this signal returns: 130 or 143."""
        return 128 + (self.signal or signal.SIGINT)

    @property
    def name(self) -> str:
        """The signal in words."""
        return "SIGTERM" if self.signal == signal.SIGTERM else "Ctrl-C"

    def raise_if_any(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self.signal:
            raise KeyboardInterrupt

    def _catch(self, number: int, _: FrameType | None) -> None:
        if self.signal:  # the process is on its way out already
            return
        self.signal = number
        if not self.gentle:
            raise KeyboardInterrupt
