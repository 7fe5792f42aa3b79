"""Processes of a run on Ray that are killed or frozen, one kind after the other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from colobus.evaluation.agent import Agent, load
from colobus.evaluation.evaluator import evaluate
from colobus.experiment.presets import PRESETS
from helpers.launching import complete
from helpers.ray_runs import ENDLESS, SILENCE, SMALL, Run, listening, nothing_left, running, train

pytestmark = pytest.mark.cluster

HOST = re.escape(socket.gethostname())

Begin = Callable[..., Run]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begin a run (`train`, or `Run` itself); none outlives the test."""
    runs: list[Run] = []

    def begin(*words: object, make: Callable[..., Run] = train, **more: Any) -> Run:
        runs.append(make(tmp_path, *words, **more))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()


def hit(run: Run, how: str, whom: str) -> dict[str, Any]:
    """Have a process hit; return its event "lost" once it is back."""
    before, back = len(run.events("lost")), len(run.events("back"))
    newest = run.version()
    run.wait(lambda: run.version() > newest)  # all of them have made steps
    run.order(how, whom)
    run.wait(lambda: len(run.events("back")) > back)
    told = run.events("hit")[-1]
    lost = run.events("lost")[before]
    assert (told["kind"] in (whom, "worker"), told["signal"]) == (True, how)
    assert [lost[key] for key in ("what", "process", "host")] == [
        told[key] for key in ("what", "process", "host")
    ]
    run.wait(lambda: not psutil.pid_exists(lost["process"]))  # frozen ones too
    assert lost["what"] in [event["what"] for event in run.events("back")[back:]]
    return lost


def stop(run: Run) -> Agent:
    """Wait until the run has gone on after what befell it, and stop it; return its agent."""
    newest = run.version()
    run.wait(lambda: run.version() > newest)
    run.process.send_signal(signal.SIGINT)
    code, out, _ = run.end()
    summary = json.loads(out)  # one object, and nothing else on stdout
    assert (code, summary["stopped"]) == (130, "Ctrl-C")
    agent = load(run.path)
    assert agent.checkpoint.steps == summary["steps"]
    return agent


def stop_when_learned(run: Run, after: int = 0) -> None:
    """Wait until the run plays well, not only before what befell it, and stop it.

    Args:
        run: the run.
        after: steps that it must have made by then.
    """
    told = len(run.metrics())
    run.wait(lambda: run.plays_well(told) and run.metrics()[-1]["steps"] > after)
    mean = evaluate(stop(run), episodes=1000).mean
    assert mean >= 0.75  # with an error of 0.02; -0.6 is random play


def assert_named(run: Run, lost: dict[str, Any]) -> None:
    """The log says once who was lost, and where, and once that it is back."""
    who = rf"{lost['what']} on {HOST} \(process {lost['process']}\)"
    assert len(re.findall(rf"^{who} .*; begun again$", run.log, re.MULTILINE)) == 1
    back = rf"^{lost['what']} on {HOST} \(process \d+\) is back, [\d.]+ s after it was last heard$"
    assert len(re.findall(back, run.log, re.MULTILINE)) == 1


def test_a_run_outlives_its_workers_and_a_driver_that_was_frozen(begin: Begin) -> None:
    run = begin("dba3c-catch", *ENDLESS)
    killed = hit(run, "SIGKILL", "worker")
    frozen = hit(run, "SIGSTOP", "worker")
    assert "is gone" in killed["why"]
    assert re.search(r"has given no answer for \d", frozen["why"])
    driver = psutil.Process(run.process.pid)
    driver.suspend()
    time.sleep(SILENCE + 1)  # longer than a process may be silent
    driver.resume()
    stop(run)
    lost = run.events("lost")
    assert [event["process"] for event in lost] == [killed["process"], frozen["process"]]
    assert run.events("restored") == []
    for each in lost:
        if [e["what"] for e in lost].count(each["what"]) == 1:
            assert_named(run, each)
    assert complete(run.path)[-1]["epoch"] == 0


def assert_restored(run: Run, count: int) -> None:
    """The run went back to a checkpoint so often, each time with a new epoch."""
    restored = run.events("restored")
    assert [event["epoch"] for event in restored] == list(range(1, count + 1))
    assert all(event["lost_steps"] >= 0 for event in restored)
    went = re.findall(r"^going on from (\d+)\.safetensors: ([\d,]+) steps$", run.log, re.MULTILINE)
    found = [(int(version), int(steps.replace(",", ""))) for version, steps in went]
    assert found == [(event["version"], event["steps"]) for event in restored]
    assert all(version > 0 for version, _ in found)
    assert complete(run.path)[-1]["epoch"] == count


@pytest.mark.parametrize(("game", "whom"), [("dba3c-catch", "server"), ("catch", "learner")])
def test_a_lost_server_or_learner_takes_all_back_to_the_newest_checkpoint(
    begin: Begin, game: str, whom: str
) -> None:
    run = begin(game, *ENDLESS)
    for number, how in enumerate(("SIGKILL", "SIGSTOP")):
        lost = hit(run, how, whom)
        (restored,) = run.events("restored")[number:]
        assert restored["epoch"] == number + 1
        assert lost["why"]
    if game == "catch":
        assert_named(run, hit(run, "SIGKILL", "worker"))  # and a remote actor alone
        stop_when_learned(run)
    else:
        stop(run)
    assert len(run.events("lost")) == (3 if game == "catch" else 2)
    assert_restored(run, 2)


def test_a_lost_replay_rolls_all_back_and_an_actor_or_learner_restarts_alone(begin: Begin) -> None:
    apart = ("--workers", 0, "--learners", 2, "--actors", 2, "--replays", 2, "--prioritized")
    run = begin("gorila-catch", *apart, *ENDLESS)
    for whom in ("actor", "learner"):
        lost = hit(run, "SIGKILL", whom)
        assert lost["what"].startswith(whom)
        assert_named(run, lost)
    assert run.events("restored") == []
    assert hit(run, "SIGKILL", "replay")["kind"] == "replay"
    (restored,) = run.events("restored")
    assert restored["lost_steps"] >= 0
    assert 0 < restored["lost_experience"] <= 2 * PRESETS["gorila-catch"].replay.capacity
    kept = f"all replay buffers begin empty: they kept {restored['lost_experience']:,} steps"
    assert run.log.count(kept) == 1
    # What it had learned gets worse while the buffers hold little, and then better again.
    stop_when_learned(run, after=restored["steps"] + 6_000)
    assert_restored(run, 1)


def test_what_only_answers_may_be_lost_often_while_others_work(begin: Begin) -> None:
    run = begin("catch", *ENDLESS)
    for _ in range(7):  # what takes steps of its own may be lost five times in a row
        assert hit(run, "SIGKILL", "tracker")["kind"] == "tracker"
    # stopped before it made a step, a run would leave the checkpoint that it went on from
    run.wait(lambda: complete(run.path)[-1]["epoch"] == 7)
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130
    assert_restored(run, 7)


def assert_closed(run: Run, folder: Path) -> None:
    """Nobody can reach its processes from elsewhere, or join them here without the token."""
    everywhere = set[tuple[str, int]]().union(*map(listening, run.family))
    assert len(everywhere) > 5
    assert {ip for ip, _ in everywhere} <= {"127.0.0.1", "::1"}
    (head,) = [p for p in run.family if "/gcs_server " in running(p)]
    ((_, port),) = listening(head)
    folder.mkdir()
    (folder / "token").write_text("0" * 64)
    env = {
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else it would ask at another address
        "RAY_NUM_REDIS_GET_RETRIES": "2",
    }
    other = train(folder, "catch", "--address", f"127.0.0.1:{port}", env=env)
    code, _, log = other.end()
    assert code == 2
    assert f"colobus: Ray at 127.0.0.1:{port}: another token there: " in log


def test_a_dead_driver_leaves_nothing_and_a_resumed_run_can_be_stopped_and_resumed(
    begin: Begin, tmp_path: Path
) -> None:
    with nothing_left() as env:
        run = begin("dba3c-catch", "--minutes", 5, *ENDLESS, env=env)
        run.wait(lambda: run.version() > 0)
        assert_closed(run, tmp_path / "other")
        assert len(run.family) > 5
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
        run.gone(agents=False)
    newest = complete(run.path)[-1]

    again = ("train", "--resume", run.path, *SMALL, "--checkpoint-seconds", 2)
    second = begin(*again, make=Run)
    second.wait(lambda: second.version() > newest["version"])
    second.process.send_signal(signal.SIGINT)
    code, out, log = second.end()
    assert code == 130
    assert f"going on from {newest['version']:08d}.safetensors: {newest['steps']:,} steps" in log
    said = re.search(r"stopped by Ctrl-C at ([\d,]+) steps, all saved; go on with: ", log)
    assert said is not None, log
    saved = complete(second.path)[-1]
    assert (saved["epoch"], saved["version"] > newest["version"]) == (1, True)
    assert saved["steps"] <= int(said[1].replace(",", ""))
    summary = json.loads(out)
    assert summary["stopped"] == "Ctrl-C"

    steps = saved["steps"] + 5_000
    third = begin(*again, "--steps", steps, make=Run)
    code, out, _ = third.end()
    assert (code, json.loads(out)["stopped"]) == (0, "by its rule")
    last = complete(third.path)[-1]
    assert (last["epoch"], last["steps"] >= steps) == (2, True)
    run.gone()
