"""Where processes go on three hosts, and what is lost with one of them (make test-cluster)."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from helpers.hosts import LONG, Cluster, Host, cells, hosting, needs_root, ray_cluster, wait_for
from helpers.launching import complete
from helpers.ray_runs import ENDLESS, ONLY_JSON, PLACES, SILENCE, Run

pytestmark = [pytest.mark.cluster, needs_root]

GROUP = ("--learners", 2, "--reduce", "group", "--actors", 1)
QUEUES = ("--actors", 4, "--replays", 2, "--replay-proportion", 0.5, "--replay-slots", 18)
LASTS = (*ONLY_JSON, *ENDLESS, "--minutes", 20, "--checkpoint-seconds", 1)


Three = tuple[tuple[Host, ...], Cluster]
"""Hosts with Ray on them."""


@pytest.fixture(scope="module")
def three() -> Iterator[Three]:
    """Start the hosts once for all tests here, which run in their order: the last one kills one."""
    with hosting(3) as hosts, ray_cluster(hosts, cpus=4) as cluster:
        yield hosts, cluster


class Placed(Run):
    """A run of Catch that is started on the first host and goes on until Ctrl-C."""

    def __init__(self, three: Three, folder: Path, *flags: object, preset: str = "catch") -> None:
        self.path, self._err, self._script = folder / "run", folder / "err", folder / "driver.py"
        self._script.write_text(f"{PLACES}\nmain()\n")
        words = [sys.executable, self._script, "train", preset, "--out", self.path, *flags, *LASTS]
        (first, *_), cluster = three
        joined = ["--on", "ray", "--address", cluster.address, "--silence", SILENCE]
        with self._err.open("w") as err:
            program: Any = first.run([*words, *joined], cluster.environment, stderr=err)
        self.process, self.family = program, set()

    def steps(self) -> int:
        found = self.metrics()
        return int(found[-1]["steps"]) if found else 0

    def places(self) -> dict[str, str]:
        """Return on which host each process is, or was when it was last begun."""
        return dict(re.findall(r"^PLACE (\S+) (\S+) \S+$", self.log, re.MULTILINE))

    def stop(self) -> dict[str, Any]:
        """Press Ctrl-C; return what the run prints."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=LONG)
        assert self.process.returncode == 130, self.log
        summary: dict[str, Any] = json.loads(out)
        assert summary["stopped"] == "Ctrl-C"
        return summary


def test_a_group_learns_though_learners_are_killed_and_frozen(tmp_path: Path, three: Three) -> None:
    run = Placed(three, tmp_path, *GROUP)
    run.learn_on()
    where = run.places()
    assert where["main"] == where["actor-0"] == "h1"
    assert where["main-1"] == where["actor-1"] != "h1"
    for how in ("SIGKILL", "SIGSTOP"):
        hit = run.go_back(how, "learner")
        assert (hit["what"] in ("main", "main-1"), hit["signal"]) == (True, how)
        assert hit["process"] in [line.get("process") for line in run.events("lost")]
        run.learn_on()
    told = len(run.metrics())
    run.wait(lambda: run.plays_well(told))  # and not only before what befell it
    summary = run.stop()
    restored = len(run.events("restored"))
    run.assert_restored(restored)
    assert restored >= 2
    assert complete(run.path)[-1]["steps"] == summary["steps"]
    assert re.search(r"stopped by Ctrl-C at [\d,]+ steps, all saved", run.log)
    assert evaluate(load(run.path), episodes=1000).mean >= 0.75
    wait_for(lambda: sum(map(cells, three[0])) == 0, LONG)


def test_workers_are_spread_and_servers_avoid_the_tracker(tmp_path: Path, three: Three) -> None:
    run = Placed(three, tmp_path, "--workers", 3, "--servers", 4, preset="dba3c-catch")
    run.learn_on()
    where = run.places()
    assert where["tracker"] == "h1"
    assert {where[f"server-{number}"] for number in range(4)} == {"h2", "h3"}
    assert {where[f"worker-{number}"] for number in range(3)} == {"h1", "h2", "h3"}
    run.stop()


def test_queues_are_near_their_actors_and_stay_so_when_a_host_dies(
    tmp_path: Path, three: Three
) -> None:
    run = Placed(three, tmp_path, *QUEUES)
    run.wait(lambda: not run.events("lost") and run.steps() > 5_000)
    where = run.places()
    assert where["main"] == "h1"
    assert where["actor-0"] == where["actor-1"] == where["replay-0"]
    assert where["actor-2"] == where["actor-3"] == where["replay-1"]
    assert {where["replay-0"], where["replay-1"]} == {"h2", "h3"}

    (victim,) = (host for host in three[0] if host.name == where["replay-1"])
    victim.kill()
    group = {"replay-1", "actor-2", "actor-3"}
    run.wait(lambda: {line["what"] for line in run.events("back")} >= group)
    for line in run.events("lost"):
        assert line["what"] in group
        assert line["times"] >= 1
    at = run.steps()
    run.wait(lambda: run.steps() > at + 5_000)
    now = run.places()
    assert now["replay-1"] in {now["actor-2"], now["actor-3"]}
    assert victim.name not in {now[name] for name in group}
    assert now["replay-0"] == where["replay-0"]
    assert run.events("restored") == []  # nothing went back to a checkpoint
    run.stop()
    told = rf"^replay-1 on {victim.name} \(process \d+\) .*; begun again$"
    assert re.search(told, run.log, re.MULTILINE)
