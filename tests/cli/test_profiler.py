"""What ``colobus bench`` measures: a profile's trace and its ranges, and the machine's limit.

Who is not profiled pays for nothing, and the stages of the limit share nothing with roles or
algorithms.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import torch

from colobus.algorithms.dqn import DQN
from colobus.cli import throughput
from colobus.cli.bench import shares_table, show_profile, table_of
from colobus.cli.display import Printer
from colobus.cli.profiler import (
    INSIDE,
    OTHER,
    TRACER,
    MarkedClock,
    Tracer,
    join,
    own_seconds,
    profile,
    traced_graph,
)
from colobus.cli.throughput import act, emulate, learn, limit_of, stage_rates, steady_rate
from colobus.core.errors import Closed
from colobus.core.timing import Clock
from colobus.envs.api import GameSettings
from colobus.experiment.presets import PRESETS
from colobus.nets.network import NetworkSettings
from colobus.nets.torsos import Torso
from colobus.runtime.api import RoleState
from colobus.runtime.devices import CPU, Devices, Placement
from colobus.runtime.groups import Cluster
from colobus.training.callbacks import StopTraining
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import reshaped, short_pong
from helpers.launching import colobus, on_a_thread, told
from helpers.players import make_experiment
from helpers.ray_runs import PATIENT
from helpers.tapes import META
from helpers.variants import with_network

ACTOR = {"wait for room", "wait for parameters", "load parameters", "act", "emulate", "send"}
LEARNER = {"wait for experience", "assemble", "learn", "prepare", "minibatch", "backward"}
LEARNER |= {"admission", "optimizer step", "publish", "push", "report", "end round"}


class Event(NamedTuple):
    name: str
    start: float  # microseconds
    end: float
    kind: str


def processes_in(trace: Path) -> dict[str, dict[str, list[Event]]]:
    """Return what a trace has by process and thread, in the order of the starts."""
    events: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    named = [e for e in events if "name" in e.get("args", {})]
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in named}
    found: dict[str, dict[str, list[Event]]] = {}
    for e in events:
        if e["ph"] == "X":
            process = names["process_name", e["pid"], 0].partition(" on ")[0]
            thread = names["thread_name", e["pid"], e["tid"]]
            one = Event(e["name"], e["ts"], e["ts"] + e["dur"], e["cat"])
            found.setdefault(process, {}).setdefault(thread, []).append(one)
    for threads in found.values():
        for all_ in threads.values():
            all_.sort(key=lambda s: (s.start, -s.end))
    return found


def parents_in(events: list[Event]) -> dict[str, set[str]]:
    """Return by name the stages around it; fail if two overlap without one in the other."""
    parents: dict[str, set[str]] = {}
    around: list[Event] = []
    for event in events:
        while around and around[-1].end <= event.start:
            around.pop()
        assert not around or event.end <= around[-1].end + 1, f"{event} in {around[-1]}"
        stages = [one.name for one in around if one.kind != "cpu_op"]
        parents.setdefault(event.name, set()).add(stages[-1] if stages else "")
        around.append(event)
    return parents


@pytest.mark.slow
def test_a_trace_of_pong_has_all_stages_in_place_and_shares_of_1(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    for seconds in (3.0, 9.0, 30.0, 120.0):  # on a slow machine as long as some rounds take
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("colobus.cli.profiler.TRACED_SECONDS", seconds)
            result = profile(short_pong(1), seconds, trace)
        (threads,) = processes_in(trace).values()
        rounds = [event.name for event in threads.get("learner-0", ())].count("learn")
        if {"actor-0", "actor-1"} <= threads.keys() and rounds >= 2:
            break
    for role, stages in (("actor-0", ACTOR), ("actor-1", ACTOR), ("learner-0", LEARNER)):
        found = {event.name: event.kind for event in threads[role] if event.kind != "cpu_op"}
        assert stages <= set(found)
        for name, kind in found.items():
            assert kind == ("waiting" if name.startswith("wait") else "busy")

    parents = parents_in(threads["learner-0"])
    assert parents["minibatch"] >= {"learn"}
    assert "minibatch" in parents["backward"]
    assert "learn" in parents["prepare"]
    assert "push" in parents["publish"]
    assert "wait for experience" in parents["assemble"]
    assert "backward" in parents["aten::convolution_backward"]
    assert "optimizer step" in parents["aten::_fused_adam_"]  # one may have begun before the trace
    assert "act" in parents_in(threads["actor-0"])["aten::conv2d"]

    assert result["trace"] == str(trace)
    assert set(result["threads"]) == {"actor-0", "actor-1", "learner-0"}
    for shares in result["threads"].values():
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.002)
        assert min(shares.values()) >= -0.0001
    learner = result["threads"]["learner-0"]
    assert set(learner) >= LEARNER | {OTHER}
    assert learner["backward"] > learner["publish"]
    assert result["achieved_steps_per_s"] >= 0


def test_threads_have_names_also_where_torch_gave_them_none(tmp_path: Path) -> None:
    ranges = [
        {"ph": "X", "pid": 31, "tid": thread, "name": "act", "ts": 0, "dur": 5e5, "cat": kind}
        for thread, kind in ((31, "user_annotation"), (32, "cpu_op"))
    ]
    about = {"name": "run", "process": 31, "began": 1.0, "ended": 2.0, "threads": {31: "actor-0"}}
    trace = {TRACER: about, "baseTimeNanoseconds": 1e9, "traceEvents": ranges}
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "run").write_bytes(gzip.compress(json.dumps(trace).encode()))
    begin, shares = join(tmp_path / "traces", tmp_path / "trace.json")
    assert (begin, shares) == (1.0, {"actor-0": {"act": 0.5, OTHER: 0.5}})
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {one["tid"]: one["args"]["name"] for one in events if one["ph"] == "M"}
    assert named == {0: "run", 31: "actor-0", 32: "run"}


def test_own_seconds_leave_out_what_is_inside() -> None:
    ranges = [
        ("wait", 150.0, 1000.0),
        ("learn", 0.0, 100.0),
        ("minibatch", 10.0, 40.0),
        ("backward", 20.0, 30.0),
        ("minibatch", 50.0, 60.0),
        ("push", 100.0, 130.0),
    ]
    found = {stage: round(1e6 * spent) for stage, spent in own_seconds(ranges).items()}
    assert found == {"learn": 60, "minibatch": 30, "backward": 10, "push": 30, "wait": 850}


@pytest.mark.slow
def test_a_tracer_ends_with_its_run(tmp_path: Path) -> None:
    """It waits for a process that never comes, or for ten minutes, until it is closed."""
    for count, seconds in ((2, 3.0), (1, 600.0)):
        tracer = Tracer("main", None, tmp_path, count, seconds)
        waiting = on_a_thread(tracer.step)
        while tracer.clock.stage != "wait for the trace":
            time.sleep(0.001)
        tracer.close()
        with pytest.raises(Closed):
            waiting.result()
        assert not tracer.finished


class Profiler(Mock):
    """Stands for torch's, whose trace may begin late."""

    def start_trace(self) -> None:
        time.sleep(self.late)

    def add_metadata_json(self, _: str, about: str) -> None:
        self.about = about

    def export_chrome_trace(self, file: str) -> None:
        Path(file).write_text(self.about)


def test_no_trace_ends_before_all_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is first goes on until the last has begun, however long that takes."""
    made = iter([Profiler(late=0.0), Profiler(late=0.2)])
    monkeypatch.setattr("torch.profiler.profile", lambda **_: next(made))
    first = Tracer("main", None, tmp_path, 2, 0.03)
    tracers = (first, Tracer("worker-0", first, tmp_path, 2, 0.03))
    for done in [on_a_thread(tracer.step) for tracer in tracers]:
        done.result()
    assert all(tracer.finished for tracer in tracers)
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in tmp_path.iterdir()]
    assert len({trace["name"] for trace in traces}) == 2
    assert max(trace["began"] for trace in traces) < min(trace["ended"] for trace in traces)


RAY = {
    "dba3c-catch --workers 2 --servers 1": {
        "tracker": {"count"},
        "server-0": {"admission", "take a gradient", "optimizer step", "publish"},
        "worker-0": ACTOR | LEARNER - {"admission", "optimizer step"},
        "worker-1": ACTOR | LEARNER - {"admission", "optimizer step"},
    },
    "gorila-catch --workers 0 --actors 1 --learners 1 --servers 1": {
        "tracker": {"count"},
        "server-0": {"admission", "optimizer step", "publish"},
        "replay-0": {"send", "assemble"},
        "actor-0": {"act", "emulate", "send"},
        "learner-0": {"wait for experience", "learn", "backward", "push"},
    },
}
"""Stages of each process, by the words of a run on Ray."""


@pytest.mark.cluster
@pytest.mark.parametrize("words", RAY)
def test_a_trace_of_ray_has_all_processes_on_one_axis(tmp_path: Path, words: str) -> None:
    trace = tmp_path / "trace.json"
    more = ("--profile", trace, "--seconds", 24, "--on", "ray", "--cpus", 0.1, "--json", *PATIENT)
    for _ in range(3):  # on a slow machine not every stage begins and ends within a trace
        code, out, err = colobus("bench", *words.split(), *more)
        assert code == 0, err
        found = processes_in(trace)
        stages = {
            process: {e.name for own in threads.values() for e in own if e.kind != "cpu_op"}
            for process, threads in found.items()
        }
        if all(wanted <= stages.get(process, set()) for process, wanted in RAY[words].items()):
            break
    assert stages.keys() == RAY[words].keys()
    for process, own_stages in stages.items():
        assert RAY[words][process] <= own_stages, process
    about = json.loads(trace.read_text())["processes"]
    assert len({process["process"] for process in about}) == len(stages)
    assert max(one["began"] for one in about) < min(one["ended"] for one in about)
    for threads in found.values():
        for own in threads.values():
            parents_in([event for event in own if event.kind != "cpu_op"])
    shares = json.loads(out)["threads"]
    assert {"actor", "learner", "calls of server", "calls of tracker"} <= set(shares)
    for own_shares in shares.values():
        assert sum(own_shares.values()) == pytest.approx(1.0, abs=0.002)
    if "dba3c" in words:  # whose learners wait for the step that their gradients are for
        learners = [found[name][f"learner-{i}"] for i, name in enumerate(("worker-0", "worker-1"))]
        waits = []  # from the push of a gradient to the end of the next wait for parameters
        for own in learners:
            pushes = [e.start for e in own if e.name == "push"]
            for wait in (e for e in own if e.name == "wait for parameters"):
                begun = max((at for at in pushes if at <= wait.start), default=wait.start)
                waits.append((begun, wait.end))
        first, last = min(begun for begun, _ in waits), max(end for _, end in waits)
        steps = [e for own in found["server-0"].values() for e in own if e.name == "optimizer step"]
        inner = [step for step in steps if first < step.start < last]
        assert inner
        assert all(any(begun <= step.start <= end for begun, end in waits) for step in inner)


@pytest.mark.slow
def test_who_is_not_profiled_has_nothing_around_it(tmp_path: Path) -> None:
    experiment = short_pong(1)
    plain = make_graph(experiment, begin(experiment), None).build()
    marked = traced_graph(None, tmp_path, 1.0, experiment, begin(experiment), None).build()
    assert marked.keys() - plain.keys() == {"tracer-main"}
    for name, role in plain.items():
        assert isinstance(marked[name], type(role))
        if hasattr(role, "clock"):
            assert (type(role.clock), type(marked[name].clock)) == (Clock, MarkedClock)
        both = [(role, marked[name])]
        if hasattr(role, "compute"):
            both.append((role.compute, marked[name].compute))
        for part, other in both:
            wrapped = {path for path in INSIDE.get(type(part), {}) if "." not in path}
            assert wrapped & set(vars(part)) == set()
            assert wrapped <= set(vars(other))


def test_shares_of_time_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    threads = {
        "actor-0": {"wait for room": 0.25, "emulate": 0.5, "between stages": 0.25},
        "learner-0": {"wait for experience": 0.1, "forward": 0.6, "between stages": 0.3},
    }
    result = {"achieved_steps_per_s": 1234.5, "threads": threads, "trace": "a.json"}
    show_profile(Printer(), result)
    text = capsys.readouterr().out
    assert "training reaches 1,234 steps/s" in text
    assert "trace: a.json" in text
    assert re.search(r"^ between stages +25.0 % +30.0 %", text, re.MULTILINE)
    table = shares_table(threads)
    assert table.columns == ("stage", "actor-0>", "learner-0>")
    assert table.rows == (
        ("forward", "", "60.0 %"),
        ("emulate", "50.0 %", ""),
        ("wait for room", "25.0 %", ""),
        ("wait for experience", "", "10.0 %"),
        ("busy", "50.0 %", "60.0 %"),
        ("waiting", "25.0 %", "10.0 %"),
        ("between stages", "25.0 %", "30.0 %"),
    )


EXPERIMENT = replace(short_pong(1), network=NetworkSettings(precision="float32"))
SHAPE = EXPERIMENT.shape

Looks = list[tuple[int, bool]]
"""What a network was shown: samples, and whether gradients were wanted."""
During = Callable[[Callable[[], int]], tuple[int, Looks]]


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> During:
    """Do a work; return what it counts, and the looks that it took."""
    seen: Looks = []
    forward = Torso.forward

    def noted(torso: Torso, stacks: torch.Tensor) -> torch.Tensor:
        seen.append((len(stacks), torch.is_grad_enabled()))
        return forward(torso, stacks)

    def during(work: Callable[[], int]) -> tuple[int, Looks]:
        seen.clear()
        return work(), list(seen)

    monkeypatch.setattr(Torso, "forward", noted)
    return during


@pytest.mark.slow
def test_stages_count_and_look_as_often_as_training_does(during: During) -> None:
    start = begin(EXPERIMENT)
    assert during(emulate(EXPERIMENT, start, 0)) == (16 * SHAPE.games, [])
    acting = during(act(EXPERIMENT, start, 0))
    assert acting == (16 * SHAPE.games, [(SHAPE.games, False)] * 16)
    samples, seen = during(learn(EXPERIMENT, start, 0))
    assert samples == SHAPE.datapoints == 64
    epochs, minibatches = EXPERIMENT.algorithm.epochs, 64 // EXPERIMENT.algorithm.minibatch
    values = [32, 32, 4]  # 4 windows have 68 observations
    assert seen == [*((n, False) for n in values), *([(32, True)] * epochs * minibatches)]


@pytest.mark.slow
def test_agents_with_policies_of_their_own_act() -> None:
    pair = with_network(PRESETS["catch-pair"], policies="separate")
    assert act(pair, begin(pair), 0)() == 16 * pair.shape.games


def test_what_acts_does_not_see_the_masks_of_actions() -> None:
    settings = GameSettings(game="helpers.gym_toys:doors_by_key")
    doors = make_experiment(settings, stack=1, torso="mlp")
    doors = reshaped(doors, random_steps=64)
    assert act(doors, begin(doors), 0)() == 16 * doors.shape.games


@pytest.mark.slow
def test_a_replay_is_sampled_as_often_as_the_preset_says(during: During) -> None:
    dqn, precision = PRESETS["dqn-pong"], EXPERIMENT.network
    games = replace(dqn.games, game="pong")
    dqn = replace(dqn, games=games, network=precision, shape=replace(dqn.shape, random_steps=64))
    start = begin(dqn)
    # eight windows of 32 steps for 64 steps played, after a look at 33 observations of each
    assert during(learn(dqn, start, 0)) == (64, [(8 * 33, False), (8 * 32, True)])
    one_step = replace(dqn, algorithm=DQN(n=3), replay=replace(dqn.replay, samples_per_insert=1.0))
    assert during(learn(one_step, start, 0)) == (8, [(8 * 2, False), (8, True)])


def test_stages_come_one_after_the_other_but_host_and_gpu_work_at_the_same_time() -> None:
    assert limit_of({"emulate": 2.0, "act": 4.0, "learn": 4.0}) == 1.0
    rates = {"emulate": 6.0, "act": 4.0, "learn": 4.0, "feed": 3.0}
    gpu = torch.device("cuda", 0)
    assert limit_of(rates, Placement(gpu, gpu)) == 2.0  # emulate and feed; act and learn
    assert limit_of(rates | {"feed": 30.0}, Placement(gpu, gpu)) == 2.0
    assert limit_of(rates, Placement(gpu, CPU)) == pytest.approx(4 / 3)
    assert limit_of(rates | {"emulate": 2.0}, Placement(CPU, gpu)) == pytest.approx(4 / 3)


@pytest.mark.processes
def test_stages_of_a_device_are_measured_there() -> None:
    catch = replace(PRESETS["catch"], seed=2)
    placement = Placement(META, META)
    rates = stage_rates(catch, begin(catch), 0.05, lambda _: None, placement)
    assert list(rates) == ["emulate", "feed", "act", "learn"]
    assert min(rates.values()) > 0


def test_how_long_learner_and_loader_wait() -> None:
    spent = {
        "loader-0": {"wait for experience": 3.0, "load": 1.0},
        "learner-0": {"wait for experience": 1.0, "wait for parameters": 2.0, "learn": 7.0},
        "learner-1": {},
    }
    roles = [RoleState(name, "", False, 0.0, 1, s, False, False) for name, s in spent.items()]
    shares = throughput.waiting_shares(roles)
    assert shares == {"loader_waits": 0.75, "learner_waits": 0.3, "learner_waits_for_batch": 0.1}


@pytest.mark.processes
def test_bench_measures_stages_and_the_share_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages run in a process of their own, here in one instead of one for each core."""
    monkeypatch.setattr("colobus.cli.throughput.usable_cores", lambda: 1)
    rates = told("bench", "catch", "--seconds", 6)
    stages = [name for name in rates if name.endswith(("_samples_per_s", "_steps_per_s"))]
    assert stages[:3] == ["emulate_steps_per_s", "act_samples_per_s", "learn_samples_per_s"]
    assert min(rates[name] for name in stages[:3]) > 0
    assert rates["limit_steps_per_s"] > 0
    assert 0 <= rates["learner_waits_for_batch"] <= rates["learner_waits"] <= 1
    assert "loader_waits" not in rates
    share = rates["share_of_limit"]
    achieved = rates["achieved_steps_per_s"]
    assert share == pytest.approx(achieved / rates["limit_steps_per_s"], abs=1e-3)
    table = table_of(rates)
    assert table.title.startswith(f"catch on {rates['machine']['cores']} cores (")
    assert table.rows[0] == ("emulate, all cores", f"{rates['emulate_steps_per_s']:,.0f}")
    assert ("share of the limit", f"{100 * share:.0f} %") in table.rows


@pytest.mark.parametrize(
    ("name", "cluster", "devices"),
    [
        ("auto", Cluster(), ("cpu", "cpu")),
        ("cuda", Cluster(), ("cuda:0", "cpu")),
        ("auto", None, ("cuda:0", "cuda:0")),
    ],
)
def test_the_limit_is_that_of_the_devices_of_its_training(
    name: str, cluster: Cluster | None, devices: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with a GPU: on Ray actors have none, and auto is the CPU."""
    prepare = Mock(side_effect=StopTraining)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.backends.cuda.is_built", lambda: True)
    for done in ("open_games", "begin"):
        monkeypatch.setattr(f"colobus.cli.throughput.{done}", lambda *_: None)
    monkeypatch.setattr("colobus.cli.throughput.prepare", prepare)
    with pytest.raises(StopTraining):
        throughput.bench(EXPERIMENT, 1.0, lambda _: None, cluster, Devices(name))
    used: Placement = prepare.call_args.args[0]
    assert (str(used.learn), str(used.act)) == devices


def test_a_training_is_measured_from_its_first_version_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of Ray that took a minute to begin left nothing of the time that was asked for."""

    def begins_late(*_: Any, watch: Callable[..., None], **__: Any) -> SimpleNamespace:
        for second in range(500):
            version = max(second - 60, 0)
            steps = 4096 + 10 * version  # it begins with random ones
            status = SimpleNamespace(seconds=float(second), steps=steps, version=version)
            try:
                watch(status, [])
            except StopTraining:
                return SimpleNamespace(status=status, interrupted=False)
        raise AssertionError("it was not ended")

    monkeypatch.setattr("colobus.cli.throughput.train", begins_late)
    counts, _ = throughput.trained(EXPERIMENT, 20.0, None, None, lambda _: None)
    assert (counts[0], counts[-1]) == ((61.0, 4106), (81.0, 4306))
    assert steady_rate(counts) == 10.0
    assert steady_rate([(2.0, 100), (4.0, 900), (6.0, 1300)]) == 200.0  # without its first part
    assert steady_rate([(1.0, 0), (2.0, 0)]) == 0.0
