"""Which processes belong to a queue, and which hosts they get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conftest import catch, distributed_catch
from gelada.experiment.settings import Experiment
from gelada.runtime.groups import Room, actors_of_queues, group_processes, spread_groups
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


def rooms(**cpus: float) -> dict[str, Room]:
    return {host: Room(count) for host, count in cpus.items()}


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
    needs = {name: Room(cpus) for name in (*MAIN, *ONE, *TWO)}
    hosts = spread_groups([MAIN, ONE, TWO], needs, rooms(**free))
    assert ", ".join(f"{name} {host}" for name, host in hosts.items()) == found


def test_each_process_has_its_gpu_on_its_host() -> None:
    """A host with many CPUs and one GPU takes one learner only."""
    groups = [["main", "a"], ["main-1", "b"], ["main-2", "c"]]
    needs = {name: Room(1.0, float(name.startswith("main"))) for own in groups for name in own}
    free = {"large": Room(64.0, 1.0), "small": Room(8.0, 2.0)}
    hosts = spread_groups(groups, needs, free)
    assert hosts == {
        **{"main": "large", "a": "large"},
        **{"main-1": "small", "b": "small", "main-2": "small", "c": "small"},
    }
    assert spread_groups(groups, needs, free | {"small": Room(64.0, 1.0)}) == {}


def test_a_process_of_two_groups_has_one_host() -> None:
    needs = {name: Room(1.0) for name in "abc"}
    hosts = spread_groups([["a", "b"], ["b", "c"]], needs, rooms(x=2.0, y=2.0))
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
    needs = {spec.name: Room(1.0) for spec in specs}
    hosts = spread_groups(groups, needs, rooms(x=4.0, y=4.0))
    assert [name for name, host in hosts.items() if host == "y"] == groups[1]
