"""Published parameters, and waiting for them.

A parameter server publishes the versions of its slice here. A worker has a cache of this kind too:
its learner publishes there what it pulled from the servers, so the worker's actors cost the servers
nothing.
"""

from __future__ import annotations

import threading
from collections import deque

from gelada.core.errors import Closed, Deadline
from gelada.core.types import Params, Version

KEPT = 2
"""Versions kept. With two, a worker that got a version from one server still gets it from all."""

ANY = Version(0, 0)
"""Older than every version that is published."""


class PublishedParameters:
    """The newest versions of one vector or slice; passive.

    Args:
        first: the parameters at the beginning.
        kept: how many of the newest versions can be pulled.
        patience: seconds that `pull` waits before it gives up (0: never wait).
    """

    def __init__(self, first: Params, kept: int = KEPT, patience: float = 600.0) -> None:
        self._versions: deque[Params] = deque([first], maxlen=kept)
        self._patience = patience
        self._changed = threading.Condition()
        self._closed = False

    @property
    def newest(self) -> Params:
        """The parameters that were published last."""
        return self._versions[-1]

    def publish(self, params: Params) -> None:
        """Make parameters the newest, and wake everybody who waits for them."""
        with self._changed:
            self._versions.append(params)
            self._changed.notify_all()

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Return the newest parameters, waiting until they are ``at_least`` of that version.

        With ``exactly``, return that very version if it is still kept, else a newer one.

        Raises:
            Deadline: if they were not published within the patience.
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
                for params in self._versions:
                    if params.version == at_least:
                        return params
            return self.newest

    def close(self) -> None:
        """Wake everybody who waits; pulls raise `Closed` from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
