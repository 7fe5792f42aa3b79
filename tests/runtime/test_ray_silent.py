"""Pauses of the process that watches over a run: SIGSTOP, a laptop's lid. What it asks Ray for."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch

from colobus.core.errors import ColobusError
from colobus.runtime.devices import CPU, Placement
from colobus.runtime.groups import Cluster, ProcessSpec, Room, group_processes
from colobus.runtime.host import RoleHost
from colobus.training.on_ray import graph_in_process
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch
from helpers.outcomes import spread
from helpers.reading import META, Reads

pytestmark = pytest.mark.cluster

LEARNER = ProcessSpec("main", "learner", ("learner-0",), learns=True, gpus=1)
ACTOR = ProcessSpec("actor-0", "worker", ("actor-0",), learns=False)
SERVER = ProcessSpec("server-0", "server", ("server-0",), learns=False)


@pytest.mark.parametrize(
    ("between", "inside"), [(2.5, 3600.0), (3600.0, 0.1), (2.5, 0.1), (4.5, 0.1), (5.9, 0.1)]
)
def test_nobody_is_blamed_for_a_pause_of_the_watching_process(
    between: float, inside: float, remote: Any, now: list[float]
) -> None:
    """The answers have arrived in the meantime, but are not looked at yet."""
    process = remote.RemoteProcess(SERVER, object(), heartbeat="a reference", asked=now[0])
    pauses = remote.OwnPauses(4.0)

    def wait(takes: float) -> None:
        began = now[0]
        now[0] += takes
        process.asked += pauses.around(began, 0.1)

    for _ in range(10):
        wait(0.1)
    assert process.complaint(4.0, 120.0) == ""
    now[0] += between  # 2.5: a call that was answered late; 4.5: that, or a pause
    wait(inside)
    assert process.complaint(4.0, 120.0) == ""
    for _ in range(40):
        wait(0.1)
    # that was no pause, but silence
    assert "has given no answer for" in process.complaint(4.0, 120.0)


def test_one_that_is_frozen_when_it_begins_again_is_found(remote: Any, now: list[float]) -> None:
    """A new one answers nothing before it has begun, so nothing is asked of it."""
    for new in (True, False):
        process = remote.RemoteProcess(SERVER, MagicMock(), new=new)
        process.begin(1, None, {}, 120.0)
        process.ask_heartbeat()
        assert (process.heartbeat is None) == new
        now[0] += 25.0
        assert process.complaint(4.0, 120.0) == ""  # it may be busy
        now[0] += 6.0
        assert process.complaint(4.0, 120.0) == ("" if new else "has given no answer for 31.0 s")


def test_one_that_begins_is_told_of_a_replaced_one(remote: Any) -> None:
    """Else it would call a trajectory queue for ever that was lost while it began."""
    process = remote.RemoteProcess(LEARNER, MagicMock(), beginning="a reference")
    process.redial(3, remote.RemoteProcess(SERVER, "new"))
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


def test_making_processes_is_no_pause(remote: Any, now: list[float]) -> None:
    pauses = remote.OwnPauses(4.0)
    now[0] += 60.0
    pauses.look()
    began = now[0]
    now[0] += 0.1
    assert pauses.around(began, 0.1) == 0.0


@pytest.fixture
def actor(ray: Any, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """Return what Ray makes of a class, and what options are asked of; this host is h1."""
    made = MagicMock()
    monkeypatch.setattr(ray, "remote", lambda **_: lambda _: made)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: Mock(get_node_id=lambda: "h1"))
    return made


@pytest.mark.parametrize(("spec", "gpus"), [(LEARNER, 1), (ACTOR, 0)])
def test_ray_is_asked_for_gpus(remote: Any, actor: MagicMock, spec: ProcessSpec, gpus: int) -> None:
    remote.RemoteProcess(spec).fill(Room(1.0, spec.gpus), 3)
    assert [asked.kwargs["num_gpus"] for asked in actor.options.call_args_list] == [gpus]


def test_what_is_begun_again_finds_room_on_full_hosts(remote: Any, actor: MagicMock) -> None:
    """Where only the lost process's own host has room, and it may be one that gave no answer."""
    from colobus.runtime.ray.placement import Placement

    def asked(*where: Any) -> list[dict[str, str]]:
        remote.RemoteProcess(ACTOR).fill(Room(0.0), 3, *where)
        options = actor.options.call_args.kwargs
        assert options["num_cpus"] == 0.0  # a full host has not even a thousandth left
        return [one["label_selector"] for one in (options, *options["fallback_strategy"])]

    node = remote.NODE
    assert asked({"h2"}) == [{node: "!in(h2)"}, {}]
    placement: Any = object.__new__(Placement)
    placement._first, placement.named = {"actor-0": "h3"}, {"actor-0": ["h2", "h3"]}
    process, there = remote.RemoteProcess(ACTOR), {"h1", "h2", "h3"}
    first, again = (placement.hosts(process, there) for _ in range(2))
    assert asked((), first, ["h2", "h3"]) == [{node: "in(h3)"}, {node: "in(h2,h3)"}]
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


@pytest.mark.parametrize(("ids", "how"), [([], {}), ([3], {"gpu": True})])
def test_a_process_makes_its_roles_on_the_gpu_that_ray_gave_it(
    ray: Any, monkeypatch: pytest.MonkeyPatch, ids: list[int], how: dict[str, bool]
) -> None:
    from colobus.runtime.ray.process import Process

    make = Mock()
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: ids)
    monkeypatch.setattr(RoleHost, "begin", lambda _self, _incarnation, make, *_: make())
    monkeypatch.setattr(Process, "about", lambda _self: None)
    asyncio.run(Process(1).begin(1, make))
    make.assert_called_once_with(**how)


def test_no_gpu_waits_for_a_lost_process(remote: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.runtime.ray.runtime import Ray

    killed: list[str] = []
    monkeypatch.setattr(remote.RemoteProcess, "kill", lambda one: killed.append(one.spec.name))
    runtime: Any = object.__new__(Ray)
    runtime.whole, runtime.restore, runtime._pauses = False, Mock(), Mock()
    for learners, want in ((1, []), (2, ["main", "main-1"])):
        other = LEARNER._replace(name="main-1", roles=("learner-1",))
        processes = [remote.RemoteProcess(spec) for spec in (LEARNER, other, ACTOR)]
        runtime.processes = Mock(all=processes)
        runtime._learners = {f"learner-{i}" for i in range(learners)}
        runtime._recover(processes[:1])
        assert killed == want


def test_processes_that_learn_ask_for_gpus() -> None:
    for experiment in (catch(100), distributed_catch(2)):
        graph, specs = spread(experiment)
        for spec in group_processes(graph, 1, gpus=True):
            assert spec.gpus == any(name.startswith("learner") for name in spec.roles)
        assert not any(spec.gpus for spec in specs)


def test_a_process_makes_the_graph_of_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = catch(100)
    start = begin(experiment)

    def graph(device: torch.device, gpu: bool) -> Any:
        place = Placement(device, CPU)
        return graph_in_process(make_graph, place, experiment, start, None, None, gpu=gpu)

    for gpu in (False, True):
        with Reads():
            learner = graph(META, gpu).build()["learner-0"]
        assert learner.device == (META if gpu else CPU)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(ColobusError, match=r"^--device cuda:0: torch .* is built without CUDA"):
        graph(torch.device("cuda", 0), True)
