"""FaultSchedule on purpose: what is asked for, and that it is exactly that trouble and no other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.lib import faults, process
from benchmarks.lib.faults import Faults, FaultyGraph, Hits, check_faults, is_a, main, parse_faults
from colobus.core.errors import ColobusError
from colobus.core.types import Update, Version
from colobus.experiment.presets import PRESETS
from colobus.runtime.groups import group_processes
from colobus.runtime.threads import Threads
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch
from helpers.outcomes import (
    assert_same,
    inline,
    outcome,
    place_inline,
    place_threads,
    run_to_the_end,
)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", Faults()),
        ("straggler=0.5s", Faults(straggler=0.5)),
        ("load=20ms", Faults(load=0.02)),
        ("load=1s,delay=4,straggler=500ms,compute=50ms", Faults(0.05, 0.5, 4, 1.0)),
        ("delay=1,delay=2,", Faults(delay=2)),
        (
            "stop=server:45s,load=1.5s,kill=any:0.5s",
            Faults(load=1.5, hits=(Hits("stop", "server", 45.0), Hits("kill", "any", 0.5))),
        ),
    ],
)
def test_words_and_what_they_mean(text: str, faults: Faults) -> None:
    assert parse_faults(text) == faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stragler=1s", "nearest known: straggler; such as compute=50ms,"),
        ("500ms", "known: compute, delay, kill, load, stop, straggler; such as "),
        ("straggler=500", "want such as "),
        ("straggler=-1s", "want such as "),
        ("load=10MS", "want such as "),
        ("load=server:10ms", "want such as "),
        ("load=0ms", "must be above 0 and below "),
        ("delay=lags.json", "want such as "),
        ("delay=1.5", "must be a whole number of versions"),
        ("kill=driver:30s", r"want such as .*; kinds: any, worker, actor, server, "),
        ("stop=30s", "want such as "),
        ("stop=worker:30ms", "want such as "),
        ("kill=worker:0s", "must be above 0 and below "),
    ],
)
def test_mistakes_name_the_word(text: str, message: str) -> None:
    with pytest.raises(ColobusError, match=f"^--faults {text}: {message}"):
        parse_faults(text)


def test_what_a_run_cannot_have() -> None:
    pong, workers = PRESETS["pong"], PRESETS["dba3c-pong"]
    hit = Faults(hits=(Hits("stop", "any", 20.0),))
    check_faults(Faults(), pong)
    check_faults(hit, pong, processes=True)
    check_faults(Faults(straggler=1.0, compute=0.05), workers)
    check_faults(Faults(delay=3), distributed_catch(1))
    with pytest.raises(ColobusError, match="needs a run with workers"):
        check_faults(replace(hit, straggler=1.0), pong, processes=True)
    with pytest.raises(ColobusError, match=r"^--faults delay=3: add --deterministic"):
        check_faults(Faults(delay=3), workers)
    with pytest.raises(ColobusError, match="threads cannot be killed; add --on ray"):
        check_faults(hit, workers)


def test_a_straggler_sleeps_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """And learns the same."""
    experiment = distributed_catch(12, workers=3)
    oracle, slept = inline(experiment), list[float]()
    monkeypatch.setattr("benchmarks.lib.faults.time.sleep", slept.append)
    place = place_inline(experiment, FaultyGraph(Faults(straggler=0.25)))
    place.run()
    kinds = [type(place.roles[f"learner-{i}"].compute).__name__ for i in range(3)]
    assert kinds == ["Sleeper", "Backprop", "Backprop"]
    assert slept == [0.25] * 12
    assert_same(oracle, outcome(place.roles))


def updates_of(place: Threads) -> list[Update]:
    """Return the list into which all updates go that the tracker is told of from now on."""
    updates: list[Update] = []
    report = place.roles["tracker"].report

    def note(update: Update) -> Any:
        updates.append(update)
        return report(update)

    place.roles["tracker"].report = note
    return updates


def while_learner_0_sleeps(
    monkeypatch: pytest.MonkeyPatch, quorum: int, updates: int
) -> list[Update]:
    """Run 2 workers on threads; learner 0 sleeps until the other has told so many updates.

    With 0 until the other waits. The run ends when the sleeper has told its second update.
    """
    woken, lines = threading.Event(), list[str]()
    monkeypatch.setattr("benchmarks.lib.faults.time.sleep", lambda seconds: woken.wait(60))
    base = distributed_catch(1000)
    experiment = replace(base, deterministic=False, shape=replace(base.shape, quorum=quorum))
    place = place_threads(experiment, lines, FaultyGraph(Faults(straggler=9.0)))
    told, clock = updates_of(place), place.roles["learner-1"].clock

    def wait_until(holds: Callable[[], bool]) -> None:
        while not holds():
            place.wait(0.01)
            place.check()

    place.start()
    if updates:
        wait_until(lambda: sum(update.learner == 1 for update in told) >= updates)
    else:
        wait_until(lambda: (clock.steps, clock.stage) == (1, "wait for parameters"))
        assert [place.roles[f"server-{i}"].pull().version.number for i in range(2)] == [0, 0]
    woken.set()
    wait_until(lambda: sum(update.learner == 0 for update in told) >= 2)
    assert place.stop() == []
    place.check()
    assert lines == []
    return told


def test_with_a_backup_nobody_waits_for_the_straggler(monkeypatch: pytest.MonkeyPatch) -> None:
    told = while_learner_0_sleeps(monkeypatch, quorum=1, updates=20)
    first, second = [update for update in told if update.learner == 0][:2]
    others = [update.version.number for update in told if update.learner == 1]
    assert others[:20] == list(range(1, 21))  # a step each
    assert first.version == Version(0, 1)  # computed from the first version
    assert second.traffic is not None
    assert second.traffic[:3] == (0, 1, 0)  # and dropped
    assert second.version.number >= 20  # then it went on with the newest


def test_without_a_backup_everybody_waits_for_the_straggler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = while_learner_0_sleeps(monkeypatch, quorum=2, updates=0)
    first, second = [update for update in told if update.learner == 0][:2]
    at = told.index(first)
    assert [update.version.number for update in told[:at] if update.learner == 1] == [1]
    assert second.version == Version(0, 2)
    assert second.traffic is not None
    assert second.traffic[:3] == (1, 0, 0)


@pytest.mark.parametrize(("ahead", "delay"), [(0, 0), (1, 0), (1, 3), (0, 4)])
def test_actors_play_with_parameters_exactly_so_much_older(ahead: int, delay: int) -> None:
    """On threads, where an actor without any delay can wait for its learner's pull."""
    place = place_threads(distributed_catch(20, ahead=ahead), [], FaultyGraph(Faults(delay=delay)))
    told = updates_of(place)
    assert run_to_the_end(place).version == Version(0, 20)
    found = sorted((one.version.number - 1, one.lag) for one in told if one.version.number <= 20)
    assert found == [(n, (float(min(n, ahead + delay)),) * 3) for n in range(20) for _ in range(2)]


@pytest.mark.parametrize("loaders", [0, 1])
def test_a_slow_load_is_the_learners_or_the_loaders(
    loaders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rung of the ladder: who waits for a batch, and that no bit is another."""
    slept: list[tuple[str, float]] = []

    def sleep(seconds: float) -> None:
        slept.append((threading.current_thread().name, seconds))

    plain = catch(512 + 8 * 512, deterministic=True)
    experiment = replace(plain, shape=replace(plain.shape, loaders=loaders))
    check_faults(Faults(load=0.02), experiment)
    monkeypatch.setattr(faults, "time", SimpleNamespace(sleep=sleep))
    place = place_threads(experiment, [], FaultyGraph(parse_faults("load=20ms")))
    found = run_to_the_end(place)
    assert torch.equal(found.parameters, inline(plain).parameters)
    assert set(slept) == {("loader-0" if loaders else "learner-0", 0.02)}
    assert len(slept) >= 8


def test_queues_of_their_own_are_hit_as_replays() -> None:
    experiment = catch(1000)
    experiment = replace(experiment, shape=replace(experiment.shape, replays=2))
    for deterministic, kind in ((False, "queue"), (True, "replay")):
        each = replace(experiment, deterministic=deterministic)
        specs = group_processes(make_graph(each, begin(each), None, spread=True), 1)
        found = {spec.name: (spec.kind, spec.roles) for spec in specs if is_a(spec, "replay")}
        assert found == {f"replay-{i}": (kind, (f"replay-{i}",)) for i in range(2)}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train pong --faults", "--faults is empty; give it a value, such as compute=50ms,"),
        ("train pong --faults=", "--faults is empty; give it a value, such as compute=50ms,"),
        ("train pong --faults=straggler=1s", "needs a run with workers"),
        ("train pong --seeds 2 --faults straggler=1s", "needs a run with workers"),
        ("suite pong --preset pong --faults straggler=1s", "needs a run with workers"),
        ("eval runs/pong-1 --faults load=1s", "--faults load=1s: has an effect only in train and"),
    ],
)
def test_no_fault_that_is_asked_for_is_left_out(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Path(process.FAULTY[1]).is_file()  # the program
    monkeypatch.setattr("benchmarks.lib.faults.train", lambda *_args, **_rest: pytest.fail("began"))
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_a_run_with_a_fault_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "dba3c-catch", "--faults", "straggler=1ms", "--steps", "3000", "--json"]
    assert main([*words, "--out", str(tmp_path / "run"), "--no-finish", "--no-tensorboard"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] >= 3000
