"""Published parameters: which are kept, which are handed out, and who is woken."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gelada.core.errors import Closed, Deadline
from gelada.core.types import Params, Version
from gelada.roles.parameters.published import ANY, KEPT, PublishedParameters


def params(number: int, incarnation: int = 0) -> Params:
    return Params(Version(incarnation, number), torch.full((3,), float(number)))


@given(kept=st.integers(1, 5), count=st.integers(1, 9), asked=st.integers(0, 9))
def test_the_newest_are_kept_and_exactly_finds_them(kept: int, count: int, asked: int) -> None:
    snapshots = PublishedParameters(params(0), kept, patience=0.0)
    for number in range(1, count):
        snapshots.publish(params(number))
    there = list(range(count))[-kept:]
    if asked >= count:
        for exactly in (True, False):
            with pytest.raises(Deadline):
                snapshots.pull(Version(0, asked), exactly)
        return
    assert snapshots.pull(Version(0, asked)).version.number == count - 1
    found = snapshots.pull(Version(0, asked), exactly=True)
    assert found.version.number == (asked if asked in there else count - 1)
    assert found.values.tolist() == [found.version.number] * 3


def test_without_a_wish_it_is_the_newest() -> None:
    snapshots = PublishedParameters(params(4), patience=0.0)
    assert snapshots.pull() is snapshots.newest
    assert snapshots.pull(ANY, exactly=True) is snapshots.newest  # 0 is not kept
    snapshots.publish(params(5))
    assert snapshots.pull() is snapshots.newest
    assert snapshots.newest.version.number == 5
    assert KEPT == 2
    assert snapshots.pull(Version(0, 4), exactly=True).version.number == 4


def waiting(
    snapshots: PublishedParameters, at_least: Version
) -> tuple[threading.Thread, list[Any]]:
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(snapshots.pull(at_least).version)
        except (Closed, Deadline) as error:
            out.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, out


def test_each_who_waits_is_woken_by_the_version_it_wants() -> None:
    snapshots = PublishedParameters(params(0), patience=60)
    threads = [waiting(snapshots, Version(0, number)) for number in (1, 2, 3)]
    for number in (1, 2, 3):
        snapshots.publish(params(number))
        threads[number - 1][0].join(60)
        assert threads[number - 1][1] == [Version(0, number)]
        assert [len(out) for _, out in threads] == [1] * number + [0] * (3 - number)


def test_a_higher_epoch_wakes_who_waits_for_a_version_that_was_rolled_back() -> None:
    snapshots = PublishedParameters(params(9), patience=60)
    thread, out = waiting(snapshots, Version(0, 10))
    snapshots.publish(params(5, incarnation=1))
    thread.join(60)
    assert out == [Version(1, 5)]


def test_close_wakes_all_and_refuses_who_comes() -> None:
    snapshots = PublishedParameters(params(0), patience=60)
    threads = [waiting(snapshots, Version(0, number)) for number in (1, 2)]
    snapshots.close()
    for thread, out in threads:
        thread.join(60)
        assert out == [Closed]
    with pytest.raises(Closed):
        snapshots.pull()


def test_patience_ends() -> None:
    thread, out = waiting(PublishedParameters(params(0), patience=0.01), Version(0, 1))
    thread.join(60)
    assert out == [Deadline]
