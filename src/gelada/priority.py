"""Who goes first when more threads are busy than there are cores."""

from __future__ import annotations

import os
import sys
import threading

ACTORS = 10
"""By how much actors and their emulators are nicer than learners. Everybody waits for the next
version in the end, so a learner that has work must never wait for a core (docs/speed.md)."""


def be_nicer(by: int) -> None:
    """Let other threads go before this one, and before those that it starts from now on.

    Only Linux has threads with priorities of their own; elsewhere nothing happens.
    """
    if by and sys.platform == "linux":
        me = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, me)
        os.setpriority(os.PRIO_PROCESS, me, min(now + by, 19))
