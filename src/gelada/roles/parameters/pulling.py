"""Pulling all slices from several parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from gelada.core.types import Params, Version
from gelada.roles.parameters.snapshots import ANY


class Source(Protocol):
    """What serves parameters: a parameter server, or a worker's mirror."""

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Return the newest snapshot, waiting until it is ``at_least`` that version."""


class Pulled(NamedTuple):
    """A whole vector float32[P], put together from its slices."""

    version: Version  # of the newest slice
    vector: torch.Tensor
    versions: tuple[Version, ...]  # of each slice
    moved: int  # bytes that were pulled for it


def pull_whole(servers: Sequence[Source], at_least: Version = ANY, exactly: bool = False) -> Pulled:
    """Return one version of all slices, never slices of different versions.

    Each server closes its rounds on its own, so "the newest" of each could mix versions. The
    highest version met is asked of all, exactly, and those behind are waited for; servers keep
    their two newest snapshots, so it is still there.
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
    """Return the newest version that all servers have had: that of the one furthest behind.

    A learner that begins again asks for this one. If it died between two pushes, the server that
    is behind may be waiting for the very gradient that was never sent; all others have stepped and
    still keep the version before, so it can be computed once more.
    """
    slices = [server.pull() for server in servers]
    moved = _size(slices)
    while len({params.version for params in slices}) > 1:
        oldest = min(params.version for params in slices)
        for i, params in enumerate(slices):
            if params.version != oldest:
                slices[i] = servers[i].pull(oldest, exactly=True)
                moved += _size([slices[i]])
        if max(params.version for params in slices) != oldest:  # meanwhile nobody has it any more
            slices = [server.pull() for server in servers]
            moved += _size(slices)
    return _join(slices, moved)


def pull_newest(servers: Sequence[Source]) -> Pulled:
    """Return each server's newest slice: in the asynchronous mode versions may differ."""
    slices = [server.pull() for server in servers]
    return _join(slices, _size(slices))


def _join(slices: Sequence[Params], moved: int) -> Pulled:
    versions = tuple(params.version for params in slices)
    vectors = [params.values for params in slices]
    vector = vectors[0] if len(vectors) == 1 else torch.cat(vectors)
    return Pulled(max(versions), vector, versions, moved)


def _size(slices: Sequence[Params]) -> int:
    return sum(params.values.numel() * params.values.element_size() for params in slices)
