"""A terminal in which a run on Ray goes on is closed, or sends SIGQUIT to all that run in it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from gelada.evaluation.agent import load
from helpers.launching import complete
from helpers.ray_runs import Run, train

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGHUP, 129), (signal.SIGQUIT, 131), (signal.SIGINT, 130)]
)
def test_a_signal_to_all_processes_of_the_terminal_saves_the_run(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    long = ("--until-score", 2, "--steps", 10_000_000)
    run = train(tmp_path, "catch", *long, "--checkpoint-seconds", 600, session=True)
    try:
        run.wait(lambda: learned(run) > 0)
        known = learned(run)
        os.killpg(run.process.pid, number)
        ended, _, log = run.end()
    finally:
        run.kill()
    assert ended == code
    assert re.search(r"stopped by \S+ at [\d,]+ steps, all saved; go on with: ", log), log
    assert "begun again" not in log  # nothing was lost by it
    assert complete(run.path)[-1]["version"] >= known
    assert load(run.path).checkpoint.version.number >= known


def learned(run: Run) -> int:
    """Return the newest version of which its metrics tell."""
    return max((line["version"] for line in run.metrics()), default=0)
