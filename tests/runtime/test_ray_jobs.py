"""A run that is handed to a Ray cluster with ``ray job submit``, stopped, and resumed."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.hosts import LONG, Hosts, needs_root, ray_cluster, wait_for
from helpers.launching import complete

pytestmark = [
    pytest.mark.cluster,
    needs_root,
    pytest.mark.skipif(find_spec("aiohttp") is None, reason="colobus[jobs] is not installed"),
]

PATIENT = '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}}'


def test_a_job_of_ray_is_stopped_in_good_order_and_goes_on(tmp_path: Path) -> None:
    run, programs = tmp_path / "run", Path(sys.executable).parent
    words = ["colobus", "train", "dba3c-catch", "--on", "ray", "--cpus", 0.5, "--no-tensorboard"]
    words += ["--checkpoint-seconds", 2, "--no-finish", "--out", run, "--resume-or-start"]
    words += ["--silence", 60]  # nobody is blamed on a slow machine
    path = {"PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}
    with Hosts(2) as hosts, ray_cluster(hosts, cpus=2, jobs=True) as cluster:
        there = f"--address=http://{hosts[0].address}:8265"

        def job(*words: object) -> str:
            own = cluster.environment | path
            return hosts[1].check([programs / "ray", "job", *words], own, LONG)

        first = ["submit", there, "--submission-id=first", "--no-wait", "--runtime-env-json"]
        job(*first, PATIENT, "--", *words, "--minutes", 20)
        wait_for(lambda: bool(complete(run)), LONG)
        job("stop", there, "first")
        assert "stopped by SIGTERM at" in job("logs", there, "first")
        more = complete(run)[-1]["steps"] + 2_000
        said = job("submit", there, "--", *words, "--steps", more)
    assert f"going on with {run}" in said
    assert "succeeded" in said
    assert complete(run)[-1]["steps"] >= more
