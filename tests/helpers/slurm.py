"""A real Slurm on hosts made of namespaces, with cgroups; jobs that are killed on purpose.

``python tests/helpers/slurm.py 1 5`` gives a job that learns Catch to a Slurm of two nodes, kills
it at a random moment in one of `WAYS`, and waits until it has come back by itself and learned: with
the seeds 1 to 5, one way after the other. It prints a JSON object for each, and fails if one did
not learn. Needs root, iproute2, Slurm and Ray.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

sys.path.append(str(Path(__file__).parents[1]))  # as a program

from helpers.hosts import Host, hosting, lines, wait_for

CONF = """
ClusterName=test
SlurmctldHost={head.name}({head.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
SlurmdTimeout=20
KillWait=20
ReturnToService=2
SchedulerParameters=sched_interval=5,bf_interval=5
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SlurmdParameters=config_overrides
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={host.name} NodeAddr={host.address} NodeHostname={host.name} CPUs=2"

CGROUPS = """
for kind in freezer cpuset memory; do
    own=/sys/fs/cgroup/$kind/$1
    mkdir -p "$own"
    if [ $kind = cpuset ]; then
        cat /sys/fs/cgroup/cpuset/cpuset.cpus >"$own/cpuset.cpus"
        cat /sys/fs/cgroup/cpuset/cpuset.mems >"$own/cpuset.mems"
    fi
    mount --bind "$own" "/sys/fs/cgroup/$kind"
done
"""
"""Gives a host cgroups of its own, with which its Slurm finds and kills all processes of a job."""


ENDS: tuple[str, ...] = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL")
ENDS += ("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
"""States in which a job is over, as scontrol names them. Others pass, some at once (SIGNALING)."""


@dataclass(frozen=True)
class Slurm:
    """Slurm on some hosts."""

    head: Host  # with the controller, on which jobs are submitted
    nodes: tuple[Host, ...]
    environment: dict[str, str]

    def run(self, *words: object) -> str:
        """Return what one of its commands prints."""
        return self.head.check(words, self.environment, seconds=60)

    def submit(self, folder: Path, *words: object) -> str:
        """Have ``colobus slurm`` hand in a job from a folder; return its number."""
        command = [sys.executable, "-m", "colobus", "slurm", *words, "--submit"]
        return self.run("sh", "-ec", 'cd "$0"; exec "$@"', folder, *command).split()[1]

    def facts(self, job: str) -> dict[str, str]:
        """Return what Slurm knows of a job, such as JobState, ExitCode and Restarts."""
        words = self.run("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def is_over(self, job: str) -> bool:
        """Return whether a job has ended and does not come back."""
        return self.facts(job)["JobState"] in ENDS

    def serve(self, node: Host) -> None:
        """Start Slurm's program of a node."""
        node.run(["slurmd", "-D", "-N", node.name], self.environment)

    def idle(self) -> bool:
        """Return whether all nodes are there and have no job."""
        try:
            said = self.run("sinfo", "--noheader", "--format=%T %D").split()
        except RuntimeError:  # the controller is not there yet
            return False
        return said == ["idle", str(len(self.nodes))]


@contextmanager
def slurm(nodes: tuple[Host, ...], head: Host) -> Iterator[Slurm]:
    """Run Slurm on hosts, with the controller on another one; kill all in the end."""
    folder = head.folder.parent
    (folder / "state").mkdir()
    text = CONF.format(
        head=head, folder=folder, nodes="\n".join(NODE.format(host=host) for host in nodes)
    )
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    own = {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "HOME": str(folder),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    socket = folder / "munge.socket"
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    found = Slurm(head, nodes, own)
    try:
        head.run(["munged", "--foreground", "--force", f"--socket={socket}", *files], own)
        wait_for(socket.exists)
        head.run(["slurmctld", "-D", "-i"], own)
        for node in nodes:
            (folder / f"spool-{node.name}").mkdir()
            node.check(["sh", "-ec", CGROUPS, "sh", f"test-{os.getpid()}-{node.name}"])
            found.serve(node)
        wait_for(found.idle)
        yield found
    finally:
        for host in (*nodes, head):
            host.clear()
        for root in Path("/sys/fs/cgroup").glob(f"*/test-{os.getpid()}-*"):
            for below, _, _ in os.walk(root, topdown=False):
                with suppress(OSError):  # a process of it is still being reaped
                    os.rmdir(below)


def lose_node(cluster: Slurm, _job: str, chance: random.Random) -> None:
    """Kill all processes of a node, as if its power went; it comes back after a while."""
    node = chance.choice(cluster.nodes)
    node.clear()
    time.sleep(5)
    cluster.serve(node)


def preempt(cluster: Slurm, job: str, _chance: random.Random) -> None:
    """Have Slurm take the nodes for another job, so to say."""
    cluster.run("scontrol", "requeue", job)


def end_time(cluster: Slurm, job: str, _chance: random.Random) -> None:
    """Let the job be two minutes before the end of its time: Slurm signals it soon."""
    hours, minutes, _ = cluster.facts(job)["RunTime"].split(":")
    soon = int(hours) * 60 + int(minutes) + 2
    cluster.run("scontrol", "update", f"JobId={job}", f"TimeLimit={soon}")
    wait_for(lambda: cluster.facts(job)["Restarts"] != "0" or cluster.is_over(job), 300)
    cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=60")


def kill_command(cluster: Slurm, _job: str, _chance: random.Random) -> None:
    """Kill the training, as the kernel does for want of memory."""
    _kill(cluster, lambda words: "--resume-or-start" in words and "python" in words)


def kill_ray(cluster: Slurm, _job: str, _chance: random.Random) -> None:
    """Kill Ray's head process."""
    _kill(cluster, lambda words: "gcs_server" in words.split()[0])


WAYS: Mapping[str, Callable[[Slurm, str, random.Random], None]] = {
    "a node is lost": lose_node,
    "its time is over": end_time,
    "the training is killed": kill_command,
    "other jobs go first": preempt,
    "Ray's head process is killed": kill_ray,
}
"""How a job is killed."""


def _kill(cluster: Slurm, meant: Callable[[str], bool]) -> None:
    """Kill the first process of the nodes whose command line is meant."""
    for node in cluster.nodes:
        for pid in node.processes():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if meant(" ".join(process.cmdline()) or "?"):
                    process.kill()
                    return
    raise RuntimeError("there is no such process")


def learn_though_killed(
    folder: Path, way: str, seconds: float, chance: random.Random, *more: object
) -> dict[str, Any]:
    """Kill the job of a run that learns Catch for three minutes; return how it went on.

    Args:
        folder: for the run, the job and what it prints; must be empty.
        way: of `WAYS`.
        seconds: of training after which it is killed.
        chance: which node is lost.
        more: words of the training.
    """
    run, out = folder / "run", folder / "run.out"
    words = ["dba3c-catch", "--nodes", 2, "--workers", 2, "--time", 60, "--no-tensorboard"]
    words += ["--minutes", 3, "--checkpoint-seconds", 5, "--out", run, *more]

    def done() -> float:
        return max((line["seconds"] for line in lines(run / "metrics.jsonl")), default=0.0)

    with hosting(3) as hosts, slurm(hosts[:2], hosts[2]) as cluster:
        job = cluster.submit(folder, *words)
        wait_for(lambda: done() > seconds or cluster.is_over(job), 600)
        killed_after = done()
        WAYS[way](cluster, job, chance)
        wait_for(lambda: cluster.is_over(job), 1200)
        facts = cluster.facts(job)
    scores = [json.loads(path.read_text())["mean"] for path in (run / "eval").glob("*.json")]
    state, restarts = f"{facts['JobState']} {facts['ExitCode']}", int(facts["Restarts"])
    return {
        "way": way,
        "killed_after": killed_after,
        "state": state,
        "restarts": restarts,
        "seconds": done(),
        "score": max(scores, default=None),
        "learned": state == "COMPLETED 0:0" and restarts > 0 and max(scores, default=0) > 0.6,
        "hosts": sorted(path.name for path in (run / "logs").glob("*")),
        "printed": out.read_text(),
    }


def main(first: int, last: int) -> int:
    """Kill a job with each of the seeds; return 1 if one did not come back or did not learn."""
    good = 0
    for seed in range(first, last + 1):
        chance = random.Random(seed)
        way = list(WAYS)[seed % len(WAYS)]
        with TemporaryDirectory(prefix="jobs") as folder:
            found = learn_though_killed(Path(folder), way, chance.uniform(0, 120), chance)
        good += found["learned"]
        print(json.dumps({"seed": seed} | found), flush=True)
    print(f"{good} of {last + 1 - first} came back by themselves and learned", flush=True)
    return int(good <= last - first)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, help="seed")
    parser.add_argument("last", type=int, help="seed")
    sys.exit(main(**vars(parser.parse_args())))
