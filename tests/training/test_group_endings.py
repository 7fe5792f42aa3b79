"""How a group of learners ends: by its rule, one that is slow or fails, and Ctrl-C while they add.

On threads the learners meet in a `ThreadAllreduce`. Here they are also joined as they are in
processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from conftest import catch
from gelada.core.errors import Closed, RoleFailed
from gelada.core.types import Version
from gelada.roles.learner import Learner
from gelada.runtime.threads import Threads
from gelada.training.start import begin, open_games
from gelada.training.topology import make_graph
from helpers.outcomes import assert_same, run_to_the_end

ROUNDS = 8

GROUP = replace(
    catch(512 + ROUNDS * 512, deterministic=True),
    shape=replace(catch(1).shape, actors=1, learners=2, reduce="group"),
)

SECONDS = 60.0
"""A bound for waiting, on a slow machine too."""


def place_group(ring: bool, lines: list[str] | None = None) -> Threads:
    """Return the group on threads of this process, joined by a ring if asked."""
    games = open_games(GROUP)
    start = begin(GROUP, games)
    graph = make_graph(GROUP, start, None, patience=60.0, games=games, spread=ring)
    return Threads(graph.build(), log=([] if lines is None else lines).append)


def learners(place: Threads) -> list[Learner]:
    return [place.roles["learner-0"], place.roles["learner-1"]]


@pytest.mark.slow
@pytest.mark.parametrize("ring", [False, True], ids=["threads", "ring"])
@pytest.mark.parametrize("late", [0, 1])
def test_all_end_with_the_same_round_whoever_is_slow(
    ring: bool, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    slow, plain = place_group(ring, lines), place_group(False, lines)
    learner = learners(slow)[late]
    run = learner.compute.run

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.03)
        return run(*arguments)

    monkeypatch.setattr(learner.compute, "run", slowly)
    assert_same(run_to_the_end(slow), run_to_the_end(plain))
    assert lines == []
    assert ("meeting" in slow.roles) == ring
    for one in learners(slow):
        assert one.finished
        assert one.clock.steps == ROUNDS
        assert one.client.version == Version(0, ROUNDS)
    first, second = (one.client.flat.values for one in learners(slow))
    assert torch.equal(first, second)


def give_up(place: Threads, rank: int, after: int, then: Callable[[], Any]) -> None:
    """Let a learner's queue do something else once it has given so many batches."""
    queue = place.roles[f"replay-{rank}"]
    sample, given = queue.sample, list[int]()

    def sampled(*arguments: Any) -> Any:
        if len(given) == after:
            return then()
        given.append(1)
        return sample(*arguments)

    queue.sample = sampled


def when_closed(queue: Any, then: Callable[[], None]) -> None:
    """Call something once a learner's queue was closed, because its run stops."""
    close = queue.close

    def closed() -> None:
        close()
        then()

    queue.close = closed


def watch(place: Threads) -> None:
    """Wait until something ends the run."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        place.wait(0.1)
        place.check()


@pytest.mark.parametrize("ring", [False, True], ids=["threads", "ring"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_learner_that_fails_is_named_and_the_other_ends(ring: bool, rank: int) -> None:
    place = place_group(ring)

    def torn() -> Any:
        raise ValueError("the queue is torn")

    give_up(place, rank, 3, torn)
    place.start()
    said = rf"^learner-{rank} failed at test_group_endings\.py:\d+: ValueError: the queue is torn$"
    with pytest.raises(RoleFailed, match=said):
        watch(place)
    assert place.stop(SECONDS) == []


@pytest.mark.parametrize("ring", [False, True], ids=["threads", "ring"])
@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_while_one_waits_for_the_other_leaves_both_between_two_rounds(
    ring: bool, rank: int
) -> None:
    place, closed = place_group(ring), threading.Event()

    def nothing_comes() -> Any:  # until the run stops
        closed.wait(SECONDS)
        raise Closed

    give_up(place, rank, 3, nothing_comes)
    when_closed(place.roles[f"replay-{rank}"], closed.set)
    place.start()
    waits = learners(place)[1 - rank].clock
    until = time.monotonic() + SECONDS
    while (waits.stage, waits.steps) != ("wait for learners", 3):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert place.stop(SECONDS) == []
    assert place.failure is None
    for one in learners(place):
        assert one.is_sound()
        assert one.client.version == Version(0, 3)
    first, second = (one.client.flat.values for one in learners(place))
    assert torch.equal(first, second)


@pytest.mark.parametrize("first", [0, 1])
def test_a_process_that_stops_in_its_round_lets_the_other_go(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Ray: each learner has its threads, and both are stopped one after the other."""
    games = open_games(GROUP)
    start = begin(GROUP, games)
    graph = make_graph(GROUP, start, None, patience=60.0, games=games, spread=True)
    second = {node.name for node in graph.nodes if node.process in ("main-1", "actor-1")}
    roles = graph.build({node.name for node in graph.nodes} - second)
    places = [Threads(roles), Threads(graph.build(second, roles.__getitem__))]
    pair = [places[rank].roles[f"learner-{rank}"] for rank in (0, 1)]
    run, learns, stopped = pair[first].compute.run, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        found = run(*arguments)  # the other one has these sums too, and goes on
        if pair[first].clock.steps == 3:
            learns.set()
            assert stopped.wait(SECONDS)
        return found

    monkeypatch.setattr(pair[first].compute, "run", slowly)
    when_closed(places[first].roles[f"replay-{first}"], stopped.set)
    for place in places:
        place.start()
    assert learns.wait(SECONDS)
    hung = [places[first].stop(SECONDS), places[1 - first].stop(SECONDS)]
    assert hung == [[], []]
    assert [place.failure for place in places] == [None, None]
    for learner in pair:
        assert learner.is_sound()
        assert learner.client.version == Version(0, 4)
    assert torch.equal(*(learner.client.flat.values for learner in pair))
