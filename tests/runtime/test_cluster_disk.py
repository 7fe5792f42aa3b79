"""A full disk, on a real one: a small tmpfs. Needs root (make test-cluster)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from colobus.evaluation.agent import load
from helpers.launching import complete, finish, start

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("events", ["--tensorboard", "--no-tensorboard"])
def test_a_full_disk_ends_a_run_with_a_line_and_keeps_a_checkpoint(disk: Path, events: str) -> None:
    run = disk / "run"
    args = ("--minutes", 2, "--checkpoint-seconds", 0.05, "--keep-checkpoints", 0, events)
    process = start("train", "catch", "--out", run, *args, "--disk-patience", 1)
    code, _, err = finish(process)
    assert code == 5
    assert err.count("\n") == 1
    assert re.match(
        rf"colobus: cannot write to {run}: No space left on device; the newest complete "
        rf"checkpoint is kept: make room and go on with .*--resume {run}\n",
        err,
    ), err
    newest = complete(run)[-1]
    agent = load(run, checkpoint="last")  # by itself the best one, if the newest is worse
    assert agent.checkpoint.version.number == newest["version"]
    assert agent.checkpoint.steps == newest["steps"] > 0
    assert not list((run / "checkpoints").glob(".*"))

    for path in sorted((run / "checkpoints").glob("*"))[:-6]:  # make room, and go on
        path.unlink()
    stop = newest["steps"] + 5120
    again = ("--no-finish", "--steps", stop, "--checkpoint-seconds", 60, events)
    assert finish(start("train", "--resume", run, *again))[0] == 0
    assert complete(run)[-1]["steps"] >= stop
