"""Queues on three hosts: near their actors, also after a host has died (make test-cluster)."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, Hosts, needs_root, ray_cluster, wait_for
from test_ray_hosts import LONG, lines

pytestmark = [pytest.mark.cluster, needs_root]

WORDS = ("--actors", 4, "--replays", 2, "--replay-proportion", 0.5, "--replay-slots", 18)
SHORT = ("--no-finish", "--no-tensorboard", "--json", "--checkpoint-seconds", 2)
LASTS = ("--until-score", 2, "--steps", 10_000_000, "--minutes", 20)

PLACES = """
import sys
from gelada.cli.main import main
from gelada.runtime.ray import prepare
prepare(sys.argv[sys.argv.index("--address") + 1])
from gelada.runtime.ray import runtime

begin = runtime.Ray._take_begun

def told(self, process, reference):
    begin(self, process, reference)
    if process.about:
        print("PLACE", process.spec.name, process.about.host, file=sys.stderr, flush=True)

runtime.Ray._take_begun = told
main()
"""
"""The command, which also says on which host each process has begun."""


def places(said: Path) -> list[tuple[str, str]]:
    """Return (process, host) in the order in which they began."""
    found = re.findall(r"^PLACE (\S+) (\S+)$", said.read_text(), re.MULTILINE)
    return [(name, host) for name, host in found]


def begin(hosts: tuple[Host, ...], cluster: Any, folder: Path) -> Any:
    program = folder / "driver.py"
    program.write_text(PLACES)
    words = [sys.executable, program, "train", "catch", "--out", folder / "run"]
    joined = ["--on", "ray", "--address", cluster.address, "--silence", 6]
    with (folder / "said").open("w") as said:
        return hosts[0].run(
            [*words, *WORDS, *SHORT, *LASTS, *joined], cluster.environment, stderr=said
        )


def test_queues_are_near_their_actors_and_stay_so_when_a_host_dies(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with Hosts(3) as hosts, ray_cluster(hosts, cpus=4) as cluster:
        program = begin(hosts, cluster, tmp_path)

        def events(name: str) -> list[dict[str, Any]]:
            assert program.poll() is None, said.read_text()
            found = lines(tmp_path / "run" / "events.jsonl")
            return [line for line in found if line["event"] == name]

        def steps() -> int:
            found = lines(tmp_path / "run" / "metrics.jsonl")
            return int(found[-1]["steps"]) if found else 0

        wait_for(lambda: not events("lost") and steps() > 5_000, LONG)
        where = dict(places(said))
        assert where["main"] == "h1"
        assert where["actor-0"] == where["actor-1"] == where["replay-0"]
        assert where["actor-2"] == where["actor-3"] == where["replay-1"]
        assert {where["replay-0"], where["replay-1"]} == {"h2", "h3"}

        (victim,) = (host for host in hosts if host.name == where["replay-1"])
        victim.kill()
        group = {"replay-1", "actor-2", "actor-3"}
        wait_for(lambda: {line["what"] for line in events("back")} >= group, LONG)
        for line in events("lost"):
            assert line["what"] in group
            assert line["times"] >= 1
        at = steps()
        wait_for(lambda: steps() > at + 5_000, LONG)
        now = dict(places(said))  # the newest of each
        assert now["replay-1"] in {now["actor-2"], now["actor-3"]}
        assert victim.name not in {now[name] for name in group}
        assert now["replay-0"] == where["replay-0"]
        assert events("restored") == []  # nothing went back to a checkpoint
        program.send_signal(signal.SIGINT)
        out, _ = program.communicate(timeout=LONG)
        assert program.returncode == 130, said.read_text()
    assert json.loads(out)["stopped"] == "Ctrl-C"
    text = said.read_text()
    told = rf"^replay-1 on {victim.name} \(process \d+\) .*; begun again$"
    assert re.search(told, text, re.MULTILINE)
