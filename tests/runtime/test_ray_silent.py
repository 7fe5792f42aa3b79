"""Pauses of the process that watches over a run: SIGSTOP, a laptop's lid."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from colobus.core.errors import ColobusError
from colobus.runtime.devices import Placement
from colobus.runtime.groups import Cluster, ProcessSpec, Room, group_processes
from colobus.runtime.host import RoleHost
from colobus.runtime.ray import prepare
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch

pytestmark = pytest.mark.cluster

LEARNER = ProcessSpec("main", "learner", ("learner-0",), learns=True, gpus=1)
ACTOR = ProcessSpec("actor-0", "worker", ("actor-0",), learns=False)
SERVER = ProcessSpec("server-0", "server", ("server-0",), learns=False)


@pytest.fixture
def ray() -> Any:
    prepare("")  # before ray is imported, as in a run
    import ray

    return ray


@pytest.mark.parametrize(
    ("between", "inside"), [(2.5, 3600.0), (3600.0, 0.1), (2.5, 0.1), (4.5, 0.1), (5.9, 0.1)]
)
def test_nobody_is_blamed_for_a_pause_of_the_watching_process(
    between: float, inside: float, ray: Any, now: list[float]
) -> None:
    """The answers have arrived in the meantime, but are not looked at yet."""
    from colobus.runtime.ray.remote import OwnPauses, RemoteProcess

    process = RemoteProcess(SERVER, handle=object(), heartbeat="a reference", asked=now[0])
    pauses = OwnPauses(4.0)

    def wait(takes: float) -> None:
        began = now[0]
        now[0] += takes
        process.asked += pauses.around(began, 0.1)

    def complain() -> str:
        return process.complaint(4.0, 120.0)

    for _ in range(10):
        wait(0.1)
    assert complain() == ""
    now[0] += between  # 2.5: a call that was answered late; 4.5: that, or a pause
    wait(inside)
    assert complain() == ""
    for _ in range(40):
        wait(0.1)
    assert "has given no answer for" in complain()  # that was no pause, but silence


def test_one_that_is_frozen_when_it_begins_again_is_found(ray: Any, now: list[float]) -> None:
    """A new one answers nothing before it has begun, so nothing is asked of it."""
    from colobus.runtime.ray.remote import RemoteProcess

    for new in (True, False):
        process = RemoteProcess(SERVER, handle=MagicMock(), new=new)
        process.begin(1, None, {}, 120.0)
        process.ask_heartbeat()
        assert (process.heartbeat is None) == new
        now[0] += 25.0
        assert process.complaint(4.0, 120.0) == ""  # it may be busy
        now[0] += 6.0
        assert process.complaint(4.0, 120.0) == ("" if new else "has given no answer for 31.0 s")


def test_one_that_begins_is_told_of_a_replaced_one(ray: Any) -> None:
    """Else it would call a trajectory queue for ever that was lost while it began."""
    from colobus.runtime.ray.remote import RemoteProcess

    process = RemoteProcess(LEARNER, handle=MagicMock(), beginning="a reference")
    process.redial(3, RemoteProcess(SERVER, handle="new"))
    process.handle.redial.remote.assert_called_once_with(3, {"server-0": "new"})


@pytest.mark.parametrize(
    ("addresses", "outside"),
    [(["127.0.0.1"], False), (["127.0.0.1", "10.0.0.7"], True), (["head.example"], True)],
)
def test_a_cluster_on_the_loopback_is_on_no_network(
    addresses: list[str], outside: bool, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colobus.runtime.ray.session import is_on_network

    gone = {"NodeManagerAddress": "10.0.0.9", "Alive": False}
    nodes = [{"NodeManagerAddress": address, "Alive": True} for address in addresses]
    monkeypatch.setattr(ray, "nodes", lambda: [gone, *nodes])
    assert is_on_network() == outside


def test_making_processes_is_no_pause(ray: Any, now: list[float]) -> None:
    from colobus.runtime.ray.remote import OwnPauses

    pauses = OwnPauses(4.0)
    now[0] += 60.0
    pauses.look()
    began = now[0]
    now[0] += 0.1
    assert pauses.around(began, 0.1) == 0.0


@pytest.mark.parametrize(("spec", "gpus"), [(LEARNER, 1), (ACTOR, 0)])
def test_ray_is_asked_for_the_gpu_of_a_process(
    ray: Any, monkeypatch: pytest.MonkeyPatch, spec: ProcessSpec, gpus: int
) -> None:
    from colobus.runtime.ray.remote import RemoteProcess

    asked: list[dict[str, Any]] = []

    class Asked:
        def options(self, **options: Any) -> Asked:
            asked.append(options)
            return self

        def remote(self, callers: int) -> object:
            return object()

    monkeypatch.setattr(ray, "remote", lambda **_: lambda _: Asked())
    here = SimpleNamespace(get_node_id=lambda: "h1")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: here)
    RemoteProcess(spec).fill(Room(1.0, spec.gpus), 3)
    assert [options["num_gpus"] for options in asked] == [gpus]


def test_what_is_begun_again_finds_room_on_full_hosts(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only the lost process's own host has room, and it may be one that gave no answer."""
    from colobus.runtime.ray.placement import Placement
    from colobus.runtime.ray.remote import NODE, RemoteProcess

    actor, made = MagicMock(), MagicMock()
    made.return_value = lambda _: actor
    monkeypatch.setattr(ray, "remote", made)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: MagicMock(get_node_id=lambda: "h1"))

    def asked(*where: Any) -> list[dict[str, str]]:
        RemoteProcess(ACTOR).fill(Room(0.0), 3, *where)
        options = actor.options.call_args.kwargs
        assert options["num_cpus"] == 0.0  # a full host has not even a thousandth left
        return [one["label_selector"] for one in (options, *options["fallback_strategy"])]

    assert asked({"h2"}) == [{NODE: "!in(h2)"}, {}]
    placement: Any = object.__new__(Placement)
    placement._first, placement.named = {"actor-0": "h3"}, {"actor-0": ["h2", "h3"]}
    first, again = (placement.hosts(RemoteProcess(ACTOR), {"h1", "h2", "h3"}) for _ in range(2))
    assert asked((), first, ["h2", "h3"]) == [{NODE: "in(h3)"}, {NODE: "in(h2,h3)"}]
    assert again == ["h2", "h3"]


def test_more_learners_than_gpus_are_refused(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.runtime.ray import placement

    check_resources = placement.check_resources
    there = {"CPU": 16.0, "GPU": 2.0}
    monkeypatch.setattr(placement, "hosts_there", lambda: {"h1": Room(16.0, 2)})
    monkeypatch.setattr(ray, "cluster_resources", lambda: there)
    monkeypatch.setattr(ray, "available_resources", lambda: there)
    check_resources([LEARNER] * 2, Cluster(), {})
    with pytest.raises(ColobusError) as caught:
        check_resources([LEARNER] * 3, Cluster(), {})
    assert str(caught.value) == (
        "--device cuda: the run asks for 3 GPUs, one for each process that learns, the cluster has "
        "2, 2 of them free; use fewer learners, or --device cpu, with which Gloo adds up the "
        "gradients of a group"
    )
    large = {"learner": 7 * 2**30}
    monkeypatch.setattr(ray, "available_resources", lambda: there | {"memory": 2.0**34})
    with pytest.raises(ColobusError, match=r"7\.0 GiB of memory, and no host has all of it"):
        check_resources([LEARNER], Cluster(), large)
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 16.0})  # Ray leaves out a 0
    with pytest.raises(ColobusError, match=r"asks for 1 GPUs, .* has 2, 0 of them free"):
        check_resources([LEARNER], Cluster(), {})


@pytest.mark.parametrize("ids", [[], [3]])
def test_a_process_makes_its_roles_on_the_gpu_that_ray_gave_it(
    ray: Any, monkeypatch: pytest.MonkeyPatch, ids: list[int]
) -> None:
    from colobus.runtime.ray.process import Process

    asked: list[dict[str, Any]] = []

    def make(**how: Any) -> Any:
        asked.append(how)

    monkeypatch.setattr(ray, "get_gpu_ids", lambda: ids)
    monkeypatch.setattr(RoleHost, "begin", lambda _self, _incarnation, make, *_: make())
    monkeypatch.setattr(Process, "about", lambda _self: None)
    asyncio.run(Process(1).begin(1, make))
    assert asked == [{"gpu": True} if ids else {}]


def test_after_a_loss_no_learner_waits_on_its_gpu(ray: Any) -> None:
    from colobus.runtime.ray.remote import RemoteProcess
    from colobus.runtime.ray.runtime import Ray

    killed: list[str] = []

    class Remote(RemoteProcess):
        def kill(self) -> None:
            killed.append(self.spec.name)

    class Processes:
        incarnation = 0

        def __init__(self, *specs: ProcessSpec) -> None:
            self.all = [Remote(spec) for spec in specs]

        def set_incarnation(self, incarnation: Any) -> None: ...

        def begin(self, processes: Any) -> None: ...

    class Pauses:
        def look(self) -> None: ...

    runtime: Any = object.__new__(Ray)
    runtime.whole, runtime.restore, runtime._pauses = False, lambda number: number + 1, Pauses()
    for learners, want in ((1, []), (2, ["main", "main-1"])):
        other = LEARNER._replace(name="main-1", roles=("learner-1",))
        runtime.processes = Processes(LEARNER, other, ACTOR)
        runtime._learners = {f"learner-{i}" for i in range(learners)}
        runtime._recover(runtime.processes.all[:1])
        assert killed == want


def test_processes_that_learn_ask_for_gpus() -> None:
    group = catch(100)
    for experiment in (group, distributed_catch(2)):
        graph = make_graph(experiment, begin(experiment), None, spread=True)
        for spec in group_processes(graph, 1, gpus=True):
            assert spec.gpus == any(name.startswith("learner") for name in spec.roles)
        assert not any(spec.gpus for spec in group_processes(graph, 1))


def test_a_process_without_a_gpu_makes_the_graph_of_a_cpu() -> None:
    from colobus.training.on_ray import graph_in_process
    from helpers.reading import META, Reads

    experiment = catch(100)
    start, placement = begin(experiment), Placement(META, torch.device("cpu"))
    for gpu in (False, True):
        with Reads():
            graph = graph_in_process(make_graph, placement, experiment, start, None, None, gpu=gpu)
            learner = graph.build()["learner-0"]
        assert learner.device == (META if gpu else torch.device("cpu"))


def test_a_host_whose_torch_has_no_cuda_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.training.on_ray import graph_in_process

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    experiment = catch(100)
    placement = Placement(torch.device("cuda", 0), torch.device("cpu"))
    with pytest.raises(ColobusError, match=r"^--device cuda:0: torch .* is built without CUDA"):
        graph_in_process(make_graph, placement, experiment, begin(experiment), None, None, gpu=True)
