"""Rounds and versions of deterministic runs agree, whoever counts."""

from __future__ import annotations

import pytest

from gelada.roles.update_schedule import ONE_EACH, Sampled


@pytest.mark.parametrize(
    "rhythm", [Sampled(512, 3_000, 0.125, 8), Sampled(64, 200, 0.25, 8), Sampled(7, 1, 3.3, 5)]
)
def test_rounds_are_the_least_of_which_so_many_batches_may_be_sampled(rhythm: Sampled) -> None:
    assert rhythm.rounds(0) == 0
    for versions in range(1, 300):
        rounds = rhythm.rounds(versions)
        assert rhythm.versions(rounds) >= versions > rhythm.versions(rounds - 1)


def test_a_step_is_sampled_so_often_once_the_minimum_is_there() -> None:
    rhythm = Sampled(steps=100, minimum=250, ratio=0.5, windows=10)
    assert [rhythm.versions(rounds) for rounds in range(8)] == [0, 0, 0, 2, 7, 12, 17, 22]


def test_a_queue_makes_one_version_of_each_round() -> None:
    assert [ONE_EACH.versions(5), ONE_EACH.rounds(7)] == [5, 7]
