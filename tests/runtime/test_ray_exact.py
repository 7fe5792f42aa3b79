"""A deterministic run on Ray whose processes are killed is the run without a loss."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from helpers.launching import complete
from helpers.ray_runs import Run, train
from helpers.unbroken import assert_same_run, finished

pytestmark = pytest.mark.cluster


def wait_for_news(run: Run) -> None:
    """Wait for a checkpoint that is newer than the newest one."""
    newest = run.version()
    run.wait(lambda: run.version() > newest)


def has_restored(run: Run, times: int) -> bool:
    return len(run.events("restored")) == times


def test_killed_processes_change_nothing(tmp_path: Path) -> None:
    run = train(tmp_path / "broken", "dba3c-catch", "--deterministic", "--steps", 10_000_000)
    try:
        for losses, whom in enumerate(("worker", "server"), 1):
            wait_for_news(run)
            run.order("SIGKILL", whom)
            run.wait(partial(has_restored, run, losses))
        wait_for_news(run)
        run.process.send_signal(signal.SIGINT)
        assert run.end()[0] == 130
    finally:
        run.kill()
    steps = complete(run.path)[-1]["steps"]
    whole = train(tmp_path / "whole", "dba3c-catch", "--deterministic", "--steps", steps)
    try:
        assert whole.end()[0] == 0
    finally:
        whole.kill()
    assert finished(run.path)[0].version.incarnation == 2
    assert_same_run(run.path, whole.path)
