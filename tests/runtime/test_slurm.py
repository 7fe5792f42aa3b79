"""A job of a real Slurm on two hosts: it trains, is stopped, and goes on when it comes again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.hosts import Host, Hosts, needs_root, wait_for

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm.sh"

pytestmark = [
    pytest.mark.cluster,
    needs_root,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed"),
]

CONF = """
ClusterName=test
SlurmctldHost={head.name}({head.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={host.name} NodeAddr={host.address} NodeHostname={host.name} CPUs=2"


@dataclass(frozen=True)
class Slurm:
    """Slurm on some hosts."""

    host: Host  # on which jobs are submitted
    environment: dict[str, str]

    def run(self, *words: object) -> str:
        """Return what one of its commands prints."""
        return self.host.check(words, self.environment, seconds=60)

    def state(self, job: str) -> str:
        """Return the state of a job and its exit code, such as COMPLETED 0:0."""
        words = self.run("scontrol", "show", "job", job).split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        return f"{named['JobState']} {named['ExitCode']}"

    def is_over(self, job: str) -> bool:
        """Return whether a job has ended."""
        return self.state(job).split()[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


@contextmanager
def slurm(hosts: tuple[Host, ...]) -> Iterator[Slurm]:
    """Run Slurm on hosts, the first of which has the controller; kill all in the end."""
    folder, head = hosts[0].folder.parent, hosts[0]
    (folder / "state").mkdir()
    nodes = "\n".join(NODE.format(host=host) for host in hosts)
    (folder / "slurm.conf").write_text(CONF.format(head=head, folder=folder, nodes=nodes))
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
    try:
        head.run(["munged", "--foreground", "--force", f"--socket={socket}", *files], own)
        wait_for(socket.exists)
        head.run(["slurmctld", "-D", "-i"], own)
        for host in hosts:
            (folder / f"spool-{host.name}").mkdir()
            host.run(["slurmd", "-D", "-N", host.name], own)
        found = Slurm(head, own)

        def idle() -> bool:
            try:
                return found.run("sinfo", "--noheader", "--format=%T %D").split() == ["idle", "2"]
            except RuntimeError:  # the controller is not there yet
                return False

        wait_for(idle)
        yield found
    finally:
        for host in hosts:
            host.clear()


def test_a_job_is_stopped_in_good_order_and_goes_on(tmp_path: Path) -> None:
    run, words = tmp_path / "run", ["dba3c-catch", "--workers", 2, "--minutes", 20]
    words += ["--no-finish", "--no-tensorboard", "--checkpoint-seconds", 2, "--out", run]
    with Hosts(2) as hosts, slurm(hosts) as cluster:

        def submit(name: str) -> tuple[str, Path]:
            out = tmp_path / name
            return cluster.run("sbatch", "--parsable", "--output", out, SCRIPT, *words).strip(), out

        def steps() -> int:
            names = [path.stem for path in (run / "checkpoints").glob("*.json")]
            return max(map(int, names), default=0)

        job, out = submit("first")
        wait_for(lambda: steps() > 0 or cluster.is_over(job), 300)
        assert steps() > 0, out.read_text()
        cluster.run("scancel", "--batch", "--signal=TERM", job)  # as before its time is over
        wait_for(lambda: cluster.is_over(job), 300)
        said = out.read_text()
        assert "stopped by SIGTERM at" in said, said
        assert not any((hosts[0].folder.parent / ".ray").glob("token*"))
        job, out = submit("again")
        goes_on = f"going on with {run}"
        wait_for(lambda: (out.exists() and goes_on in out.read_text()) or cluster.is_over(job), 300)
        assert goes_on in out.read_text()
