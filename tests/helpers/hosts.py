"""Hosts made of namespaces on one machine, and Ray on them. Needs root and iproute2.

A host has its own network, processes, mounts and name; files are those of the machine. It lives
as long as its first process, which ends with ours: nothing is left behind, however a test ends.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

QUOTAS = Path("/sys/fs/cgroup/cpu")
"""Of version 1, where a group of processes has a share of the CPUs."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes hosts of namespaces: needs root")

needs_quotas = pytest.mark.skipif(
    not (QUOTAS / "cgroup.procs").exists() or os.geteuid() != 0,
    reason="limits the CPUs of hosts: needs root and control groups of version 1",
)

LONG = 400.0
"""Seconds: a bound for waiting, on a slow machine too."""

GROUP = "colobus-host-"
"""What the names of the hosts' control groups begin with."""

KINDS = ("cpu", "cpuacct")
"""Of control groups, in which a slow host has one each."""

PERIOD = 10_000
"""Microseconds in which a slow host has its CPU time: few, so that hosts which wait for each other
do not wait for each other's next period most of the time."""

SUBNET = "10.77.0"  # every set of hosts has networks of its own, so all may use the same one

# The first process of a host: children without a parent come to it and are reaped by the kernel.
INIT = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
sys.stdin.read()
"""

HOST = """
mount -t tmpfs tmpfs /dev/shm
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/$1" "$2/t"
hostname "$1"
ip link set lo up
exec "$3" -E -S -c "$4"
"""

SWITCH = """
ip link add bridge type bridge
ip link set bridge up
echo up
exec cat
"""


class Program(subprocess.Popen[str]):
    """A program inside a host. Its signals go to the program, not to nsenter, our child."""

    def send_signal(self, sig: int) -> None:
        """Send a signal to the program, if it still runs."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children():
                child.send_signal(sig)
        self.wake()

    def wake(self) -> None:
        """Let nsenter go on: it stops itself whenever it sees its program stopped."""
        super().send_signal(signal.SIGCONT)


class Host:
    """One host: its ``name``, h1, h2, ..., its ``address`` and the ``folder`` of its Ray.

    Ray has the same path for its files everywhere, so each host sees its own folder there.

    Args:
        number: of the host, from 1.
        switch: the network between the hosts.
        folder: of all hosts.
        cpus: CPUs that everything in the host may use together, Ray too; see `limit`.
        link: bytes a second, such as "4MB/s"; see `limit`.
    """

    def __init__(
        self,
        number: int,
        switch: Namespaces,
        folder: Path,
        cpus: float | None = None,
        link: str | None = None,
    ) -> None:
        self.name = f"h{number}"
        self.address = f"{SUBNET}.{number}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self._variables = {"RAY_TMPDIR": str(folder / "t")}
        self._switch = switch
        self._programs: list[Program] = []
        kinds = ["--net", "--pid", "--fork", "--mount-proc", "--uts"]
        self._own = Namespaces(kinds, HOST, self.name, folder, sys.executable, INIT)
        self._init = psutil.Process(self._own.process.pid).children()[0].pid
        self._namespace = os.readlink(f"/proc/{self._init}/ns/pid")
        self._group = f"{GROUP}{os.getpid()}-{self.name}"
        self._connect()
        self.limit(cpus, link)

    def limit(self, cpus: float | None = None, link: str | None = None) -> None:
        """Make this a slow host, or another one than it was; what is not given stays as it is.

        Args:
            cpus: CPUs for all programs that `run` starts after the first call and what they start.
                They have so much time in each `PERIOD`, and then wait for the next.
            link: bytes a second in each direction, such as "4MB/s". What stays within the host,
                such as calls between processes of the same host, is not slowed down.
        """
        if cpus is not None:
            for kind in KINDS:
                (QUOTAS.with_name(kind) / self._group).mkdir(exist_ok=True)
            group = QUOTAS / self._group
            (group / "cpu.cfs_period_us").write_text(f"{PERIOD}")
            (group / "cpu.cfs_quota_us").write_text(f"{round(cpus * PERIOD)}")
        if link is not None:
            rate = bytes_per_second(link)
            burst = max(rate // 100, 128_000)  # of less than 64 kB no packet would pass
            bucket = ["root", "tbf", "rate", f"{8 * rate}bit", "burst", f"{burst}"]
            for side, device in ((self._own, "eth0"), (self._switch, self.name)):
                side.call("tc", "qdisc", "replace", "dev", device, *bucket, "latency", "400ms")

    def confine(self, title: str) -> int:
        """Let programs that `run` started before the first limit have it too, by their title.

        Returns how many there are.
        """
        found = 0
        for pid in self.processes():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if "".join(psutil.Process(pid).cmdline()).startswith(title):
                    found += 1
                    for kind in KINDS:
                        (QUOTAS.with_name(kind) / self._group / "cgroup.procs").write_text(f"{pid}")
        return found

    def quota(self) -> dict[str, int]:
        """Return what the kernel counted of the host's CPUs, since they were first limited.

        ``usage`` nanoseconds used, ``nr_periods`` periods in which something ran,
        ``nr_throttled`` of them in which it had to wait.
        """
        lines = (QUOTAS / self._group / "cpu.stat").read_text().splitlines()
        used = (QUOTAS.with_name("cpuacct") / self._group / "cpuacct.usage").read_text()
        return {name: int(n) for name, n in map(str.split, lines)} | {"usage": int(used)}

    def carried(self) -> list[dict[str, Any]]:
        """Return what the kernel counted of the link: out of the host, and into it."""
        sides = ((self._own, "eth0"), (self._switch, self.name))
        show = ("tc", "-json", "-statistics", "qdisc", "show", "dev")
        return [json.loads(side.call(*show, device))[0] for side, device in sides]

    def _connect(self) -> None:
        link = ["ip", "link", "add", self.name, "type", "veth"]
        self._switch.call(*link, "peer", "name", "eth0", "netns", str(self._init))
        self._switch.call("ip", "link", "set", self.name, "master", "bridge", "up")
        self._own.call("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self._own.call("ip", "link", "set", "eth0", "up")
        # Programs look up their own address by asking for the route to somewhere far away.
        self._own.call("ip", "route", "add", "default", "dev", "eth0")

    def run(
        self,
        command: Sequence[object],
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Program:
        """Start a program in this host; options are those of Popen, by default with pipes."""
        enter = ["nsenter", f"--target={self._init}", "--net", "--pid", "--mount", "--uts", "--wd"]
        groups = [QUOTAS.with_name(kind) / self._group / "cgroup.procs" for kind in KINDS]
        if groups[0].exists():
            join = 'for group; do shift; [ "$group" = -- ] && break; echo $$ > "$group"; done'
            enter = ["sh", "-ec", f'{join}; exec "$@"', "sh", *map(str, groups), "--", *enter]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        usual = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}  # of another Ray
        program = Program(
            [*enter, "--", *map(str, command)],
            env={**usual, **self._variables, **(environment or {})},
            text=True,
            start_new_session=True,  # Ctrl-C is for pytest
            **{**pipes, **options},
        )
        self._programs.append(program)
        return program

    def check(
        self,
        command: Sequence[object],
        environment: Mapping[str, str] | None = None,
        seconds: float = 300.0,
    ) -> str:
        """Return what a program prints; RuntimeError if it fails or takes too many seconds."""
        program = self.run(command, environment)
        try:
            out, err = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            program.kill()
            out, err = program.communicate()
        if program.returncode:
            what = " ".join(map(str, command))
            raise RuntimeError(f"{what} on {self.name}: exit {program.returncode}\n{out}\n{err}")
        return out

    def processes(self) -> list[int]:
        """Return the process ids, as this machine counts them; the host's first process first."""
        found = []
        for pid in psutil.pids():
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == self._namespace:
                    found.append(pid)
        return sorted(found, key=lambda pid: (pid != self._init, pid))

    def clear(self) -> None:
        """Kill every process but the first one."""
        wait_for(lambda: not self._killed())

    def kill(self) -> None:
        """End the host as if its power went: nothing more is heard of it."""
        if self._own.process.poll() is None:
            self._switch.call("ip", "link", "set", self.name, "down")
            os.kill(self._init, signal.SIGKILL)  # takes all others with it
            wait_for(self._ended)
            for program in self._programs:
                program.wait(timeout=120)  # a group with a dead child in it cannot be removed
            for kind in KINDS:
                with suppress(FileNotFoundError):
                    (QUOTAS.with_name(kind) / self._group).rmdir()

    def close(self) -> None:
        """Kill the host and let go of what is left of its programs."""
        self.kill()
        for program in self._programs:
            with program:  # closes its pipes
                pass
        self._own.close()

    def _ended(self) -> bool:
        for program in self._programs:
            program.wake()  # a host ends when the last of its processes has been waited for
        return self._own.process.poll() is not None

    def _killed(self) -> int:
        """Kill all but the first one and zombies; return how many there were."""
        sent = 0
        for pid in self.processes():
            with suppress(OSError):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if pid != self._init and state != "Z":
                    os.kill(pid, signal.SIGKILL)
                    sent += 1
        return sent


class Namespaces:
    """New namespaces of some kinds, held by one process that ends when ours does."""

    def __init__(self, kinds: Sequence[str], script: str, *args: object) -> None:
        self.process = subprocess.Popen(
            ["unshare", *kinds, "--", "sh", "-ec", script, "sh", *map(str, args)],
            stdin=subprocess.PIPE,  # end of file is its sign to end
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout
        assert self.process.stderr
        if self.process.stdout.readline() != "up\n":
            said = self.process.stderr.read()
            self.close()
            raise RuntimeError(f"cannot make a host (is iproute2 installed?): {said}")

    def call(self, *command: str) -> str:
        """Run a command of the machine in the network namespace; return what it prints."""
        enter = ["nsenter", f"--target={self.process.pid}", "--net", "--", *command]
        return subprocess.run(enter, check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """End the process that holds them."""
        with self.process:  # closes its pipes, and waits
            pass


@contextmanager
def hosting(
    count: int, cpus: float | None = None, link: str | None = None
) -> Iterator[tuple[Host, ...]]:
    """Give ``count`` hosts on one network, which see each other and nothing else.

    ``cpus`` and ``link`` are those of each (None: all of this machine's), see `Host.limit`.
    """
    drop_groups()
    with ExitStack() as stack:
        # Short, as the paths of Unix sockets end after 107 characters.
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="h", dir="/tmp")))
        (folder / "t").mkdir()
        lines = [f"{SUBNET}.{n + 1} h{n + 1}" for n in range(count)]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        switch = Namespaces(["--net"], SWITCH)
        stack.callback(switch.close)
        hosts = []
        for n in range(count):
            hosts.append(Host(n + 1, switch, folder, cpus, link))
            stack.callback(hosts[-1].close)
        yield tuple(hosts)


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster."""

    address: str  # HOST:PORT
    environment: dict[str, str]  # of a program that joins it


@contextmanager
def ray_cluster(hosts: Sequence[Host], cpus: int, jobs: bool = False) -> Iterator[Cluster]:
    """Run Ray with ``cpus`` CPUs on each host, the first being the head; kill all in the end.

    With ``jobs`` the head's dashboard takes jobs, at port 8265 of its address.
    """
    token = hosts[0].folder.parent / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        # A dead host is noticed after a few seconds: failures x (timeout + period).
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1500",
        "RAY_health_check_failure_threshold": "3",
    }
    cluster = Cluster(f"{hosts[0].address}:6379", environment)
    start = [Path(sys.executable).with_name("ray"), "start", f"--num-cpus={cpus}", "--num-gpus=0"]
    start += ["--object-store-memory=100000000"]
    head = ["--head", "--port=6379", f"--include-dashboard={str(jobs).lower()}", "--no-monitor"]
    head += ["--dashboard-host=0.0.0.0"] if jobs else []
    try:
        for host in hosts:  # `ray start` returns when the cluster knows of the host
            role = head if host is hosts[0] else [f"--address={cluster.address}"]
            host.check([*start, f"--node-ip-address={host.address}", *role], environment)
        yield cluster
    finally:
        for host in hosts:
            host.clear()


def wait_for(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until something holds; TimeoutError if it does not within so many seconds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"{holds} did not hold within {seconds:g} s")
        time.sleep(0.02)


def bytes_per_second(link: str) -> int:
    """Return what a text such as "4MB/s" means; ValueError if it means nothing."""
    match = re.fullmatch(r"([0-9.]+)([kMG])B/s", link)
    if match is None:
        raise ValueError(f"{link}: want such as 4MB/s")
    return round(float(match[1]) * {"k": 1e3, "M": 1e6, "G": 1e9}[match[2]])


def drop_groups() -> None:
    """Remove the groups of hosts whose tests were killed."""
    for kind in KINDS:
        for group in QUOTAS.with_name(kind).glob(f"{GROUP}*"):
            if not psutil.pid_exists(int(group.name.removeprefix(GROUP).split("-")[0])):
                with suppress(OSError):  # something still runs in it
                    group.rmdir()


def cells(host: Host) -> int:
    """Return how many processes of a run live on a host."""
    return len(environments(host))


def environments(host: Host) -> list[dict[str, str]]:
    """Return the environment of each process of a run on a host."""
    found = []
    for pid in host.processes():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if "".join(process.cmdline()[:1]).startswith("ray::Process"):
                found.append(process.environ())
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file of JSON lines."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
