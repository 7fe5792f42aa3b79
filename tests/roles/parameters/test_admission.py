"""Which gradients count, as tables: the rules alone, and a server that keeps them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colobus.core.types import Gradient, Version
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.parameters.server import REPEATED, Admission, ParameterServer
from helpers.schedules import SIZE, bits
from helpers.servers import FIRST, server_of

NOW = 5
SGD = OptimizerSettings(optimizer="sgd")


@pytest.mark.parametrize(
    ("rule", "counting"),
    [
        (Admission(1), [5]),
        (Admission(3), [5]),
        (Admission(1, 0), [5]),
        (Admission(1, 1), [4, 5]),
        (Admission(1, 3), [2, 3, 4, 5]),
        (Admission(1, 100), [0, 1, 2, 3, 4, 5]),
    ],
)
def test_which_ages_count(rule: Admission, counting: list[int]) -> None:
    """Of gradients computed from versions 0 to 7 when the server is at 5."""
    reasons = [rule.refusal(Version(2, n), Version(2, NOW)) for n in range(8)]
    assert [n for n, reason in enumerate(reasons) if not reason] == counting


def test_a_refusal_says_why() -> None:
    assert Admission(2).refusal(Version(0, 3), Version(0, 5)) == "2 steps old, at most 0 count"
    late = Admission(1, 4).refusal(Version(0, 0), Version(0, 5))
    assert late == "5 steps old, at most 4 count"


def make_server(admission: Admission, version: Version = FIRST) -> ParameterServer:
    server: ParameterServer = server_of(torch.linspace(-1, 1, SIZE), admission, version)
    return server


def gradient(learner: int, version: Version, samples: int = 8, rate: float = 0.1) -> Gradient:
    random = torch.Generator().manual_seed(100 * learner + version.number)
    values = torch.randn(SIZE, generator=random)
    return Gradient(learner, version, 0, 1, samples, rate, values)


SYNCHRONOUS = [  # learner, version, does it count, version afterwards
    (0, 0, True, 0),
    (1, 0, True, 1),  # two of three make the step
    (2, 0, False, 1),  # the backup came too late
    (2, 1, True, 1),
    (2, 1, False, 1),  # again
    (0, 2, False, 1),  # from nowhere
    (1, 0, False, 1),  # a late repetition
    (0, 1, True, 2),
    (1, 1, False, 2),
]
ASYNCHRONOUS = [  # at most 2 steps old
    (0, 0, True, 1),
    (1, 0, True, 2),
    (2, 0, True, 3),
    (0, 0, False, 3),  # a repetition
    (3, 0, False, 3),  # three steps old
    (3, 1, True, 4),
    (3, 1, False, 4),
    (0, 4, True, 5),
    (1, 6, False, 5),  # from nowhere
    (1, 3, True, 6),
]


@pytest.mark.parametrize(
    ("rule", "table"),
    [(Admission(2), SYNCHRONOUS), (Admission(1, 2), ASYNCHRONOUS)],
    ids=["quorum", "async"],
)
def test_what_does_not_count_changes_nothing_bit_for_bit(rule: Admission, table: list[Any]) -> None:
    server, clean = make_server(rule), make_server(rule)
    for learner, number, counts, after in table:
        sent = gradient(learner, Version(0, number))
        before = bits(server)
        answer = server.push(sent)
        assert (answer.counted, answer.version) == (counts, Version(0, after)), (learner, number)
        if counts:
            assert clean.push(sent) == answer
            assert answer.reason == ""
        else:
            assert bits(server) == before
            assert answer.reason
    assert bits(server) == bits(clean)  # as if the others had never come


def test_a_late_gradient_sent_again_is_dropped_again() -> None:
    """It never counted, so it is not "already there"."""
    server = make_server(Admission(1))
    server.push(gradient(0, Version(0, 0)))
    late = gradient(1, Version(0, 0))
    reasons = [server.push(late).reason for _ in range(2)]
    assert reasons[0] == reasons[1] != REPEATED


@pytest.mark.slow
def test_a_step_is_against_the_mean_of_all_samples() -> None:
    """As if one learner had had them all: 30 samples weigh three times as much as 10."""
    server = server_of(torch.zeros(SIZE), Admission(2), optimizer=SGD)
    one, two = gradient(0, Version(0, 0), 10, rate=0.1), gradient(1, Version(0, 0), 30, rate=0.3)
    server.push(two)
    server.push(one)
    want = -0.2 * (0.25 * one.values + 0.75 * two.values)  # the mean of the learning rates, too
    torch.testing.assert_close(server.pull().values, want, rtol=1e-6, atol=1e-7)


def test_learners_without_any_sample_that_counts_move_nothing() -> None:
    server = server_of(torch.ones(SIZE), Admission(2), optimizer=SGD)
    for learner in range(2):
        server.push(gradient(learner, Version(0, 0), samples=0))
    assert server.pull().version == Version(0, 1)
    assert torch.equal(server.pull().values, torch.ones(SIZE))


def test_a_gradient_that_waits_is_a_copy() -> None:
    """Its sender goes on to compute the next one in the same memory."""
    server, clean = make_server(Admission(2)), make_server(Admission(2))
    first = gradient(0, Version(0, 0))
    clean.push(first._replace(values=first.values.clone()))
    server.push(first)
    first.values.fill_(7.0)
    for each in (server, clean):
        each.push(gradient(1, Version(0, 0)))
    assert bits(server) == bits(clean)
