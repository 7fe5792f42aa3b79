"""A profile: what its trace holds, how ranges lie in one another, and that nobody else pays."""

from __future__ import annotations

import io
import json
import re
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from rich.console import Console

from colobus.cli.bench import shares_table, show_profile
from colobus.cli.display import Printer
from colobus.cli.profiler import (
    INSIDE,
    OTHER,
    MarkedClock,
    Tracer,
    marked_graph,
    own_seconds,
    profile,
)
from colobus.core.errors import ColobusError
from colobus.core.timing import Clock
from colobus.experiment.settings import Experiment
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import short_pong

ACTOR = {"wait for room", "wait for parameters", "load parameters", "act", "emulate", "send"}
LEARNER = {
    "wait for experience",
    "assemble",
    "learn",
    "prepare",
    "minibatch",
    "backward",
    "admission",
    "optimizer step",
    "publish",
    "push",
    "report",
    "end round",
}


class Event(NamedTuple):
    name: str
    start: float  # microseconds
    end: float
    kind: str


def threads_in(trace: Path) -> dict[str, list[Event]]:
    """Return what a trace has by the names of threads, in the order of their starts."""
    events: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, list[Event]] = {}
    for e in events:
        if e["ph"] == "X" and e["tid"] in names:
            one = Event(e["name"], e["ts"], e["ts"] + e["dur"], e["cat"])
            found.setdefault(names[e["tid"]], []).append(one)
    return {name: sorted(all_, key=lambda s: (s.start, -s.end)) for name, all_ in found.items()}


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


def profiled_for_long(experiment: Experiment, trace: Path, roles: int) -> dict[str, Any]:
    """Profile three seconds, or on a slow machine as many as some rounds of each learner take."""
    for seconds in (3.0, 9.0, 30.0):
        try:
            result = profile(experiment, seconds, trace)
        except ColobusError:  # it was over before anything was traced
            continue
        found = threads_in(trace)
        learners = [found[name] for name in found if name.startswith("learner")]
        rounds = [[event.name for event in one].count("learn") for one in learners]
        threads = [name for name in found if name.startswith(("actor", "learner"))]
        if len(threads) == roles and min(rounds) >= 2:
            break
    return result


@pytest.fixture(scope="module")
def pong(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Return the result and the trace of some seconds of real Pong."""
    trace = tmp_path_factory.mktemp("profile") / "trace.json"
    return profiled_for_long(short_pong(1), trace, 3), trace


@pytest.mark.slow
def test_a_trace_has_all_threads_and_all_stages(pong: tuple[dict[str, Any], Path]) -> None:
    threads = threads_in(pong[1])
    assert {"actor-0", "actor-1", "learner-0"} <= set(threads)
    for role, stages in (("actor-0", ACTOR), ("actor-1", ACTOR), ("learner-0", LEARNER)):
        found = {event.name: event.kind for event in threads[role] if event.kind != "cpu_op"}
        assert stages <= set(found)
        for name, kind in found.items():
            assert kind == ("waiting" if name.startswith("wait") else "busy")


@pytest.mark.slow
def test_what_is_inside_is_inside(pong: tuple[dict[str, Any], Path]) -> None:
    learner = parents_in(threads_in(pong[1])["learner-0"])
    assert learner["minibatch"] >= {"learn"}
    assert "minibatch" in learner["backward"]
    assert "learn" in learner["prepare"]
    assert "push" in learner["publish"]
    assert "wait for experience" in learner["assemble"]
    assert "backward" in learner["aten::convolution_backward"]
    assert "optimizer step" in learner["aten::_fused_adam_"]  # one may have begun before the trace
    assert "act" in parents_in(threads_in(pong[1])["actor-0"])["aten::conv2d"]


@pytest.mark.slow
def test_shares_are_1_together(pong: tuple[dict[str, Any], Path]) -> None:
    result, trace = pong
    assert result["trace"] == str(trace)
    assert set(result["threads"]) == {"actor-0", "actor-1", "learner-0"}
    for shares in result["threads"].values():
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.002)
        assert min(shares.values()) >= -0.0001
    learner = result["threads"]["learner-0"]
    assert set(learner) >= LEARNER | {OTHER}
    assert learner["backward"] > learner["publish"]
    assert result["achieved_steps_per_s"] >= 0


def test_own_seconds_leave_out_what_is_inside() -> None:
    ranges = [
        ("wait", 150.0, 1000.0),
        ("learn", 0.0, 100.0),
        ("minibatch", 10.0, 40.0),
        ("backward", 20.0, 30.0),
        ("minibatch", 50.0, 60.0),
        ("push", 100.0, 130.0),
    ]
    assert {stage: round(1e6 * spent) for stage, spent in own_seconds(ranges).items()} == {
        "learn": 60,
        "minibatch": 30,
        "backward": 10,
        "push": 30,
        "wait": 850,
    }


def test_a_trace_has_what_all_threads_did_since_it_began(tmp_path: Path) -> None:
    done, over = {"actor-0": 0, "learner-0": 0}, threading.Event()

    def work(name: str) -> None:
        while not over.is_set():
            with torch.profiler.record_function("learn"):
                done[name] += 1
            time.sleep(0.001)

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in done]
    for thread in threads:
        thread.start()
    tracer = Tracer()
    tracer.begin()
    before = dict(done)
    while any(done[name] < before[name] + 3 for name in done):  # whole ranges of each
        time.sleep(0.001)
    over.set()
    for thread in threads:
        thread.join()
    tracer.end()
    shares = tracer.write(tmp_path / "trace.json")
    assert {name: set(stages) for name, stages in shares.items()} == {
        name: {"learn", OTHER} for name in done
    }


@pytest.mark.slow
def test_who_is_not_profiled_has_nothing_around_it() -> None:
    experiment = short_pong(1)
    plain = make_graph(experiment, begin(experiment), None).build()
    marked = marked_graph(make_graph, experiment, begin(experiment), None).build()
    assert plain.keys() == marked.keys()
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


def test_shares_of_time_are_a_table() -> None:
    threads = {
        "actor-0": {"wait for room": 0.25, "emulate": 0.5, "between stages": 0.25},
        "learner-0": {"wait for experience": 0.1, "forward": 0.6, "between stages": 0.3},
    }
    result = {"achieved_steps_per_s": 1234.5, "threads": threads, "trace": "a.json"}
    text = printed(result)
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


def printed(result: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=100, soft_wrap=True)
    show_profile(Printer(console=console), result)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
