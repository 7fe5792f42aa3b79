"""The hosts that tests of clusters run on, and Ray on them (make test-cluster)."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

import psutil
import pytest

from helpers.hosts import Host, Hosts, Program, needs_root, ray_cluster, wait_for

pytestmark = [pytest.mark.cluster, needs_root]

ANSWER = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("listens", flush=True)
while True:
    with server.accept()[0] as caller:
        caller.sendall(socket.gethostname().encode())
"""

ASK = """
import os, socket, sys
with socket.create_connection((sys.argv[1], 7000), timeout=10) as server:
    print(server.recv(100).decode(), *sorted(p for p in os.listdir("/proc") if p.isdigit()))
"""

SPREAD = """
import json, os, socket, sys, time
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
@ray.remote(num_cpus=1)
class Actor:
    def where(self):
        return socket.gethostname()
actors = [Actor.options(scheduling_strategy="SPREAD").remote() for _ in range(3)]
print(json.dumps(sorted(ray.get([a.where.remote() for a in actors]))), flush=True)
while True:
    alive = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
    print(json.dumps(sorted(alive)), flush=True)
    time.sleep(0.2)
"""


def python(host: Host, program: str, *args: str, **environment: str) -> Program:
    return host.run([sys.executable, "-c", program, *args], environment)


def line(program: Program) -> str:
    assert program.stdout
    return program.stdout.readline().strip()


def namespaces(pids: Iterable[int]) -> set[str]:
    """Network and pid namespaces of some processes."""
    found = set()
    for pid in pids:
        with suppress(OSError):  # it has just ended
            found |= {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "pid")}
    return found


def test_hosts_see_each_other_but_not_each_others_processes() -> None:
    with Hosts(2) as (one, two):
        server = python(two, ANSWER)
        assert line(server) == "listens"
        name, *pids = one.check([sys.executable, "-c", ASK, two.address]).split()
        assert name == "h2"
        assert len(pids) == 2  # its first process and the one that asks
        assert pids[0] == "1"
        assert len(two.processes()) == 2
        assert not set(one.processes()) & set(two.processes())

        two.freeze()
        assert {psutil.Process(pid).status() for pid in two.processes()[1:]} == {"stopped"}
        two.thaw()
        assert one.check([sys.executable, "-c", ASK, two.address]).startswith("h2 ")
        server.terminate()
        assert server.wait(timeout=120) == -signal.SIGTERM


def test_nothing_is_left_of_hosts() -> None:
    before = psutil.Process().children(recursive=True)
    with Hosts(2) as hosts:
        programs = [python(host, ANSWER) for host in (*hosts, hosts[1])]
        made = set.union(*(namespaces(host.processes()) for host in hosts))
        assert len(made) == 2 * len(hosts)
        hosts[1].freeze()
    assert [program.returncode for program in programs] == [-signal.SIGKILL] * 3
    assert psutil.Process().children(recursive=True) == before
    assert not made & namespaces(psutil.pids())


def test_ray_spans_three_hosts_and_misses_a_dead_one() -> None:
    with Hosts(3) as hosts:
        with ray_cluster(hosts, cpus=1) as cluster:
            false = {"RAY_AUTH_TOKEN": "0" * 64, "RAY_NUM_REDIS_GET_RETRIES": "2"}
            stranger = python(hosts[0], SPREAD, cluster.address, RAY_AUTH_MODE="token", **false)
            program = python(hosts[0], SPREAD, cluster.address, **cluster.environment)
            assert json.loads(line(program)) == ["h1", "h2", "h3"]
            assert json.loads(line(program)) == [host.address for host in hosts]
            assert [len(list(host.folder.glob("ray/session_2*"))) for host in hosts] == [1, 1, 1]
            hosts[2].kill()
            living = json.dumps([host.address for host in hosts[:2]])
            wait_for(lambda: line(program) == living)  # Ray prints lines of its own
            out, err = stranger.communicate(timeout=300)
            assert stranger.returncode
            assert not out
            assert "InvalidAuthToken" in err
        # Ray's agents outlive the process that began them by a moment
        wait_for(lambda: [len(host.processes()) for host in hosts] == [1, 1, 0])
