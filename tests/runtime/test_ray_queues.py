"""One of several trajectory queues on Ray is killed, again and again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.ray_runs import Run, train

pytestmark = pytest.mark.cluster


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run with two queues, each with one actor and slots of its own."""
    words = ("--replays", 2, "--replay-proportion", 0.5, "--replay-slots", 9)
    run = train(tmp_path, "catch", *words, "--until-score", 2, "--steps", 10_000_000)
    yield run
    run.kill()


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


def test_a_lost_queue_is_named_and_counted_and_replaced_while_the_run_goes_on(run: Run) -> None:
    run.wait(lambda: run.version() > 0)
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
    run.wait(run.plays_well)
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130
