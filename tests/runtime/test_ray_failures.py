"""What a run on Ray loses: workers, its driver, Ray itself. Nothing else is lost with them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from colobus.evaluation.agent import load
from helpers.launching import complete
from helpers.ray_runs import (
    IDLE,
    PATIENT,
    SILENCE,
    SMALL,
    Begin,
    Run,
    hit,
    nothing_left,
    running,
    stop,
)

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


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("gcs_server", r"the head process \(GCS\)"),
        ("raylet", r"the process of this host \(raylet\)"),
    ],
)
def test_a_lost_process_of_ray_ends_the_run_cleanly(begin: Begin, program: str, what: str) -> None:
    """With one line and exit code 1, and what it had saved can be used."""
    with nothing_left() as env:
        run = begin("dba3c-catch", *IDLE, env=env)
        run.learn_on()
        (private,) = Path(env["RAY_TMPDIR"]).iterdir()
        assert private.stat().st_mode & 0o777 == 0o700
        (lost,) = [p for p in run.family if f"/{program} " in running(p)]
        lost.kill()
        code, out, log = run.end()
    assert (code, out) == (1, "")
    opening, line = log.splitlines()
    assert opening.startswith("learning helpers.gym_toys:Idle into ")
    assert re.fullmatch(
        rf"colobus: Ray is lost: {what} at 127\.0\.0\.1:\d+ has given no answer for 10 s; "
        rf"go on with: colobus train --resume {re.escape(str(run.path))} --on ray( .*)?",
        line,
    ), log
    assert load(run.path).checkpoint.version.number > 0


def test_what_gives_no_answer_for_long_is_lost_and_what_comes_back_is_not(ray: Any) -> None:
    from colobus.runtime.ray.session import LOOK_SECONDS, LOST_SECONDS, Alive

    now = [100.0]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        there, silent = server.getsockname(), taken.getsockname()
        ports = {"it": there}
        alive = Alive(ports, now=lambda: now[0])
        assert alive.look()
        ports["it"] = silent
        assert alive.look()  # nobody is asked again so soon
        assert not alive.look(at_once=True)
        assert alive.lost == ""
        now[0] += LOST_SECONDS / 2
        ports["it"] = there
        assert alive.look()
        ports["it"] = silent
        now[0] += LOOK_SECONDS
        assert not alive.look()
        now[0] += LOST_SECONDS
        assert not alive.look()
    host, port = silent
    assert alive.lost == f"it at {host}:{port} has given no answer for {LOST_SECONDS:g} s"
