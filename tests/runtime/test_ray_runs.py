"""Runs on Ray: queues that are killed, exact recovery, a signal of the terminal, a slow start."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colobus.evaluation.agent import load
from helpers.launching import complete
from helpers.outcomes import assert_same_run, finished
from helpers.ray_runs import DRIVER, IDLE, PATIENT, Begin, Run, nothing_left, train

pytestmark = pytest.mark.cluster


def lost_queues(run: Run) -> list[dict[str, Any]]:
    return [event for event in run.events("lost") if event["kind"] == "queue"]


def kill_a_queue(run: Run) -> None:
    """Kill one; wait until it is back with its actor, and the run has gone on."""
    lost, back = len(lost_queues(run)), len(run.events("back"))
    run.order("SIGKILL", "queue")
    run.wait(lambda: len(lost_queues(run)) > lost)
    run.wait(lambda: len(run.events("back")) > back + 1)
    told = len(run.metrics())
    run.wait(lambda: len(run.metrics()) > told + 2)


def test_a_lost_queue_is_named_and_counted_and_replaced_while_the_run_goes_on(begin: Begin) -> None:
    """Of two queues, each with one actor and slots of its own."""
    words = ("--replays", 2, "--replay-proportion", 0.5, "--replay-slots", 9)
    run = begin("catch", *words, *IDLE, *PATIENT)
    run.learn_on()
    for _ in range(3):
        kill_a_queue(run)
    lost = lost_queues(run)
    assert {event["what"] for event in lost} <= {"replay-0", "replay-1"}
    for event in lost:
        same = [each for each in lost if each["what"] == event["what"]]
        assert event["times"] == same.index(event) + 1
        named = rf"^{event['what']} on .* \(process {event['process']}\) .*; begun again$"
        assert len(re.findall(named, run.log, re.MULTILINE)) == 1
    assert run.events("restored") == []  # nothing went back to a checkpoint
    assert {event["kind"] for event in run.events("lost")} == {"queue", "worker"}
    assert run.interrupt()[0] == 130


def in_folder(name: str, folder: Path, *words: object) -> Run:
    return train(folder / name, "dba3c-catch", "--deterministic", *PATIENT, *words)


def test_killed_processes_change_nothing(begin: Begin) -> None:
    run = begin("--steps", 10_000_000, make=partial(in_folder, "broken"))
    for whom in ("worker", "server"):
        run.learn_on()
        run.go_back("SIGKILL", whom)
    run.learn_on()
    assert run.interrupt()[0] == 130
    steps = complete(run.path)[-1]["steps"]
    whole = begin("--steps", steps, make=partial(in_folder, "whole"))
    assert whole.end()[0] == 0
    assert finished(run.path)[0].version.incarnation == 2
    assert_same_run(run.path, whole.path)


@pytest.mark.parametrize(
    ("numbers", "code"), [([signal.SIGHUP, signal.SIGQUIT], 129), ([signal.SIGINT], 130)]
)
def test_a_signal_to_all_processes_of_the_terminal_saves_the_run_and_leaves_nothing(
    begin: Begin, numbers: list[signal.Signals], code: int
) -> None:
    """Of several signals the command heeds the first; the others must end no process either."""
    words = (*IDLE, *PATIENT, "--checkpoint-seconds", 600)
    with nothing_left() as env:
        run = begin("catch", *words, session=True, env=env)
        run.wait(lambda: learned(run) > 0)
        known = learned(run)
        for number in numbers:
            os.killpg(run.process.pid, number)
        ended, _, log = run.end()
    assert ended == code
    assert re.search(r"stopped by \S+ at [\d,]+ steps, all saved; go on with: ", log), log
    assert "begun again" not in log  # nothing was lost by it
    assert complete(run.path)[-1]["version"] >= known
    assert load(run.path, checkpoint="last").checkpoint.version.number >= known


def learned(run: Run) -> int:
    return max((line["version"] for line in run.metrics()), default=0)


IMPATIENT = """
from colobus.runtime.ray import prepare

prepare("")
from colobus.runtime.ray import runtime

runtime.START_SECONDS = 0.01
runtime.LONGEST_START_SECONDS = LONGEST
"""


@pytest.mark.parametrize(("longest", "ends"), [(300.0, 0), (0.02, 3)])
def test_a_slow_start_is_told_of_and_waited_for(begin: Begin, longest: float, ends: int) -> None:
    impatient = IMPATIENT.replace("= LONGEST", f"= {longest}")
    run = begin("catch", "--steps", 3_000, code=DRIVER + impatient)
    code, log = run.end()[0], run.log
    assert code == ends, log
    told = re.findall(r"^(colobus: )?\S.* did not start within (\d+) s: each asks for ", log, re.M)
    assert told, log
    assert [bool(prefix) for prefix, _ in told].count(True) == (ends == 3)
    assert run.path.exists() == (ends == 0)
