"""The broadcast interval: actors get the parameters of every K-th version only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from colobus.experiment.settings import Experiment
from colobus.runtime.threads import Inline
from colobus.training.start import begin, open_games
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, dqn, reshaped
from helpers.outcomes import Outcome, assert_same, batches_of, equal, inline, outcome, threads

CATCH = catch(512 + 14 * 512, deterministic=True)  # 14 rounds


def every(count: int, base: Experiment = CATCH, **shape: Any) -> Experiment:
    return reshaped(base, broadcast_every=count, **shape)


def played(experiment: Experiment, first: int = 0) -> tuple[Outcome, list[list[int]]]:
    """Run inline from version ``first``; return the versions of each batch of the first replay."""
    games = open_games(experiment)
    start = begin(experiment, games)
    version = start.version._replace(number=first)
    start = replace(start, version=version, origin=start.origin._replace(version=first))
    place = Inline(make_graph(experiment, start, None, patience=0.0, games=games))
    batches = batches_of(place.roles["replay" if "replay" in place.roles else "replay-0"])
    place.run()
    return outcome(place.roles), [sorted(set(batch.versions.tolist())) for batch in batches]


@pytest.mark.parametrize(
    ("interval", "ahead", "first", "versions"),
    [
        (1, 1, 0, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        (3, 1, 0, [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 12]),
        (3, 0, 0, [0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 12, 12]),
        (4, 1, 6, [6, 6, 6, 8, 8, 8, 8, 12, 12, 12, 12, 16, 16, 16]),  # as after a resume
    ],
)
def test_the_pace_is_rounded_down_to_what_is_published(
    interval: int, ahead: int, first: int, versions: list[int]
) -> None:
    result, found = played(every(interval, ahead=ahead), first)
    assert found == [[number] for number in versions]
    assert result.version.number == first + 14


@pytest.mark.slow
def test_in_workers_the_learners_learn_with_every_version_and_the_actors_play_with_a_few() -> None:
    base = distributed_catch(14)
    result, versions = played(every(3, base))
    assert versions == [[n] for n in [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 12]]
    assert result.version.number == 14
    assert_same(result, threads(every(3, base)))


def test_free_runs_are_not_much_further_behind_than_the_interval() -> None:
    result = threads(replace(every(5), deterministic=False))
    assert result.status.lag[2] <= 12.0  # whatever the order in which two actors come
    assert result.version.number >= 14


@pytest.mark.slow
def test_a_saved_run_holds_the_newest_version_with_its_optimizer() -> None:
    """Version 14 was never published: what is left is that of a run with the same rounds."""
    one, two = inline(every(9)), inline(every(9, servers=3))
    assert one.version.number == 14
    assert torch.equal(one.parameters, two.parameters)
    assert equal(one.optimizer, two.optimizer)


@pytest.mark.slow
def test_actors_around_a_replay_buffer_get_a_few_versions_too() -> None:
    """A version that is not published is not waited for, or nobody would ever move."""
    experiment = every(3, dqn(CATCH))
    result = threads(experiment)
    assert result.version.number > 6
    assert_same(result, threads(experiment))
