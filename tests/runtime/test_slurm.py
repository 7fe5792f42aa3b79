"""A job of ``colobus slurm`` in a real Slurm of two nodes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from helpers.hosts import hosting, needs_root, wait_for
from helpers.slurm import learn_though_killed, slurm

pytestmark = [
    pytest.mark.cluster,
    needs_root,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed"),
]


def test_a_job_whose_time_is_over_requeues_itself_until_the_run_is_over(tmp_path: Path) -> None:
    way = "its time is over"
    two = ("--minutes", 2, "--no-finish")  # of training; Slurm signals the job within one
    found = learn_though_killed(tmp_path, way, 2.0, random.Random(1), *two)
    said = found["printed"]
    assert "stopped by SIGUSR1 at" in said, said
    assert "the run is not over (exit code 138): requeued" in said
    assert f"going on with {tmp_path / 'run'}" in said
    assert (found["state"], found["restarts"]) == ("COMPLETED 0:0", 1), said
    assert 2 < found["killed_after"] < 110 < found["seconds"]
    assert found["hosts"] == ["h1", "h2"]


def test_a_job_that_is_cancelled_stays_so(tmp_path: Path) -> None:
    words = ["dba3c-catch", "--nodes", 2, "--minutes", 20, "--no-finish", "--out", tmp_path / "run"]
    with hosting(3) as hosts, slurm(hosts[:2], hosts[2]) as cluster:
        job = cluster.submit(tmp_path, *words)
        learning = tmp_path / "run" / "metrics.jsonl"
        wait_for(lambda: learning.exists() or cluster.is_over(job), 300)
        cluster.run("scancel", job)
        wait_for(lambda: cluster.is_over(job) and cluster.idle(), 300)
        assert cluster.facts(job)["JobState"] == "CANCELLED", (tmp_path / "run.out").read_text()
        assert cluster.facts(job)["Restarts"] == "0"
