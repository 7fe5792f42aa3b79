"""The process that watches over a run on Ray: silence, pauses, calls, rooms and GPUs.

Ray is imported and not started.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch

from colobus.cli.show import imagined_start
from colobus.core.errors import ColobusError
from colobus.core.files import read_lines
from colobus.core.types import Gradient, Request, Version
from colobus.roles.tracker import Status
from colobus.runtime.devices import CPU, ON_CPU, Placement
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster, ProcessSpec, Room, group_processes
from colobus.runtime.host import RoleHost
from colobus.training.on_ray import OnRay, graph_in_process
from colobus.training.runtimes import Plan
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, dqn, stand_in
from helpers.outcomes import spread
from helpers.servers import server_of
from helpers.tapes import META, Reads

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
    for heartbeat in (None, "on its way"):
        new = heartbeat is None
        process = remote.RemoteProcess(SERVER, MagicMock(), heartbeat=heartbeat, new=new)
        process.begin(1, None, {}, 120.0)
        process.ask_heartbeat()
        assert process.heartbeat == heartbeat  # what it says is not lost
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
    now[0] += 0.1
    assert pauses.around(now[0] - 0.1, 0.1) == 0.0


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


def test_what_no_cluster_has_is_refused(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.runtime.ray import placement

    check_resources = placement.check_resources
    there = {"CPU": 16.0, "GPU": 2.0}
    monkeypatch.setattr(placement, "hosts_there", lambda: {"h1": Room(16.0, 2)})
    monkeypatch.setattr(ray, "cluster_resources", lambda: there)
    monkeypatch.setattr(ray, "available_resources", lambda: there)
    check_resources([LEARNER] * 2, Cluster(), {})
    with pytest.raises(ColobusError, match=r"asks for 3 GPUs, .* has 2, 2 of them free; use fewer"):
        check_resources([LEARNER] * 3, Cluster(), {})
    large = {"learner": 7 * 2**30}
    monkeypatch.setattr(ray, "available_resources", lambda: there | {"memory": 2.0**34})
    with pytest.raises(ColobusError, match=r"7\.0 GiB of memory, and no host has all of it"):
        check_resources([LEARNER], Cluster(), large)
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 16.0})  # Ray leaves out a 0
    with pytest.raises(ColobusError, match=r"asks for 1 GPUs, .* has 2, 0 of them free"):
        check_resources([LEARNER], Cluster(), {})
    mistake = Cluster(place="foo=n1", wait_for_hosts="1h")  # for which no run waits
    with pytest.raises(ColobusError, match=r"^--place foo=n1: the run has no such process"):
        placement.Processes(spread(catch(100))[0], Mock(gpus=False), mistake, 60.0, {})


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


def test_tensors_take_no_code_and_own_memory(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.runtime.ray.process import register_tensors

    taken: dict[str, Callable[[Any], Any]] = {}
    monkeypatch.setattr(ray.util, "register_serializer", lambda _kind, **own: taken.update(own))
    register_tensors()
    make = pickle.loads(pickle.dumps(taken["deserializer"]))  # only what has a name can be pickled
    array = taken["serializer"](torch.arange(3.0))
    array.flags.writeable = False  # as that of the object store
    tensor = make(array)
    tensor += 1
    assert (tensor.tolist(), array.tolist()) == ([1, 2, 3], [0, 1, 2])


def test_a_target_is_not_taken_for_other_parameters_of_its_version(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server mixes its target at the version that it publishes, and both are large."""
    from colobus.runtime.ray import process

    store: list[torch.Tensor] = []

    def put(values: torch.Tensor) -> int:
        store.append(values)
        return len(store) - 1

    monkeypatch.setattr(ray, "put", put)
    monkeypatch.setattr(ray, "get", lambda one, timeout: store[one] if type(one) is int else one)
    monkeypatch.setattr(process, "PUT_BYTES", 0)
    server = server_of(torch.full((64,), 8.0), target_every=1, target_tau=0.25)
    host: Any = process._Host(lambda there: there)
    monkeypatch.setattr(
        RoleHost, "call", lambda _, asked: getattr(server, asked.method)(*asked.args)
    )

    def ask(method: str, *args: Any) -> list[float]:
        answer = host.call(Request(0, "server-0", method, args, {}))
        found = process.answer_of(answer, "server-0")
        values: list[float] = getattr(found, "params", found).values.unique().tolist()
        return values

    for number in range(3):
        gradient = Gradient(0, Version(0, number), 0, 1, 1, 1.0, torch.ones(64))
        newest = ask("exchange", gradient, Version(0, number + 1))
        wanted = [server.values.unique().tolist(), server.pull_target().values.unique().tolist()]
        assert [newest, ask("pull_target")] == wanted
        assert [ask("pull"), ask("pull_target")] == wanted
        assert wanted[0] != wanted[1]
    assert len(store) == 6  # each once


def test_a_call_waits_no_longer_than_a_heartbeat_that_is_on_its_way(
    ray: Any, remote: Any, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[object] = []
    monkeypatch.setattr(ray, "wait", lambda wanted, timeout: (answered, wanted))
    handle = MagicMock()
    process = remote.RemoteProcess(SERVER, handle, heard=now[0])
    asked = handle.heartbeat.options.return_value.remote
    process.ask_heartbeat()
    assert asked.call_count == 0  # it answered just now
    assert process.seconds_left(4.0) == 4.0
    process.ask_heartbeat(at_once=True)
    assert asked.call_count == 1
    now[0] += 1.5
    process.ask_heartbeat(at_once=True)
    assert asked.call_count == 1  # one is on its way
    assert process.seconds_left(4.0) == 2.5
    now[0] += 2.6
    assert process.seconds_left(4.0) == remote.HEARTBEAT_SECONDS
    answered += [process.heartbeat]  # the answer is there, but nobody has looked yet
    assert process.seconds_left(4.0) == 4.0
    assert process.complaint(4.0, deadline=60.0) == "has given no answer for 4.1 s"


def test_a_thread_that_hears_a_sidecar_leaves_heartbeats_to_the_one_that_watches(
    ray: Any, remote: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colobus.runtime.ray import runtime
    from colobus.runtime.ray.placement import Incarnation

    handle = MagicMock()
    process = remote.RemoteProcess(ProcessSpec("tracker", "tracker", ("tracker",), False), handle)
    processes = Mock(incarnation=0, of_role={"tracker": process})
    monkeypatch.setattr(runtime, "Processes", lambda *_: processes)
    monkeypatch.setattr(runtime, "answer_of", lambda reference, role, patience: patience)
    monkeypatch.setattr(ray, "wait", lambda wanted, timeout: ([], wanted))
    graph = RoleGraph()
    graph.add("tracker", "tracker", "tracker", object)
    first = Incarnation(0, lambda: graph)
    place: Any = runtime.Ray(first, lambda _: first, Cluster(silence=4.0), 60.0, print, print)
    tracker = place.roles["tracker"]
    with ThreadPoolExecutor(1) as sidecar:
        assert sidecar.submit(tracker.evaluated, 21.0, 1_000).result() == 4.0
    handle.heartbeat.options.assert_not_called()
    assert process.heartbeat is None
    assert tracker.status() <= 4.0
    handle.heartbeat.options.assert_called_once()
    assert process.heartbeat is not None


@pytest.mark.parametrize(
    ("alive", "asked"), [("abc", "in(b,c)"), ("ac", "in(c)"), ("ad", "!in(a)")]
)
def test_a_sidecar_whose_hosts_are_lost_goes_to_another(
    ray: Any, remote: Any, monkeypatch: pytest.MonkeyPatch, alive: str, asked: str
) -> None:
    """It has to be on b or c, and the command is on a; Ray would wait for ever for hosts of old."""
    begin = Mock(side_effect=LookupError)  # it is known then what Ray is asked for
    nodes = [{"NodeID": name, "Alive": name in alive} for name in "abcd"]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray, "remote", lambda _kind: Mock(options=begin))
    monkeypatch.setattr(ray, "get_runtime_context", lambda: Mock(get_node_id=lambda: "a"))
    with pytest.raises(LookupError):
        remote.Errands("evaluator", 1.0, print, ["b", "c"])([], {})
    assert begin.call_args.kwargs["label_selector"] == {remote.NODE: asked}


def test_a_loss_is_told_in_seconds_of_the_run_with_what_its_buffer_kept(
    ray: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run of one learner began 500 s ago, 480 of which it waited for hosts; more is lost."""
    from colobus.runtime.ray import runtime

    launched = MagicMock()
    launched.return_value.processes.late = 480.0
    monkeypatch.setattr(runtime, "Ray", launched)
    monkeypatch.setattr("colobus.core.files.now", lambda: 1_500.0)
    experiment, lines = dqn(catch(100)), list[str]()
    about = (imagined_start(experiment), None, 1_000.0, make_graph, ON_CPU, lines.append)
    plan = Plan(experiment, tmp_path, stand_in(None), *about)
    heard = [Status(steps=5_000)]
    OnRay().launch(plan, lambda: heard[-1])
    _, restore, *_ = launched.call_args.args
    restore(0)
    restore(1)  # before anything was heard of what began again
    heard.append(Status(steps=300))
    restore(2)
    events = list(read_lines(tmp_path / "events.jsonl"))
    assert {(event["event"], event["seconds"]) for event in events} == {("restored", 20.0)}
    assert [e["lost_experience"] for e in events] == [900, 0, 300]
    assert [e["lost_steps"] for e in events] == [5_000, 0, 300]
    assert lines[-1] == "all replay buffers begin empty: they kept 300 steps"
