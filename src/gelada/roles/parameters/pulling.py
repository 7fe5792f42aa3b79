"""Pulling all slices from several parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from gelada.core.types import Params, Version
from gelada.roles.parameters.published import ANY


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
    servers: Sequence[Source], at_least: Version = ANY, exactly: bool = False
) -> Pulled:
    """Wait until all servers have a version of at least ``at_least``; return all slices of it.

    Servers step one after the other, so their newest slices may have different versions. The
    function asks every server for the highest of them and waits for the servers behind. Servers
    keep their two newest versions, so a server that has stepped since still has it.
    """
    slices = [server.pull(at_least, exactly) for server in servers]
    moved = _size(slices)
    while True:
        newest = max(params.version for params in slices)
        behind = [i for i, params in enumerate(slices) if params.version != newest]
        if not behind:
            return _join(slices, moved)
        for i in behind:
            slices[i] = servers[i].pull(newest, exactly=True)
            moved += _size([slices[i]])


def pull_common(servers: Sequence[Source]) -> Pulled:
    """Return all slices of the newest version that every server has.

    A learner pulls this version when it starts. If it died between pushes to two servers, the
    second server may still wait for its gradient. The first one has stepped, but keeps the version
    before, so the learner can compute that gradient again.
    """
    slices = [server.pull() for server in servers]
    moved = _size(slices)
    while len({params.version for params in slices}) > 1:
        oldest = min(params.version for params in slices)
        for i, params in enumerate(slices):
            if params.version != oldest:
                slices[i] = servers[i].pull(oldest, exactly=True)
                moved += _size([slices[i]])
        if max(params.version for params in slices) != oldest:  # a server no longer keeps it
            slices = [server.pull() for server in servers]
            moved += _size(slices)
    return _join(slices, moved)


def pull_newest(servers: Sequence[Source]) -> Pulled:
    """Return the newest slice of each server. Their versions may differ (asynchronous runs)."""
    slices = [server.pull() for server in servers]
    return _join(slices, _size(slices))


def _join(slices: Sequence[Params], moved: int) -> Pulled:
    versions = tuple(params.version for params in slices)
    vectors = [params.values for params in slices]
    vector = vectors[0] if len(vectors) == 1 else torch.cat(vectors)
    return Pulled(max(versions), vector, versions, moved)


def _size(slices: Sequence[Params]) -> int:
    return sum(params.values.numel() * params.values.element_size() for params in slices)
