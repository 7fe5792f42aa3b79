"""Which ports of a Ray of its own listen, at which addresses, and who may use them.

The table in docs/clusters.md is compared with what really listens.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from helpers.ray_runs import IDLE, PATIENT, Begin, Run, listening, running

pytestmark = pytest.mark.cluster

TABLE = Path(__file__).resolve().parents[2] / "docs" / "clusters.md"

EXTRA = ", with the extra `jobs`"
"""Of those that listen only where all of Ray is installed, and not from the beginning."""

COMMANDS = {
    "`gcs_server`": r"/gcs_server ",
    "`raylet`": r"/raylet/raylet ",
    f"`DashboardAgent`{EXTRA}": r"DashboardAgent|dashboard/agent\.py",
    f"`dashboard.py`{EXTRA}": r"dashboard/dashboard\.py",
    f"`monitor.py`{EXTRA}": r"autoscaler/_private/monitor\.py",
    "`RuntimeEnvAgent`": r"RuntimeEnvAgent|runtime_env/agent/main\.py",
    "each process of the run": r"^ray::Process",
    "each spare process": r"^ray::IDLE",
}
"""How the processes in the table are known by their command lines."""


def rows() -> dict[str, tuple[str, str, str]]:
    """Return address, number of ports and protocol of each process in the table."""
    found = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| (\S+) \| (\d) \| ([^|]+) \|$", TABLE.read_text(), re.MULTILINE
    )
    return {what: (address, count, protocol) for what, address, count, protocol in found}


def what_listens(run: Run) -> dict[str, list[set[tuple[str, int]]]]:
    """Return what each kind of process listens at."""
    found: dict[str, list[set[tuple[str, int]]]] = {}
    for process in [psutil.Process(run.process.pid), *run.family]:
        ports, command = listening(process), running(process)
        kinds = [kind for kind, form in COMMANDS.items() if re.search(form, command)]
        kind = "the command" if process.pid == run.process.pid else (kinds or [command])[0]
        if ports and command:  # else it has just ended
            found.setdefault(kind, []).append(ports)
    return found


def answer(address: tuple[str, int]) -> str:
    """Return what a port answers to a question of a web browser, without a token."""
    host, port = address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/", timeout=10) as page:
            return str(page.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except (OSError, http.client.HTTPException):
        return "no HTTP"


def test_the_table_of_ports_is_what_really_listens(begin: Begin) -> None:
    run = begin("dba3c-catch", *IDLE, *PATIENT)
    run.learn_on()
    found, table = what_listens(run), rows()
    assert {address for address, _, _ in table.values()} == {"127.0.0.1"}
    assert found.keys() <= table.keys()
    assert {kind for kind in table.keys() - found if EXTRA not in kind} <= {"each spare process"}
    for kind, each in found.items():
        address, count, protocol = table[kind]
        for ports in each:
            assert {host for host, _ in ports} == {address}, kind
            if EXTRA in kind:
                continue
            assert len(ports) == int(count), kind
            answers = {answer(port) for port in ports}
            assert answers == ({"401"} if protocol == "HTTP" else {"no HTTP"}), kind
