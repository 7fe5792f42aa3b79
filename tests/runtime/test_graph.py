"""A graph: handles, the order of building, and what can be read without starting anything."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from colobus.core.errors import ColobusError, RoleFailed
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.runtime.graph import Handle, RoleGraph
from colobus.runtime.groups import Room, actors_of_queues, spread_groups
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, reshaped, short_pong
from helpers.outcomes import spread


def test_handles_become_the_objects_themselves() -> None:
    made: list[str] = []

    def part(name: str, *others: Any, **more: Any) -> Any:
        made.append(name)
        return SimpleNamespace(others=others, more=more)

    graph = RoleGraph()
    a = graph.add("a", "server", "main", part, "a")
    b = graph.add("b", "server", "main", part, "b", a)
    graph.add("c", "server", "main", part, "c", [a, b], (b, 7), more={"as it is": a})
    built = graph.build()
    assert made == ["a", "b", "c"]
    assert built["b"].others == (built["a"],)
    assert built["c"].others == ([built["a"], built["b"]], (built["b"], 7))
    # inside a dict nothing is looked for
    assert built["c"].more == {"more": {"as it is": Handle("a")}}


def test_two_roles_cannot_have_one_name() -> None:
    graph = RoleGraph()
    graph.add("a", "server", "main", object)
    with pytest.raises(ValueError, match="two roles named 'a'"):
        graph.add("a", "server", "main", object)


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment", [catch(1000), short_pong(1, servers=3)], ids=["catch", "pong"]
)
def test_the_graph_has_the_shapes_counts(experiment: Experiment) -> None:
    shape = experiment.shape
    graph = make_graph(experiment, begin(experiment), None)
    assert graph.counts() == {
        "Actor": shape.actors,
        "Learner": 1,
        "ParameterServer": shape.servers,
        "TrajectoryQueue": 1,
        "Tracker": 1,
    }
    active = [node.name for node in graph.nodes if node.active]
    assert active == [*(f"actor-{i}" for i in range(shape.actors)), "learner-0"]
    of_actors = {f"actor-{i}" for i in range(shape.actors)}
    assert {node.process for node in graph.nodes} == {"main", "tracker"} | of_actors


@pytest.mark.parametrize(("workers", "actors", "servers"), [(1, 2, 1), (3, 2, 4)])
def test_workers_are_put_around_their_servers(workers: int, actors: int, servers: int) -> None:
    experiment = distributed_catch(1, workers=workers, actors=actors, servers=servers)
    graph = make_graph(experiment, begin(experiment), None)
    processes = {node.process for node in graph.nodes}
    of = {one: [n.name for n in graph.nodes if n.process == one] for one in processes}
    assert of["tracker"] == ["tracker"]
    assert of["server-0"] == ["server-0"]
    last = workers - 1
    names = [f"actor-{i}" for i in range(last * actors, workers * actors)]
    assert of[f"worker-{last}"] == [f"replay-{last}", f"cache-{last}", *names, f"learner-{last}"]


class Unmakable:
    def __init__(self, error: Exception) -> None:
        raise error


def test_a_role_that_cannot_be_made_is_named_with_the_line() -> None:
    graph = RoleGraph()
    graph.add("one", "cache", "main", Unmakable, KeyError("the key"))
    said = r"^one could not be made at test_graph\.py:\d+: KeyError: 'the key'$"
    with pytest.raises(RoleFailed, match=said):
        graph.build()


@pytest.mark.parametrize("error", [ColobusError("no"), OSError("disk"), MemoryError()])
def test_errors_that_say_enough_stay_as_they_are(error: Exception) -> None:
    graph = RoleGraph()
    graph.add("one", "cache", "main", Unmakable, error)
    with pytest.raises(type(error)) as caught:
        graph.build()
    assert caught.value is error


def with_queues(actors: int, replays: int) -> Experiment:
    return reshaped(catch(1000), actors=actors, replays=replays)


QUEUES = with_queues(4, 2)


@pytest.mark.parametrize(
    ("experiment", "per_process", "found"),
    [
        (QUEUES, 1, {"replay-0": ("actor-0", "actor-1"), "replay-1": ("actor-2", "actor-3")}),
        (QUEUES, 3, {"replay-0": ("actor-0 to 2",), "replay-1": ("actor-0 to 2", "actor-3")}),
        (with_queues(4, 1), 1, {}),
        (replace(QUEUES, deterministic=True), 1, {}),
        (distributed_catch(1), 1, {}),
    ],
    ids=["queues", "actors share", "one queue", "queues that cannot be lost alone", "workers"],
)
def test_each_queue_that_is_placed_has_the_processes_of_its_actors(
    experiment: Experiment, per_process: int, found: dict[str, tuple[str, ...]]
) -> None:
    assert actors_of_queues(*spread(experiment, per_process)) == found


def test_actors_and_learners_that_stand_alone_share_no_process() -> None:
    gorila = reshaped(PRESETS["gorila-catch"], workers=0, learners=2, actors=3, replays=1)
    names = [spec.name for spec in spread(gorila, 2)[1] if spec.kind == "worker"]
    assert names == ["actor-0 to 1", "actor-2", "learner-0 to 1"]


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
def test_a_group_shares_a_host_if_it_can(free: dict[str, float], cpus: float, found: str) -> None:
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
    graph, specs = spread(reshaped(catch(1000), actors=2, learners=2, reduce="group"))
    learners = actors_of_queues(graph, specs, "learner")
    assert learners == {"main": ("actor-0", "actor-1"), "main-1": ("actor-2", "actor-3")}
    groups = [[learner, *actors] for learner, actors in learners.items()]
    needs = {spec.name: Room(1.0) for spec in specs}
    hosts = spread_groups(groups, needs, rooms(x=4.0, y=4.0))
    assert [name for name, host in hosts.items() if host == "y"] == groups[1]
