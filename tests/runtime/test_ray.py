"""The same runs on a real Ray on this machine: equal answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import pytest

from colobus.experiment.settings import Experiment, ReuseSettings
from colobus.runtime.groups import Cluster
from colobus.runtime.threads import Threads
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, reshaped
from helpers.launching import LONG
from helpers.outcomes import Outcome, assert_same, run_to_the_end
from helpers.ray_runs import SLOW
from helpers.variants import ALL, PAIR

pytestmark = pytest.mark.cluster

CATCH = catch(512 + 8 * 512, deterministic=True)
SEVERAL = replace(CATCH.shape, actors=4, games=4, replays=2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Ray of our own for all tests here; they end with no process more than before."""
    from colobus.runtime.ray import prepare

    prepare("")
    from colobus.runtime.ray.session import connected

    before = children()
    cluster = Cluster(cpus=0.2, silence=60.0)  # nobody is blamed on a slow machine
    with connected(cluster):
        yield cluster
    until = time.monotonic() + LONG
    while left := children() - before:
        assert time.monotonic() < until, left
        time.sleep(0.1)


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def run_on_ray(experiment: Experiment, cluster: Cluster) -> Outcome:
    from colobus.runtime.ray.placement import Incarnation
    from colobus.runtime.ray.runtime import Ray

    def never(incarnation: int) -> Incarnation:
        raise AssertionError("nothing should be lost")

    lines, events = list[str](), list[dict[str, Any]]()
    first = begin(experiment)
    make = partial(make_graph, experiment, first, None, patience=60.0, spread=True)
    place: Any = Ray(Incarnation(0, make), never, cluster, 60.0, lines.append, events.append)
    try:
        result = run_to_the_end(place)
    finally:
        place.close()
    assert [line for line in lines if not SLOW.match(line)] == []
    assert events == []
    return result


CENTRAL = catch(3000, deterministic=True)


@pytest.mark.parametrize(
    "experiment",
    [
        distributed_catch(20),
        CENTRAL,
        replace(CATCH, shape=SEVERAL, reuse=ReuseSettings(1.0, 3, 2, ramp_up=True)),
        ALL,
        PAIR,
        reshaped(CENTRAL, actors=1, learners=2, reduce="group"),
    ],
    ids=["workers", "central", "several queues", "all parts of APPO", "two agents", "a group"],
)
def test_a_run_on_ray_is_the_same_run_bit_for_bit(experiment: Experiment, cluster: Cluster) -> None:
    graph = make_graph(experiment, begin(experiment), None, patience=60.0)
    expected = run_to_the_end(Threads(graph.build()))
    # the learner's own state stays where it lives
    assert_same(run_on_ray(experiment, cluster), expected._replace(algorithm_state={}))
