"""How long the process that watches over a run waits for one that gives no answer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch

from colobus.cli.show import imagined_start
from colobus.core.files import read_lines
from colobus.core.types import Gradient, Request, Version
from colobus.roles.tracker import Status
from colobus.runtime.devices import ON_CPU
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster, ProcessSpec
from colobus.runtime.host import RoleHost
from colobus.training.on_ray import OnRay
from colobus.training.runtimes import Plan
from colobus.training.topology import make_graph
from conftest import catch, dqn, stand_in
from helpers.servers import server_of

pytestmark = pytest.mark.cluster


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
    spec, handle = ProcessSpec("server-0", "server", ("server-0",), False), MagicMock()
    process = remote.RemoteProcess(spec, handle, heard=now[0])
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
    """The run of one learner began 500 s ago, of which it has waited 480 for hosts."""
    from colobus.runtime.ray import runtime

    launched = MagicMock()
    launched.return_value.processes.late = 480.0
    monkeypatch.setattr(runtime, "Ray", launched)
    monkeypatch.setattr("colobus.core.files.now", lambda: 1_500.0)
    experiment, lines = dqn(catch(100)), list[str]()
    about = (imagined_start(experiment), None, 1_000.0, make_graph, ON_CPU, lines.append)
    plan = Plan(experiment, tmp_path, stand_in(None), *about)
    OnRay().launch(plan, lambda: Status(steps=5_000))
    _, restore, *_ = launched.call_args.args
    restore(0)
    (event,) = read_lines(tmp_path / "events.jsonl")
    assert (event["event"], event["seconds"]) == ("restored", 20.0)
    assert (event["lost_steps"], event["lost_experience"]) == (5_000, 900)
    assert lines[-1] == "all replay buffers begin empty: they kept 900 steps"
