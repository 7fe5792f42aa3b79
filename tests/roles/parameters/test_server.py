"""Which gradients count, what is published, what targets are, and what waits for others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colobus.core.errors import Deadline
from colobus.core.types import Gradient, Version
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.parameters.server import REPEATED, TARGET, Admission
from helpers.schedules import SIZE, bits
from helpers.servers import ALONE, FIRST, server_of

SGD = OptimizerSettings(optimizer="sgd")


def make_server(admission: Admission = ALONE, version: Version = FIRST, **more: Any) -> Any:
    return server_of(torch.linspace(-1, 1, SIZE), admission, version, **more)


def gradient(
    version: Version = FIRST, learner: int = 0, part: int = 0, parts: int = 1, samples: int = 32
) -> Gradient:
    random = torch.Generator().manual_seed(1000 * learner + 10 * version.number + part)
    values = torch.randn(SIZE, generator=random)
    return Gradient(learner, version, part, parts, samples, 0.1, values)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (gradient(Version(1, 1), 1, 1, 3), "1 steps old, at most 0 count"),
        (gradient(Version(1, 3), 1, 1, 3), "1 steps old, at most 0 count"),  # from nowhere
        # from before a loss, and the same with a higher number
        (gradient(Version(0, 2), 1, 1, 3), "of incarnation 0, now 1"),
        (gradient(Version(0, 9), 1, 1, 3), "of incarnation 0, now 1"),
        (gradient(Version(2, 2), 1, 1, 3), "of incarnation 2, now 1"),
        (gradient(Version(1, 2), 0, 0, 3), REPEATED),
        (gradient(Version(1, 2), 1, 0, 3), "part 0, now at 1"),
        (gradient(Version(1, 2), 1, 2, 3), "part 2, now at 1"),
    ],
)
def test_what_does_not_count_changes_nothing_and_is_counted(wrong: Gradient, reason: str) -> None:
    server = make_server(version=Version(1, 2))
    assert server.push(gradient(Version(1, 2), part=0, parts=3)).counted
    before = bits(server)
    for _ in range(2):  # what never counted is not "already there" when it is sent again
        answer = server.push(wrong)
        assert answer[:2] == (Version(1, 2), False)
        assert reason in answer.reason
        assert bits(server) == before
    assert server.push(gradient(Version(1, 2), part=1, parts=3)).counted


def test_needing_fewer_steps_at_once_if_so_many_are_there() -> None:
    server, small = make_server(Admission(3)), make_server(Admission(2))
    for learner in (2, 0):
        server.push(gradient(learner=learner))
    assert server.pull().version == Version(0, 0)
    server.need(2)
    assert server.pull().version == Version(0, 1)
    for learner in (0, 2):
        small.push(gradient(learner=learner))
    assert bits(server) == bits(small)  # a step of these two, and of nothing else


def test_a_need_in_the_middle_of_a_round_steps_that_part_only() -> None:
    server = make_server(Admission(2))
    for learner in range(2):
        server.push(gradient(learner=learner, part=0, parts=2))
    server.push(gradient(learner=0, part=1, parts=2))
    assert server.pull().version == Version(0, 0)
    server.need(1)
    assert server.pull().version == Version(0, 1)
    assert server.state()[1]["count"].item() == 2
    server.need(1)  # again: nothing is waiting
    assert server.state()[1]["count"].item() == 2


def test_with_a_broadcast_interval_only_its_multiples_are_published() -> None:
    server = make_server(ALONE, Version(1, 4), broadcast_every=3, keep_every=2, target_every=4)
    published, kept, copied = [], [], []
    values = {4: server.values.clone()}
    for number in range(4, 13):
        slope = torch.full((SIZE,), 1.0 + number)
        server.push(Gradient(0, Version(1, number), 0, 1, 32, 0.1, slope))
        params, _ = server.state()
        assert params.version == Version(1, number + 1)  # what is saved is always the newest
        values[number + 1] = server.values.clone()
        keeping = server.kept(Version(1, 4))
        assert not (keeping and server.kept(keeping[0].version))  # it is not sent twice
        there = [params, server.pull(), server.pull_target(), *(keeping or [])[:1]]
        assert all(torch.equal(one.values, values[one.version.number]) for one in there)
        published.append(there[1].version.number)
        copied.append(there[2].version.number)
        kept.append(keeping[0].version.number if keeping else None)
        if keeping:
            assert torch.equal(keeping[1][TARGET], values[keeping[0].version.number // 4 * 4])
    assert published == [4, 6, 6, 6, 9, 9, 9, 12, 12]
    assert kept == [None, 6, 6, 8, 8, 10, 10, 12, 12]
    assert copied == [4, 4, 4, 8, 8, 8, 8, 12, 12]
    with pytest.raises(Deadline):
        server.pull(Version(1, 13))


@pytest.mark.parametrize("parts", [1, 2])
def test_a_soft_target_moves_towards_the_parameters_at_each_of_its_versions(parts: int) -> None:
    """By hand: steps of 1 along a slope of 1, from 10; every second version mixes by a quarter."""
    settings: dict[str, Any] = {"target_every": 2, "target_tau": 0.25}
    slope = torch.ones(SIZE)
    server = server_of(torch.full((SIZE,), 10.0), optimizer=SGD, **settings)
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
    values, version = torch.full((SIZE,), 9.0), Version(0, 1)
    again = server_of(values, version=version, optimizer=SGD, state=saved, **settings)
    again.push(Gradient(0, Version(0, 1), 0, 1, 1, 1.0, slope))
    assert again.pull_target().values[0].item() == after_2  # a resumed run goes on exactly


@pytest.mark.parametrize(
    ("rule", "counting"),
    [
        (Admission(1), [5]),
        (Admission(3), [5]),
        (Admission(1, 1), [4, 5]),
        (Admission(1, 3), [2, 3, 4, 5]),
        (Admission(1, 100), [0, 1, 2, 3, 4, 5]),
    ],
)
def test_which_ages_count(rule: Admission, counting: list[int]) -> None:
    """Of gradients computed from versions 0 to 7 when the server is at 5."""
    reasons = [rule.refusal(Version(2, n), Version(2, 5)) for n in range(8)]
    assert [n for n, reason in enumerate(reasons) if not reason] == counting


def test_learners_without_any_sample_that_counts_move_nothing() -> None:
    server = server_of(torch.ones(SIZE), Admission(2), optimizer=SGD)
    for learner in range(2):
        server.push(gradient(learner=learner, samples=0))
    assert server.pull().version == Version(0, 1)
    assert torch.equal(server.pull().values, torch.ones(SIZE))


def test_a_gradient_that_waits_is_a_copy() -> None:
    """Its sender goes on to compute the next one in the same memory."""
    server, clean = make_server(Admission(2)), make_server(Admission(2))
    first = gradient()
    clean.push(first._replace(values=first.values.clone()))
    server.push(first)
    first.values.fill_(7.0)
    for each in (server, clean):
        each.push(gradient(learner=1))
    assert bits(server) == bits(clean)
