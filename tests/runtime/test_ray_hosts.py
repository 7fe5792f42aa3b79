"""Runs on clusters of several hosts: one dies half way, sidecars live apart, jobs are handed in.

All of it with ``make test-cluster``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from colobus.runtime.ray import INLINE
from helpers.hosts import (
    LONG,
    cells,
    environments,
    hosting,
    lines,
    needs_root,
    ray_cluster,
    wait_for,
)
from helpers.launching import complete
from helpers.ray_runs import SILENCE

pytestmark = [pytest.mark.cluster, needs_root]


TRAIN = [sys.executable, "-m", "colobus", "train", "dba3c-catch", "--no-finish", "--minutes", 20]
TRAIN += ["--no-tensorboard", "--on", "ray", "--silence", SILENCE]


def test_catch_is_learned_while_one_of_three_hosts_dies(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--out", run, "--json", "--workers", 3, "--quorum", 2, "--servers", 2]
    words += ["--checkpoint-seconds", 2, "--keep-every", 5]
    with hosting(3) as hosts, ray_cluster(hosts, cpus=2) as cluster:
        joined = [*TRAIN, *words, "--address", cluster.address]
        program = hosts[0].run(joined, cluster.environment)

        def half_way() -> bool:
            assert program.poll() is None, program.communicate()
            done = lines(run / "metrics.jsonl")
            return bool(done) and (done[-1]["best"] or -1.0) >= 0.0

        wait_for(half_way, LONG)
        of_all = [one for host in hosts for one in environments(host)]
        assert len(of_all) == 6  # a tracker, two servers, three workers
        # gradients travel with calls, though `ray start` was told nothing of it
        assert {one.get(INLINE[0]) for one in of_all} == {INLINE[1]}
        victim = max(hosts[1:], key=cells)
        gone = cells(victim)
        assert gone >= 1
        victim.kill()

        def told(event: str) -> list[dict[str, Any]]:
            return [line for line in lines(run / "events.jsonl") if line["event"] == event]

        def missed() -> set[str]:
            return {line["what"] for line in told("lost") if line.get("host") == victim.name}

        def learned() -> bool:
            """Whether all is back, too: two workers of three may learn the rest before."""
            assert program.poll() is None, program.communicate()
            back = missed() & {line["what"] for line in told("back")}
            return lines(run / "metrics.jsonl")[-1]["best"] >= 0.9 and len(back) == gone

        wait_for(learned, LONG)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=LONG)
        assert program.returncode == 130, err
        wait_for(lambda: sum(map(cells, hosts[:2])) == 0, LONG)  # nothing of the run is left
    summary = json.loads(out)
    assert summary["stopped"] == "Ctrl-C"
    assert summary["best"] >= 0.9
    for name in missed():
        assert f"{name} on {victim.name} (process " in err
    assert victim.name not in {line["host"] for line in told("back") if line["what"] in missed()}


def test_evaluator_and_recorder_live_on_another_host(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["--out", run, "--cpus", 0.5, "--until-score", 2, "--checkpoint-seconds", 5]
    words += ["--evaluator", "--recorder", "--record-length", 2, "--sidecars-apart", "--every"]
    words += ["--keep-checkpoints", 0]
    where = {1: set[int](), 2: set[int]()}  # processes of sidecars, by host

    def both() -> bool:
        assert program.poll() is None, program.communicate()
        for number, host in enumerate(hosts, 1):
            for pid in host.processes():
                with suppress(psutil.NoSuchProcess):
                    where[number] |= {pid} if "follow" in psutil.Process(pid).cmdline() else set()
        made = [len(list(run.glob(what))) for what in ("eval/*.json", "videos/*.mp4")]
        return min(made) >= 2

    with hosting(2) as hosts, ray_cluster(hosts, cpus=3) as cluster:
        joined = [*TRAIN, *words, "--address", cluster.address]
        program = hosts[0].run(joined, cluster.environment)
        wait_for(both, LONG)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=LONG)
        assert program.returncode == 130, err
        wait_for(lambda: not any(map(psutil.pid_exists, where[2])))  # nothing of them is left
    assert not where[1]
    assert where[2]
    assert f"follow {run} --once --every" in out
    first = sorted(int(path.stem) for path in (run / "checkpoints").glob("*.json"))[:2]
    done = sorted(json.loads(path.read_text())["version"] for path in run.glob("eval/*.json"))
    assert done[:2] == first


@pytest.mark.skipif(find_spec("aiohttp") is None, reason="colobus[jobs] is not installed")
def test_a_job_of_ray_is_stopped_in_good_order_and_goes_on(tmp_path: Path) -> None:
    run, programs = tmp_path / "run", Path(sys.executable).parent
    words = ["colobus", "train", "dba3c-catch", "--on", "ray", "--cpus", 0.5, "--no-tensorboard"]
    words += ["--checkpoint-seconds", 2, "--no-finish", "--out", run, "--resume-or-start"]
    words += ["--silence", 60]  # nobody is blamed on a slow machine
    path = {"PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}
    with hosting(2) as hosts, ray_cluster(hosts, cpus=2, jobs=True) as cluster:
        there = f"--address=http://{hosts[0].address}:8265"

        def job(*words: object) -> str:
            own = cluster.environment | path
            return hosts[1].check([programs / "ray", "job", *words], own, LONG)

        first = ["submit", there, "--submission-id=first", "--no-wait", "--runtime-env-json"]
        stops_late = '{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}}'
        job(*first, stops_late, "--", *words, "--minutes", 20)
        wait_for(lambda: bool(complete(run)), LONG)
        job("stop", there, "first")
        assert "stopped by SIGTERM at" in job("logs", there, "first")
        more = complete(run)[-1]["steps"] + 2_000
        said = job("submit", there, "--", *words, "--steps", more)
    assert f"going on with {run}" in said
    assert "succeeded" in said
    assert complete(run)[-1]["steps"] >= more
