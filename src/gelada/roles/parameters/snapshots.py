"""Published parameters, and waiting for them.

A parameter server publishes the versions of its slice here. A worker has one of its own too, its
*mirror*: the learner passes on what it pulled, so the worker's actors cost the servers nothing.
"""

from __future__ import annotations

import threading
from collections import deque

from gelada.core.errors import Closed, Deadline
from gelada.core.types import Params, Version

KEPT = 2
"""Snapshots kept: workers that met version v at one server can still get it at all others."""

ANY = Version(0, 0)
"""Older than everything that is published."""


class Snapshots:
    """The newest versions of one vector or slice; passive.

    Args:
        first: what is there at the beginning.
        kept: how many of the newest versions can still be pulled.
        patience: seconds that `pull` waits before it gives up (0: never wait).
    """

    def __init__(self, first: Params, kept: int = KEPT, patience: float = 600.0) -> None:
        self._snapshots: deque[Params] = deque([first], maxlen=kept)
        self._patience = patience
        self._changed = threading.Condition()
        self._closed = False

    @property
    def newest(self) -> Params:
        """What was published last."""
        return self._snapshots[-1]

    def publish(self, params: Params, only: bool = False) -> None:
        """Make parameters the newest and wake who waits; with ``only``, forget all others."""
        with self._changed:
            if only:
                self._snapshots.clear()
            self._snapshots.append(params)
            self._changed.notify_all()

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Return the newest snapshot, waiting until it is ``at_least`` that version.

        With ``exactly``, return that very version if it is still kept, else a newer one.

        Raises:
            Deadline: if none came within the patience.
            Closed: if the run stops.
        """
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._closed or self.newest.version >= at_least, self._patience
            )
            if self._closed:
                raise Closed
            if not there:
                raise Deadline(
                    f"no parameters of version {at_least.number} for {self._patience:g} s; "
                    f"the newest are {self.newest.version.number}"
                )
            if exactly:
                for params in self._snapshots:
                    if params.version == at_least:
                        return params
            return self.newest

    def close(self) -> None:
        """Wake everybody who waits; pulls raise `Closed` from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
