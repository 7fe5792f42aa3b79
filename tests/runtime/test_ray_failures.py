"""Workers and a driver of a run on Ray that are killed or frozen: nothing else is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import psutil
import pytest

from helpers.launching import complete
from helpers.ray_runs import IDLE, PATIENT, SILENCE, SMALL, Begin, Run, hit, nothing_left, stop

pytestmark = pytest.mark.cluster


def test_a_run_outlives_its_workers_and_a_driver_that_was_frozen(begin: Begin) -> None:
    run = begin("dba3c-catch", *IDLE)
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
            run.assert_named(each)
    assert complete(run.path)[-1]["epoch"] == 0


def test_a_dead_driver_leaves_nothing_and_the_run_can_be_resumed_and_stopped(begin: Begin) -> None:
    with nothing_left() as env:
        run = begin("dba3c-catch", "--minutes", 5, *IDLE, *PATIENT, env=env)
        run.learn_on()
        assert len(run.family) > 5
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
        run.gone(agents=False)
    newest = complete(run.path)[-1]

    again = ("train", "--resume", run.path, *SMALL, *PATIENT, "--checkpoint-seconds", 2)
    second = begin(*again, make=Run)
    second.wait(lambda: second.version() > newest["version"])
    code, out, log = second.interrupt()
    assert code == 130
    assert f"going on from {newest['version']:08d}.safetensors: {newest['steps']:,} steps" in log
    said = re.search(r"stopped by Ctrl-C at ([\d,]+) steps, all saved; go on with: ", log)
    assert said is not None, log
    saved = complete(second.path)[-1]
    assert (saved["epoch"], saved["version"] > newest["version"]) == (1, True)
    assert saved["steps"] <= int(said[1].replace(",", ""))
    summary = json.loads(out)
    assert summary["stopped"] == "Ctrl-C"

    steps = saved["steps"] + 1_000
    third = begin(*again, "--steps", steps, make=Run)
    code, out, _ = third.end()
    assert (code, json.loads(out)["stopped"]) == (0, "by its rule")
    last = complete(third.path)[-1]
    assert (last["epoch"], last["steps"] >= steps) == (2, True)
    run.gone()
