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


@pytest.mark.parametrize("parts", [1, 2])
def test_a_soft_target_moves_towards_the_parameters_at_each_of_its_versions(parts: int) -> None:
    """By hand: steps of 1 along a slope of 1, from 10; every second version mixes by a quarter."""
    settings = ServerSettings(patience=0.0, target_every=2, target_tau=0.25)
    sgd, slope = OptimizerSettings(optimizer="sgd"), torch.ones(SIZE)
    values, first = torch.full((SIZE,), 10.0), Version(0, 0)
    server = ParameterServer(values, sgd, Quorum(1), first, settings)
    found: list[tuple[int, float]] = []
    saved: dict[str, torch.Tensor] = {}
    for number in range(6):
        for piece in range(parts):
            gradient = Gradient(0, Version(0, number), piece, parts, 1, 1.0 / parts, slope)
            assert server.push(gradient).counted
        target = server.pull_target()
        found.append((target.version.number, target.values[0].item()))
        assert target.values.eq(target.values[0]).all()
        saved = saved or server.state()[1]  # of version 1, before the first mix
    after_2, after_4 = 0.75 * 10 + 0.25 * 8, 0.75 * 9.5 + 0.25 * 6
    after_6 = 0.75 * after_4 + 0.25 * 4
    assert found == [(0, 10.0), *[(2, after_2)] * 2, *[(4, after_4)] * 2, (6, after_6)]
    again = ParameterServer(
        torch.full((SIZE,), 9.0), sgd, Quorum(1), Version(0, 1), settings, saved
    )
    again.push(Gradient(0, Version(0, 1), 0, 1, 1, 1.0, slope))
    assert again.pull_target().values[0].item() == after_2  # a resumed run goes on exactly
