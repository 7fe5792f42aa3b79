"""One version of all slices, whatever the workers and servers are doing meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colobus.core.errors import Deadline
from colobus.core.types import Gradient, Params, Version
from colobus.roles.parameters.published import (
    ANY,
    PublishedParameters,
    Pulled,
    pull_common,
    pull_consistent,
    pull_newest,
)
from colobus.roles.parameters.server import Admission, ParameterServer
from helpers.launching import assert_closed, on_a_thread
from helpers.schedules import ROUNDS, SIZE, World
from helpers.servers import server_of


def newest(servers: Sequence[Any], at_least: Version) -> Pulled:
    """Pull as an asynchronous learner does."""
    return pull_newest(servers)


seeds = st.integers(0, 2**32 - 1)


@pytest.mark.slow
@settings(max_examples=50)
@given(
    seed=seeds, servers=st.integers(2, 4), workers=st.integers(1, 4), again=st.booleans(),
    restores=st.booleans(), data=st.data(),
)  # fmt: skip
def test_a_pull_is_never_mixed_and_servers_never_differ_by_more_than_one(
    seed: int, servers: int, workers: int, again: bool, restores: bool, data: st.DataObject
) -> None:
    """Also if all servers go back, or workers die between any two calls and begin again."""
    quorum = workers - data.draw(st.integers(0, workers - 1))
    deaths = 0 if restores else data.draw(st.integers(0, 8))
    admission = Admission(quorum)
    world = World(seed, servers, workers, admission, pull_consistent, again, restores, deaths)
    reached = min(server.pull().version for server in world.servers)
    assert reached >= Version(int(restores), ROUNDS)
    assert deaths or len(world.answers) == (len(world.pulled) if again else 0)
    assert world.mixed() == 0
    assert world.widest <= 1
    assert not any(answer.counted for answer in world.answers)  # counted once, if sent twice
    for index, server in enumerate(world.servers):
        taken = [(at, g) for i, at, g in world.counted if i == index]
        assert all(g.version == at for at, g in taken)
        assert len({(g.learner, at) for at, g in taken}) == len(taken)
        last = server.pull().version
        steps = Counter(at.number for at, _ in taken if at.incarnation == last.incarnation)
        full = [number for number, count in steps.items() if count == quorum]
        assert sorted(full) == list(range(2 * restores, last.number))


@settings(max_examples=15)
@given(
    seed=seeds, servers=st.integers(1, 3), workers=st.integers(1, 4), again=st.booleans(),
    staleness=st.integers(0, 3), restores=st.booleans(),
)  # fmt: skip
def test_asynchronous_gradients_make_a_step_each_unless_they_are_too_old(
    seed: int, servers: int, workers: int, again: bool, staleness: int, restores: bool
) -> None:
    world = World(seed, servers, workers, Admission(1, staleness), newest, again, restores)
    assert world.unpublished() == 0
    assert not any(answer.counted for answer in world.answers)
    for index, server in enumerate(world.servers):
        taken = [(at, g.version) for i, at, g in world.counted if i == index]
        assert all(at.incarnation == v.incarnation for at, v in taken)
        assert all(0 <= at.number - v.number <= staleness for at, v in taken)
        last = server.pull().version
        steps = [at.number for at, _ in taken if at.incarnation == last.incarnation]
        assert steps == list(range(2 * restores, last.number))


def test_workers_die_everywhere() -> None:
    worlds = [World(seed, 3, 2, Admission(2), pull_consistent, deaths=6) for seed in range(10)]
    assert sum(len(world.died) for world in worlds) > 50
    assert {call for world in worlds for call in world.died} == {"pull", "push"}
    behind = sum(version < newest for world in worlds for version, newest in world.begun)
    assert behind >= 3  # began again with a version that another server had already left


def make_servers(count: int, version: Version = ANY) -> list[ParameterServer]:
    return [server_of(torch.ones(SIZE), version=version) for _ in range(count)]


def go_on(*servers: ParameterServer) -> None:
    """Make the next version of each slice, in this order."""
    for server in servers:
        server.push(Gradient(0, server.pull().version, 0, 1, 1, 0.1, torch.ones(SIZE)))


class Interrupted:
    """A server; something happens before it is asked for the second time."""

    def __init__(self, server: ParameterServer, happens: Callable[[], None]) -> None:
        self.server, self.happens = server, happens
        self.asked: list[tuple[Version, bool]] = []

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        if len(self.asked) == 1:
            self.happens()
        self.asked.append((at_least, exactly))
        return self.server.pull(at_least, exactly)


def test_a_server_that_went_on_meanwhile_still_has_the_version_the_others_are_at() -> None:
    """The first server says 0, the second 1, and by then the first is at 2: the answer is 1."""
    one, other = make_servers(2)
    go_on(other)
    pulled = pull_consistent([Interrupted(one, lambda: go_on(one, one)), other])
    assert pulled.version == Version(0, 1)
    assert torch.equal(pulled.vector[:SIZE], pulled.vector[SIZE:])
    assert pulled.moved == 3 * 4 * SIZE  # the first slice came twice


def test_the_common_version_is_that_of_the_server_furthest_behind() -> None:
    servers = make_servers(3)
    same = pull_common(servers)
    assert (same.versions, same.moved) == ((Version(0, 0),) * 3, 3 * 4 * SIZE)
    go_on(servers[0], servers[2])  # the second was never sent its gradient
    pulled = pull_common(servers)
    assert pulled.version == Version(0, 0)
    assert pulled.versions == (Version(0, 0),) * 3
    assert torch.equal(pulled.vector, same.vector)
    assert pulled.moved == 5 * 4 * SIZE  # two slices came twice
    with pytest.raises(Deadline):  # which only a push can end
        pull_consistent(servers)


def test_a_version_that_is_kept_no_more_is_given_up_for_a_newer_one() -> None:
    """The second is a version behind when asked; then both go on, and the first forgets it."""
    one, other = make_servers(2)
    go_on(one)
    first = Interrupted(one, lambda: go_on(other, one, other))
    pulled = pull_common([first, other])
    assert first.asked == [(ANY, False), (Version(0, 0), True), (ANY, False)]
    assert pulled.versions == (Version(0, 2),) * 2
    assert torch.equal(pulled.vector[:SIZE], pulled.vector[SIZE:])


def test_a_common_version_may_be_of_an_older_epoch_only_if_all_still_have_it() -> None:
    (old,), anew = make_servers(1), make_servers(2, Version(1, 0))
    go_on(old)
    second = Interrupted(old, lambda: None)

    def is_taken_back_too() -> None:
        second.server = anew[1]

    pulled = pull_common([Interrupted(anew[0], is_taken_back_too), second])
    assert pulled.versions == (Version(1, 0),) * 2


def params(number: int, incarnation: int = 0) -> Params:
    return Params(Version(incarnation, number), torch.full((3,), float(number)))


@given(kept=st.integers(1, 5), count=st.integers(1, 9), asked=st.integers(0, 9))
def test_the_newest_are_kept_and_exactly_finds_them(kept: int, count: int, asked: int) -> None:
    snapshots = PublishedParameters(params(0), kept, patience=0.0)
    for number in range(1, count):
        snapshots.publish(params(number))
    if asked >= count:
        for exactly in (True, False):
            with pytest.raises(Deadline):
                snapshots.pull(Version(0, asked), exactly)
        return
    assert snapshots.pull(Version(0, asked)).version.number == count - 1
    found = snapshots.pull(Version(0, asked), exactly=True)
    assert found.version.number == (asked if asked >= count - kept else count - 1)
    assert found.values.tolist() == [found.version.number] * 3


def waiting(snapshots: Any, *numbers: int) -> list[Future[Params]]:
    return [on_a_thread(partial(snapshots.pull, Version(0, number))) for number in numbers]


def test_each_who_waits_is_woken_by_the_version_it_wants() -> None:
    snapshots = PublishedParameters(params(0), patience=60)
    calls = waiting(snapshots, 1, 2, 3)
    for number in (1, 2, 3):
        snapshots.publish(params(number))
        assert calls[number - 1].result(60).version == Version(0, number)
        assert [call.done() for call in calls] == [True] * number + [False] * (3 - number)


@pytest.mark.parametrize(
    "snapshots",
    [PublishedParameters(params(0), patience=60), server_of(torch.ones(SIZE), patience=60.0)],
    ids=["published", "server"],
)
def test_close_wakes_all_and_refuses_who_comes(snapshots: Any) -> None:
    calls = waiting(snapshots, 1, 2)
    snapshots.close()
    assert_closed(*(partial(call.result, 60) for call in calls), snapshots.pull)
