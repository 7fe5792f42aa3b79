"""What a server publishes, keeps and copies at which versions."""

from __future__ import annotations

import pytest
import torch

from gelada.core.errors import Deadline
from gelada.core.types import Gradient, Version
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.parameters.server import ParameterServer, Quorum, ServerSettings

SIZE = 64


def test_with_a_broadcast_interval_only_its_multiples_are_published() -> None:
    settings = ServerSettings(patience=0.0, broadcast_every=3, keep_every=2, target_every=4)
    values = torch.linspace(-1, 1, SIZE)
    first = Version(1, 4)
    server = ParameterServer(values, OptimizerSettings(), Quorum(1), first, settings)
    published, kept, copied = [], [], []
    for number in range(4, 13):
        slope = torch.full((SIZE,), 1.0 + number)
        server.push(Gradient(0, Version(1, number), 0, 1, 32, 0.1, slope))
        params, _ = server.state()
        assert params.version == Version(1, number + 1)  # what is saved is always the newest
        assert torch.equal(params.values, values)
        published.append(server.pull().version.number)
        keeping = server.kept()
        kept.append(keeping[0].version.number if keeping else None)
        copied.append(server.pull_target().version.number)
    assert published == [4, 6, 6, 6, 9, 9, 9, 12, 12]
    assert kept == [None, 6, 6, 8, 8, 10, 10, 12, 12]
    assert copied == [4, 4, 4, 8, 8, 8, 8, 12, 12]
    with pytest.raises(Deadline):
        server.pull(Version(1, 13))
