"""Pulling one version of all slices from several parameter servers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gelada.roles.parameter_server import ANY, ParameterServer
from gelada.types import Version


def pull_whole(
    servers: Sequence[ParameterServer], at_least: Version = ANY, exactly: bool = False
) -> tuple[Version, torch.Tensor]:
    """Return one version and its whole vector, never slices of different versions.

    Each server closes its rounds on its own, so "the newest" of each could mix versions. The
    highest version met is asked of all, exactly, and those behind are waited for; servers keep
    their two newest snapshots, so it is still there.
    """
    if len(servers) == 1:
        only = servers[0].pull(at_least, exactly)
        return only.version, only.values
    slices = [server.pull(at_least, exactly) for server in servers]
    while True:
        newest = max(params.version for params in slices)
        if all(params.version == newest for params in slices):
            return newest, torch.cat([params.values for params in slices])
        slices = [
            params if params.version == newest else server.pull(newest, exactly=True)
            for server, params in zip(servers, slices, strict=True)
        ]
