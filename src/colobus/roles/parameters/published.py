"""Published parameters, for which roles can wait.

A parameter server publishes the versions of its slice here. A worker has a cache of this kind: its
learner publishes there the parameters that it pulled from the servers, so the worker's actors need
no pulls from the servers.

Pulling all slices from several parameter servers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch

from colobus.core.timing import Closable
from colobus.core.types import Params, Version, ask

KEPT = 2
"""Versions kept. With two, servers that are a step apart still have a version in common."""

ANY = Version(0, 0)
"""A version that no published one is older than, so a pull does not wait."""


class PublishedParameters(Closable):
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
        super().__init__(patience)

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
            self.wait_until(
                lambda: self.newest.version >= at_least,
                f"parameters of version {at_least.number}",
                lambda: f"; the newest are {self.newest.version.number}",
            )
            if exactly:
                for params in self._versions:
                    if params.version == at_least:
                        return params
            return self.newest


class Source(Protocol):
    """A source of parameters: a parameter server, or a worker's cache."""

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Wait for a version (see `PublishedParameters.pull`) and return the parameters."""


class Pulled(NamedTuple):
    """The slices that were pulled, joined in their order to a vector float32[P]."""

    version: Version  # of the newest slice
    vector: torch.Tensor
    versions: tuple[Version, ...]  # of each slice
    moved: int  # bytes that were pulled for it


def pull_consistent(
    servers: Sequence[Source],
    at_least: Version = ANY,
    exactly: bool = False,
    slices: list[Params] | None = None,
) -> Pulled:
    """Wait until all servers have a version of at least ``at_least``; return all slices of it.

    ``slices`` are what the servers have answered already, if they have.

    Servers step one after the other, so their newest slices may have different versions. The
    function asks every server for the highest of them and waits for the servers behind. Servers
    keep their two newest versions, so a server that has stepped since still has it.
    """
    slices = slices or _pull_all(servers, at_least, exactly)
    moved = _size(slices)
    while True:
        newest = max(params.version for params in slices)
        behind = [i for i, params in enumerate(slices) if params.version != newest]
        if not behind:
            return _join(slices, moved)
        found = _pull_all([servers[i] for i in behind], newest, True)
        moved += _size(found)
        for i, params in zip(behind, found, strict=True):
            slices[i] = params


def pull_common(servers: Sequence[Source]) -> Pulled:
    """Return all slices of the newest version that every server has.

    A learner pulls this version when it starts. If it died between pushes to two servers, the
    second server may still wait for its gradient. The first one has stepped, but keeps the version
    before, so the learner can compute that gradient again.
    """
    slices = _pull_all(servers)
    moved = _size(slices)
    while len({params.version for params in slices}) > 1:
        oldest = min(params.version for params in slices)
        for i, params in enumerate(slices):
            if params.version != oldest:
                slices[i] = servers[i].pull(oldest, exactly=True)
                moved += _size([slices[i]])
        if max(params.version for params in slices) != oldest:  # a server no longer keeps it
            slices = _pull_all(servers)
            moved += _size(slices)
    return _join(slices, moved)


def pull_newest(servers: Sequence[Source], slices: list[Params] | None = None) -> Pulled:
    """Return the newest slice of each server. Their versions may differ (asynchronous runs)."""
    slices = slices or _pull_all(servers)
    return _join(slices, _size(slices))


def _pull_all(servers: Sequence[Source], *args: Any) -> list[Params]:
    """Pull from all servers at once; from those of this process one after the other."""
    waiting = [ask(server, "pull", *args) for server in servers]
    return [wait() for wait in waiting]


def _join(slices: Sequence[Params], moved: int) -> Pulled:
    versions = tuple(params.version for params in slices)
    vectors = [params.values for params in slices]
    vector = vectors[0] if len(vectors) == 1 else torch.cat(vectors)
    return Pulled(max(versions), vector, versions, moved)


def _size(slices: Sequence[Params]) -> int:
    return sum(params.values.numel() * params.values.element_size() for params in slices)
