"""Ray itself is lost: its head process, or its process on the driver's host."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from colobus.evaluation.agent import load
from helpers.ray_runs import IDLE, Begin, nothing_left, running

pytestmark = pytest.mark.cluster


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
