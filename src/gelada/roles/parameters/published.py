"""Published parameters, for which roles can wait.

A parameter server publishes the versions of its slice here. A worker has a cache of this kind: its
learner publishes there the parameters that it pulled from the servers, so the worker's actors need
no pulls from the servers.
"""

from __future__ import annotations

import threading
from collections import deque

from gelada.core.errors import Closed, Deadline
from gelada.core.timing import wait_for
from gelada.core.types import Params, Version

KEPT = 2
"""Versions kept. With two, servers that are a step apart still have a version in common."""

ANY = Version(0, 0)
"""A version that no published one is older than, so a pull does not wait."""


class PublishedParameters:
    """The newest versions of one vector or slice. Other roles call its methods.

    Args:
        first: the initial parameters.
        kept: number of versions that can be pulled.
        patience: seconds after which `pull` raises `Deadline` (0: it does not wait).
        before: an older version, which can be pulled too.
    """

    def __init__(
        self,
        first: Params,
        kept: int = KEPT,
        patience: float = 600.0,
        before: Params | None = None,
    ) -> None:
        self._versions: deque[Params] = deque([before, first] if before else [first], maxlen=kept)
        self._patience = patience
        self._changed = threading.Condition()
        self._closed = False

    @property
    def newest(self) -> Params:
        """The parameters that were published last."""
        return self._versions[-1]

    def publish(self, params: Params) -> None:
        """Add the newest parameters, and wake all pulls that wait for them."""
        with self._changed:
            self._versions.append(params)
            self._changed.notify_all()

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Wait until the newest version is at least ``at_least``, and return its parameters.

        With ``exactly``, return the parameters of that very version if they are still kept,
        else the newest.

        Raises:
            Deadline: if it took longer than ``patience``.
            Closed: if the run stops.
        """
        with self._changed:
            there = wait_for(
                self._changed,
                lambda: self._closed or self.newest.version >= at_least,
                self._patience,
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
        """End all waiting. Pulls raise `Closed` from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
