"""Which processes belong to a queue, and which hosts they get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conftest import catch, distributed_catch
from gelada.runtime.groups import actors_of_queues, group_processes, spread_groups
from gelada.training.experiment import Experiment
from gelada.training.start import begin
from gelada.training.topology import make_graph


def queues(experiment: Experiment, per_process: int = 1) -> dict[str, tuple[str, ...]]:
    graph = make_graph(experiment, begin(experiment), None, spread=True)
    return actors_of_queues(graph, group_processes(graph, per_process))


def with_queues(actors: int, replays: int) -> Experiment:
    base = catch(1000)
    return replace(base, shape=replace(base.shape, actors=actors, replays=replays))


def test_each_queue_has_the_processes_of_its_actors() -> None:
    two = with_queues(4, 2)
    assert queues(two) == {
        "replay-0": ("actor-0", "actor-1"),
        "replay-1": ("actor-2", "actor-3"),
    }
    assert queues(two, per_process=3) == {
        "replay-0": ("actor-0 to 2",),
        "replay-1": ("actor-0 to 2", "actor-3"),
    }


@pytest.mark.parametrize(
    "experiment",
    [with_queues(4, 1), replace(with_queues(4, 2), deterministic=True), distributed_catch(1)],
    ids=["one queue", "queues that cannot be lost alone", "workers"],
)
def test_other_runs_have_no_queue_that_is_placed(experiment: Experiment) -> None:
    assert queues(experiment) == {}


MAIN, ONE, TWO = ["main"], ["a", "b"], ["c", "d"]


@pytest.mark.parametrize(
    ("free", "cpus", "found"),
    [
        ({"x": 4.0, "y": 4.0, "z": 4.0}, 1.0, "main x, a y, b y, c z, d z"),
        ({"x": 1.0, "y": 2.0, "z": 2.0}, 1.0, "main y, a z, b z, c x, d y"),
        ({"x": 9.0, "y": 1.0}, 1.0, "main x, a x, b x, c x, d x"),
        ({"x": 3.0, "y": 2.0}, 1.0, "main x, a x, b x, c y, d y"),
        ({"x": 0.6, "y": 0.4}, 0.2, "main x, a y, b y, c x, d x"),  # sums are not exact
        ({"x": 2.0, "y": 2.0}, 1.0, ""),
        ({"x": 5.0, "y": 5.0}, 6.0, ""),
    ],
)
def test_a_group_shares_a_host_where_there_is_room(
    free: dict[str, float], cpus: float, found: str
) -> None:
    hosts = spread_groups([MAIN, ONE, TWO], cpus, free)
    assert ", ".join(f"{name} {host}" for name, host in hosts.items()) == found


def test_a_process_of_two_groups_has_one_host() -> None:
    hosts = spread_groups([["a", "b"], ["b", "c"]], 1.0, {"x": 2.0, "y": 2.0})
    assert hosts == {"a": "x", "b": "x", "c": "y"}


def test_each_learner_of_a_group_shares_a_host_with_its_actors() -> None:
    base = catch(1000)
    shape = replace(base.shape, actors=2, learners=2, reduce="group")
    experiment = replace(base, shape=shape)
    graph = make_graph(experiment, begin(experiment), None, spread=True)
    specs = group_processes(graph, 1)
    learners = actors_of_queues(graph, specs, "learner")
    assert learners == {"main": ("actor-0", "actor-1"), "main-1": ("actor-2", "actor-3")}
    groups = [[learner, *actors] for learner, actors in learners.items()]
    hosts = spread_groups(groups, 1.0, {"x": 4.0, "y": 4.0})
    assert [name for name, host in hosts.items() if host == "y"] == groups[1]
