"""Slow hosts: the kernel holds them to their CPUs and links, by its own counters."""

from __future__ import annotations

import os
import sys

import pytest

from helpers.hosts import GROUP, PERIOD, QUOTAS, bytes_per_second, hosting, needs_quotas, wait_for

pytestmark = [pytest.mark.cluster, needs_quotas]

SPIN = "for i in 1 2 3; do (i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done) & done; wait"

LISTEN = """
import socket
server = socket.create_server(("", 7000))
print("up", flush=True)
there, _ = server.accept()
print(sum(len(part) for part in iter(lambda: there.recv(1 << 16), b"")))
"""

SEND = """
import socket, sys
socket.create_connection((sys.argv[1], 7000)).sendall(bytes(int(sys.argv[2])))
"""


def test_a_slow_host_is_held_to_its_cpus_and_its_link() -> None:
    with hosting(2, cpus=0.25, link="4MB/s") as (first, second):
        first.check(["sh", "-c", SPIN])
        quota = first.quota()
        allowed = 0.25 * PERIOD * 1000  # nanoseconds in each period
        assert quota["nr_throttled"] > 2
        periods = quota["nr_periods"] + 20  # a tick of the clock may be as long as a period
        assert quota["usage"] <= periods * allowed
        assert second.quota()["usage"] == 0  # the other one has its own
        second.limit(cpus=2.0)

        listener = second.run([sys.executable, "-c", LISTEN])
        assert listener.stdout
        assert listener.stdout.readline() == "up\n"
        sent = 2_000_000
        first.check([sys.executable, "-c", SEND, second.address, sent])
        assert listener.stdout.read() == f"{sent}\n"
        out, _ = first.carried()
        _, into = second.carried()
        for way in (out, into):
            assert way["options"]["rate"] == bytes_per_second("4MB/s")
            assert sent < way["bytes"] < 1.2 * sent
        assert out["overlimits"] > 0  # it had to wait
        second.limit(link="100MB/s")
        assert second.carried()[0]["options"]["rate"] == bytes_per_second("100MB/s")


def test_a_program_that_runs_already_is_confined_by_its_title_and_ends_with_its_host() -> None:
    with hosting(1) as (host,):
        spin = ["sh", "-c", "echo up; while :; do :; done"]
        spinning = host.run(spin)
        assert spinning.stdout
        assert spinning.stdout.readline() == "up\n"
        host.limit(cpus=0.25)
        host.confine("another")
        assert host.quota()["usage"] == 0
        host.confine("sh-cecho")
        wait_for(lambda: host.quota()["nr_throttled"] > 2)
        host.run(spin)  # is confined from the start
    assert not list(QUOTAS.glob(f"{GROUP}{os.getpid()}-*"))
