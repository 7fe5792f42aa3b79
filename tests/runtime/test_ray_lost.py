"""Ray itself is lost: its head process, or its process on the driver's host."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path

import psutil
import pytest

from colobus.evaluation.agent import load
from helpers.ray_runs import ENDLESS, Run, head, nothing_left, running, train

pytestmark = pytest.mark.cluster

HEAD = r"the head process \(GCS\)"
HERE = r"the process of this host \(raylet\)"


def one_of(processes: set[psutil.Process], program: str) -> psutil.Process:
    """Return the process of a program."""
    (found,) = [p for p in processes if f"/{program} " in running(p)]
    return found


def assert_ended_by(run: Run, what: str, address: str) -> None:
    """The run ends with one line and exit code 1, and what it had saved can be used."""
    code, out, log = run.end()
    assert (code, out) == (1, "")
    opening, line = log.splitlines()
    assert opening.startswith("learning catch into ")
    assert re.fullmatch(
        rf"colobus: Ray is lost: {what} at {address}:\d+ has given no answer for 10 s; "
        rf"go on with: colobus train --resume {re.escape(str(run.path))} --on ray( .*)?",
        line,
    ), log
    assert load(run.path).checkpoint.version.number > 0


@pytest.mark.parametrize(("program", "what"), [("gcs_server", HEAD), ("raylet", HERE)])
def test_a_lost_process_of_ray_ends_the_run_and_nothing_is_left(
    tmp_path: Path, program: str, what: str
) -> None:
    with nothing_left() as env:
        run = train(tmp_path, "dba3c-catch", *ENDLESS, env=env)
        try:
            run.wait(lambda: run.version() > 0)
            (private,) = Path(env["RAY_TMPDIR"]).iterdir()
            assert private.stat().st_mode & 0o777 == 0o700
            one_of(run.family, program).kill()
            assert_ended_by(run, what, r"127\.0\.0\.1")
        finally:
            run.kill()


def test_a_cluster_whose_head_is_lost_ends_the_run(tmp_path: Path) -> None:
    soon = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}  # else what it ran lives for a minute
    with head(cpus=3, env=soon) as there:
        words = ("--address", there.address)
        run = train(tmp_path, "dba3c-catch", *words, *ENDLESS, env=there.env)
        try:
            run.wait(lambda: run.version() > 0)
            family = set(psutil.Process(there.process.pid).children(recursive=True))
            ours = {p for p in family if running(p).startswith("ray::Process")}
            assert len(ours) > 3
            one_of(family, "gcs_server").kill()
            assert_ended_by(run, f"({HEAD}|{HERE})", r"[\d.]+")
        finally:
            run.kill()
        _, left = psutil.wait_procs(ours, timeout=300)
        assert not any(map(running, left))
        for process in family - ours:  # two of Ray's own look for the head a minute long
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def test_what_gives_no_answer_for_long_is_lost_and_what_comes_back_is_not() -> None:
    from colobus.runtime.ray import prepare

    prepare("")
    from colobus.runtime.ray.session import LOOK_SECONDS, LOST_SECONDS, Alive

    now = [100.0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        alive = Alive({"it": address}, now=lambda: now[0])
        assert alive.look()
    assert alive.look()  # nobody is asked again so soon
    assert not alive.look(at_once=True)
    assert alive.lost == ""
    now[0] += LOST_SECONDS / 2
    with socket.create_server(address):
        assert alive.look()
    now[0] += LOOK_SECONDS
    assert not alive.look()
    now[0] += LOST_SECONDS
    assert not alive.look()
    host, port = address
    assert alive.lost == f"it at {host}:{port} has given no answer for {LOST_SECONDS:g} s"
