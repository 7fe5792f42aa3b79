"""Spans: what a trace holds, how they lie in one another, and that nobody else pays for them."""

from __future__ import annotations

import io
import json
import re
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from conftest import distributed_catch, short_pong
from gelada.cli.bench import show_short_run
from gelada.cli.display import Printer
from gelada.cli.perf.profiler import INSIDE, OTHER, Span, Spans, between_clocks, nested, own_seconds
from gelada.cli.perf.short_run import measure_run, train_once
from gelada.core.timing import Clock
from gelada.experiment.settings import Experiment

ACTOR = {
    "wait for room",
    "wait for parameters",
    "load parameters",
    "start games",
    "act",
    "emulate",
    "send",
}
LEARNER = {
    "wait for experience",
    "assemble",
    "learn",
    "prepare",
    "forward",
    "backward",
    "admission",
    "optimizer step",
    "publish",
    "push",
    "report",
    "end round",
    "wait for parameters",
}


class Event(NamedTuple):
    stage: str
    start: int  # ns
    end: int
    kind: str


def threads_in(trace: Path) -> dict[str, list[Event]]:
    """Return the spans of a trace by the names of their threads, in the order of their starts."""
    events: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, list[Event]] = {name: [] for name in names.values()}
    for e in events:
        if e["ph"] == "X":
            start = round(1000 * e["ts"])
            found[names[e["tid"]]].append(
                Event(e["name"], start, start + round(1000 * e["dur"]), e["cat"])
            )
    return {name: sorted(spans, key=lambda s: (s.start, -s.end)) for name, spans in found.items()}


def stages_in(trace: Path) -> dict[str, list[Event]]:
    """Return the spans of a trace that are no operators."""
    found = threads_in(trace)
    return {name: [s for s in spans if s.kind != "operator"] for name, spans in found.items()}


def outermost(spans: list[Event]) -> list[Event]:
    """Return the spans that are in no other; fail if two overlap without one in the other."""
    outer: list[Event] = []
    around: list[Event] = []
    for span in spans:
        while around and around[-1].end <= span.start:
            around.pop()
        if around:
            assert span.end <= around[-1].end, f"{span} goes beyond {around[-1]}"
        else:
            outer.append(span)
        around.append(span)
    return outer


def rounds_around(trace: Path, learner: str) -> tuple[int, int]:
    """Return how many rounds ended before operators were taken down, and how many began later."""
    spans = threads_in(trace)[learner]
    since = min((span.start for span in spans if span.kind == "operator"), default=float("inf"))
    rounds = [span for span in spans if span.stage == "learn"]
    return sum(r.end <= since for r in rounds), sum(r.start >= since for r in rounds)


def profile(experiment: Experiment, trace: Path) -> dict[str, Any]:
    """Profile two seconds, or on a slow machine as many as some rounds of each learner take."""
    for seconds in (2.0, 8.0, 32.0):
        result = measure_run(experiment, seconds, trace=trace)
        learners = [name for name in threads_in(trace) if name.startswith("learner")]
        if min(min(rounds_around(trace, name)) for name in learners) >= 2:
            break
    return result


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Return the result and the trace of some seconds of real Pong."""
    trace = tmp_path_factory.mktemp("profile") / "trace.json"
    return profile(short_pong(1), trace), trace


@pytest.mark.slow
def test_a_trace_has_all_threads_and_all_stages(profiled: tuple[dict[str, Any], Path]) -> None:
    threads = stages_in(profiled[1])
    assert set(threads) == {"actor-0", "actor-1", "learner-0"}
    for actor in ("actor-0", "actor-1"):
        assert {span.stage for span in threads[actor]} == ACTOR
    assert {span.stage for span in threads["learner-0"]} == LEARNER
    for spans in threads.values():
        for span in spans:
            assert span.kind == ("waiting" if span.stage.startswith("wait") else "busy")


@pytest.mark.slow
def test_spans_of_a_thread_nest_or_follow_within_the_wall_time(
    profiled: tuple[dict[str, Any], Path],
) -> None:
    for spans in stages_in(profiled[1]).values():
        outer = outermost(spans)
        wall = max(span.end for span in spans) - min(span.start for span in spans)
        assert 0 < sum(span.end - span.start for span in outer) <= wall


@pytest.mark.slow
def test_there_are_as_many_spans_as_there_was_work(profiled: tuple[dict[str, Any], Path]) -> None:
    """Trajectories of 16 steps; batches of 64 samples, 3 passes, minibatches of 32."""
    threads = stages_in(profiled[1])
    for actor in ("actor-0", "actor-1"):
        counts = Counter(span.stage for span in threads[actor])
        assert counts["send"] >= 2
        assert counts["emulate"] == 16 * counts["send"]
        assert counts["act"] == 33 * counts["send"]  # before and after, and log-probabilities
        assert counts["start games"] == 1
    counts = Counter(span.stage for span in threads["learner-0"])
    rounds = counts["learn"]
    assert rounds >= 2
    for stage in ("prepare", "publish", "push", "report", "end round", "assemble"):
        assert counts[stage] == rounds, stage
    for stage in ("forward", "backward", "admission", "optimizer step"):
        assert counts[stage] == 6 * rounds, stage


@pytest.mark.slow
def test_what_is_inside_is_inside(profiled: tuple[dict[str, Any], Path]) -> None:
    spans = stages_in(profiled[1])["learner-0"]
    parents: dict[str, set[str]] = {}
    around: list[Event] = []
    for span in spans:
        while around and around[-1].end <= span.start:
            around.pop()
        parents.setdefault(span.stage, set()).add(around[-1].stage if around else "")
        around.append(span)
    assert parents["forward"] == parents["backward"] == parents["prepare"] == {"learn"}
    assert parents["optimizer step"] == {"learn", "push"}  # the last of a round is pushed apart
    assert parents["publish"] == {"push"}
    assert parents["assemble"] == {"wait for experience"}


@pytest.mark.slow
def test_operators_come_after_some_rounds_and_lie_in_their_stages(
    profiled: tuple[dict[str, Any], Path],
) -> None:
    assert min(rounds_around(profiled[1], "learner-0")) >= 2
    homes: dict[str, set[str]] = {}
    for name, spans in threads_in(profiled[1]).items():
        around: list[Event] = []
        for span in spans:
            while around and around[-1].end <= span.start:
                around.pop()
            stage = next((s.stage for s in reversed(around) if s.kind != "operator"), "")
            if span.kind == "operator":
                homes.setdefault(f"{name[:5]} {span.stage}", set()).add(stage)
            around.append(span)
    assert homes["actor aten::conv2d"] == {"act"}
    assert homes["learn aten::conv2d"] == {"prepare", "forward"}
    assert homes["learn aten::convolution_backward"] == {"backward"}
    assert homes["learn aten::_fused_adam_"] == {"optimizer step"}


def test_what_crosses_an_edge_is_cut_off_there() -> None:
    pairs = [
        (Span("act", 0, 100), "busy"),
        (Span("late", 90, 103), "operator"),
        (Span("inner", 95, 102), "operator"),
        (Span("emulate", 100, 200), "busy"),
        (Span("fits", 120, 130), "operator"),
    ]
    assert [tuple(span) for span, _ in nested(pairs[::-1])] == [
        ("act", 0, 100),
        ("late", 90, 100),
        ("inner", 95, 100),
        ("emulate", 100, 200),
        ("fits", 120, 130),
    ]


def test_operators_never_cut_a_stage() -> None:
    """One between two stages may seem to end in the second, by another clock."""
    pairs = [
        (Span("wait", 0, 100), "waiting"),
        (Span("between", 105, 130), "operator"),
        (Span("its part", 107, 125), "operator"),
        (Span("learn", 120, 200), "busy"),
        (Span("at once", 120, 140), "operator"),
        (Span("forward", 150, 190), "busy"),
        (Span("kernel", 185, 195), "operator"),
    ]
    assert [tuple(span) for span, _ in nested(pairs)] == [
        ("wait", 0, 100),
        ("between", 105, 120),
        ("its part", 107, 120),
        ("learn", 120, 200),
        ("at once", 120, 140),
        ("forward", 150, 190),
        ("kernel", 185, 190),
    ]


def test_a_thread_that_has_to_wait_between_two_clocks_does_not_shift_all_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, reads = [1_000], [0]

    def read() -> int:
        """It waits before the second of three readings, but not the 50th time."""
        reads[0] += 1
        now[0] += 5_000_000 if reads[0] % 3 == 2 and reads[0] != 149 else 20
        return now[0]

    monkeypatch.setattr("time.monotonic_ns", read)
    monkeypatch.setattr("time.time_ns", lambda: read() + 7_000_000_000)
    assert between_clocks() == 7_000_000_000


@pytest.mark.slow
def test_shares_are_those_of_the_spans_and_1_together(
    profiled: tuple[dict[str, Any], Path],
) -> None:
    result, trace = profiled
    assert result["trace"] == str(trace)
    assert set(result["threads"]) == {"actor-0", "actor-1", "learner-0"}
    for shares in result["threads"].values():
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.002)
        assert min(shares.values()) >= -0.0001
    learner = result["threads"]["learner-0"]
    assert set(learner) == LEARNER | {OTHER}
    assert learner["backward"] > learner["publish"]
    assert result["achieved_steps_per_s"] > 0


def test_own_seconds_leave_out_what_is_inside_and_outside() -> None:
    spans = [
        Span("learn", 0, 100),
        Span("forward", 10, 40),
        Span("kernel", 20, 30),
        Span("forward", 50, 60),
        Span("push", 100, 130),
        Span("wait", 150, 1000),
    ]
    billion = 1e9
    seconds = own_seconds(spans, 0.0, 200 / billion)
    assert {k: round(v * billion) for k, v in seconds.items()} == {
        "learn": 60,
        "forward": 30,
        "kernel": 10,
        "push": 30,
        "wait": 50,
    }
    late = own_seconds(spans, 25 / billion, 110 / billion)
    assert {k: round(v * billion) for k, v in late.items()} == {
        "learn": 50,
        "forward": 20,
        "kernel": 5,
        "push": 10,
    }


def test_a_span_belongs_to_the_thread_that_makes_it_even_if_it_raises() -> None:
    spans = Spans()

    def work() -> None:
        with pytest.raises(ValueError, match="no"), spans("outer"), spans("inner"):
            raise ValueError("no")

    thread = threading.Thread(target=work, name="actor-7")
    thread.start()
    thread.join()
    with spans("here"):
        pass
    assert [span.stage for span in spans.of("actor-7")] == ["outer", "inner"]
    assert [span.stage for span in spans.of(threading.current_thread().name)] == ["here"]


@pytest.mark.slow
def test_workers_have_all_their_threads_in_the_trace(tmp_path: Path) -> None:
    experiment = replace(distributed_catch(1), deterministic=False)
    profile(experiment, tmp_path / "trace.json")
    threads = stages_in(tmp_path / "trace.json")
    assert set(threads) == {"actor-0", "actor-1", "learner-0", "learner-1"}
    for name, spans in threads.items():
        outermost(spans)
        stages = {span.stage for span in spans}
        if name.startswith("learner"):
            assert {"wait for parameters", "publish", "admission", "forward"} <= stages
    publishing = {name for name, spans in threads.items() if "publish" in {s.stage for s in spans}}
    assert publishing == {"learner-0", "learner-1"}


@pytest.mark.slow
def test_who_is_not_profiled_has_nothing_around_it() -> None:
    plain = train_once(short_pong(1), 1.0).roles
    watched = train_once(short_pong(1), 1.0, spans=Spans()).roles
    for name, role in plain.items():
        if hasattr(role, "clock"):
            assert type(role.clock) is Clock
            assert type(watched[name].clock) is not Clock
        for part, seen in [(role, watched[name]), *computing(role, watched[name])]:
            wrapped = {path for path in INSIDE.get(type(part), {}) if "." not in path}
            assert wrapped & set(vars(part)) == set()
            assert wrapped <= set(vars(seen))


def computing(role: Any, watched: Any) -> list[tuple[Any, Any]]:
    """Return what two learners compute with."""
    return [(role.compute, watched.compute)] if hasattr(role, "compute") else []


def test_shares_of_time_are_a_table() -> None:
    threads = {
        "actor-0": {"wait for room": 0.25, "emulate": 0.5, "between stages": 0.25},
        "learner-0": {"wait for experience": 0.1, "forward": 0.6, "between stages": 0.3},
    }
    result = {"achieved_steps_per_s": 1234.5, "threads": threads, "trace": "a.json"}
    text = printed(result)
    assert "training reaches 1,234 steps/s" in text
    assert "trace: a.json" in text
    rows = [re.split(r"\s*│\s*", line.strip("│ ")) for line in text.splitlines() if "│" in line]
    assert rows == [
        ["forward", "", "60.0 %"],
        ["emulate", "50.0 %"],
        ["wait for room", "25.0 %"],
        ["wait for experience", "", "10.0 %"],
        ["busy", "50.0 %", "60.0 %"],
        ["waiting", "25.0 %", "10.0 %"],
        ["between stages", "25.0 %", "30.0 %"],
    ]


def printed(result: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=100, soft_wrap=True)
    show_short_run(Printer(console=console), result)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
