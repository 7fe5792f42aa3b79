"""``colobus slurm``: the job of a run for Slurm, written and handed in."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from colobus.cli.display import Printer
from colobus.cli.experiment_flags import Wanted, cluster_of, resolve, resolve_again
from colobus.cli.flags import flag_of, split_flag, without
from colobus.cli.show import imagined_start
from colobus.cli.train import Train, called
from colobus.core import trust
from colobus.core.errors import ColobusError, quoted
from colobus.core.fields import Range
from colobus.runs.config import read_config
from colobus.runs.folder import LOGS, check_new, free_folder, is_only_begun, is_run, job_of, slug
from colobus.runtime.devices import place
from colobus.runtime.groups import ACTIVE, ROUNDING, UNKNOWN, group_processes, hosts_in, plan_hosts
from colobus.training.runtimes import RuntimeName, launcher
from colobus.training.topology import make_graph
from colobus.training.words import has_checkpoint

TIMES = {"short": "0:55:00", "long": "6:00:00"}
"""Limits of time by name: of queues for short jobs, which are often an hour, and of usual ones."""

TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
"""What Slurm takes as a limit: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""

LEAST_MINUTES = 5
"""Of a job: a start takes one or two, and two before its end it is told to save."""

OWN = ["--nodes", "--time", "--partition", "--account", "--gpus-per-node", "--file"]
OWN += ["--out", "--name"]
"""Flags with values that the training in the job is not given."""

ADDRESS = re.compile(r"[\d.]+|.*:.*")  # of a host; Slurm knows none

REFUSED = {
    "on": "a job of Slurm trains on its own Ray; leave it out",
    "address": "a job of Slurm starts a Ray of its own; leave it out",
    "resume": "name the run's folder by --out: the job goes on with the run there",
    "resume_or_start": "without --out each job has a folder of its own; name the run's by --out",
    "seeds": "a job trains once; write one for each --seed, with an --out of its own",
}
"""Flags of a training that a job cannot have, and what to do instead."""


@dataclass(frozen=True)
class Slurm(Train):
    """Write the job of a run for Slurm; with --submit hand it in.

    All flags of colobus train are taken, too. The job starts Ray on its nodes and trains. It comes
    back until the run is over, whatever ends it before: its limit of time, the loss of a node, or
    jobs that go first.
    """

    hides = frozenset(REFUSED)
    nodes: Annotated[int, Range(1, 10_000)] = 1
    """Nodes of the job."""
    time: str = "long"
    """Limit of time of the job as Slurm takes it, such as 90 (minutes), 6:00:00 or 2-12; short is
    55 minutes, long six hours. A run may take many jobs."""
    partition: str = ""
    """Partition of the job (default: Slurm's own)."""
    account: str = ""
    """Account that the job is charged to (default: Slurm's own)."""
    gpus_per_node: Annotated[int, Range(0, 64)] = 0
    """GPUs of each node that the job asks for."""
    file: Path | None = None
    """Where the job is written (default: the run's folder with .sh behind it)."""
    submit: bool = False
    """Hand the job in, too."""
    on: RuntimeName = "ray"
    """Always ray."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    wanted = resolve(Slurm, "slurm", args)
    flags: Slurm = wanted.flags
    _check(wanted, args)
    usual = free_folder(called(wanted))  # refuses a name beside a folder
    run = flags.out or (flags.file and run_of_job(flags.file)) or usual
    file = flags.file or job_of(run)
    text = job(flags, run, file, [*args, *trust.EVERYTHING]).encode(errors="surrogateescape")
    check_room(wanted, *cpus_of_nodes(flags.partition))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and file.read_bytes() != text:
            raise ColobusError(f"--file {file}: is another job; delete it, or name a new file")
        file.write_bytes(text)
    except OSError as error:
        why = "its folder is a file" if isinstance(error, FileExistsError) else error.strerror
        raise ColobusError(f"--file {file}: {why}; name another file") from None
    if not flags.out and file != job_of(run):  # whose name would keep others from the folder
        with suppress(OSError):
            (run / LOGS).mkdir(parents=True)
    printer = Printer(goes_on=False)
    if not flags.submit:
        printer.line(f"{file} is written; hand it in: sbatch {quoted(str(file))}")
        return 0
    number = submit(file)
    printer.line(
        f"job {number} is handed in: it trains in {run}, and prints into {slug(run.name)}.out; "
        f"squeue --job {number} shows it, scancel {number} ends it"
    )
    return 0


def job(flags: Slurm, run: Path, file: Path, args: Sequence[str]) -> str:
    """Return the text of the job, to be written to ``file``, that trains in the folder ``run``."""
    more = {"partition": flags.partition, "account": flags.account}
    more["gpus-per-node"] = str(flags.gpus_per_node or "")
    named = [host for host in hosts_in(flags.cluster.place) if not ADDRESS.fullmatch(host)]
    # what Slurm may know: without domain, and no addresses; the others are as it likes
    more["nodelist"] = ",".join(dict.fromkeys(host.partition(".")[0] for host in named))
    values = {
        "name": slug(run.name),
        "nodes": str(flags.nodes),
        "time": TIMES.get(flags.time, flags.time),
        "more": "\n".join(f"#SBATCH --{name}={value}" for name, value in more.items() if value),
        "command": quoted("colobus", "slurm", *args),
        "file": quoted(str(file)),  # in a comment, as the command is
        "run": shlex.quote(str(run)),
        "words": shlex.join(without(args, OWN, ["--submit", "--resume-or-start"])),
    }
    text = files("colobus.cli").joinpath("slurm.sh").read_text(encoding="utf-8")
    text = text if values["more"] else text.replace("@more@\n", "")
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)


def run_of_job(file: Path) -> Path | None:
    """Return the folder of the job in a file, if that has not begun, so that it may come again."""
    with suppress(OSError, ValueError):
        if found := re.search(r"export run=(.*?) ", file.read_text()):
            run = Path(*shlex.split(found[1]))
            return None if is_run(run) else run
    return None


def check_room(wanted: Wanted, cpus: int, most: int) -> None:
    """Raise ColobusError if nodes of so many CPUs have no room, or --place names no process.

    Those that --place names may have the CPUs of the largest node.
    """
    flags: Slurm = wanted.flags
    graph = make_graph(wanted.experiment, imagined_start(wanted.experiment), None)
    learning = place(flags.devices, on_ray=True).learn.type == "cuda"
    specs = group_processes(graph, flags.cluster.per_process, learning)
    gpus, there = sum(spec.gpus for spec in specs), flags.gpus_per_node * flags.nodes
    if gpus > there:
        raise ColobusError(
            f"--device {flags.devices.device}: the job asks for {there or 'no'} GPUs, the run for "
            f"{gpus}; add --gpus-per-node {-(-gpus // flags.nodes)}"
        )
    named = hosts_in(flags.cluster.place)
    addresses = sum(1 for host in named if ADDRESS.fullmatch(host))  # maybe of those with names
    if (least := max(addresses, len(named) - addresses)) > flags.nodes:
        raise ColobusError(
            f"--place names {least} hosts, the job has --nodes {flags.nodes}; take --nodes "
            f"{least} or name fewer"
        )
    others = [f"node {number}" for number in range(len(named) + 1, flags.nodes + 1)]
    room = UNKNOWN._replace(cpus=most, gpus=flags.gpus_per_node)
    plan_hosts(graph, specs, flags.cluster, dict.fromkeys([*named, *others], room), {})
    count, each = sum(spec.kind in ACTIVE for spec in specs), flags.cluster.cpus
    on_one = int((cpus + ROUNDING) / each) if each else count
    beside = wanted.experiment.sidecars
    apart = flags.cluster.sidecars_apart * (beside.evaluator + beside.recorder)
    left = int((cpus - on_one * each + ROUNDING) / flags.cluster.beside) if each else apart
    count += apart if apart > left * flags.nodes else 0  # they fit beside the others, or take place
    if count > on_one * flags.nodes:
        fits = f"take --nodes {-(-count // on_one)}" if on_one else f"lower --cpus to {cpus}"
        raise ColobusError(
            f"--nodes {flags.nodes}: the run has {count} processes of --cpus {each:g}, the nodes "
            f"({cpus} CPUs each) hold {on_one * flags.nodes}; {fits}, or raise --per-process"
        )


def cpus_of_nodes(partition: str) -> tuple[int, int]:
    """Return the CPUs of a partition's smallest and largest node; a million if Slurm is silent."""
    if shutil.which("sinfo") is None:
        return 10**6, 10**6
    where = [f"--partition={partition}"] if partition else []
    asked = ["sinfo", "--noheader", "--Node", "--format=%P %c", *where]
    told = subprocess.run(asked, capture_output=True, errors="replace", check=False)
    nodes = [line.split() for line in told.stdout.splitlines()]
    usual = [node for node in nodes if partition or node[0].endswith("*")]  # the default partition
    found = [int(cpus) for _, cpus in usual or nodes] or [10**6]
    return min(found), max(found)


def minutes_of(time: str) -> float:
    """Return the minutes of a limit of time that `TIME` matches."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (60.0, 1.0, 1 / 60) if dash or len(parts) == 3 else (1.0, 1 / 60)
    return 1440.0 * int(days or 0) + sum(n * unit for n, unit in zip(parts, units, strict=False))


def submit(file: Path) -> str:
    """Hand a job in; return its number.

    Raises:
        ColobusError: if there is no Slurm here, or it refuses the job.
    """
    said, then = "there is no Slurm here (no sbatch on the PATH)", "hand it in where there is one"
    if shutil.which("sbatch"):
        asked = ["sbatch", "--parsable", str(file)]
        told = subprocess.run(asked, capture_output=True, errors="replace", check=False)
        if not told.returncode:
            return told.stdout.strip().partition(";")[0]
        why = " ".join(told.stderr.replace("sbatch: error: ", "").split())
        said, then = f"Slurm refuses the job: {why}", "change it and hand it in"
    again = f"sbatch {quoted(str(file))}"
    raise ColobusError(f"--submit: {said}; {file} is written: delete it, or {then}: {again}")


def _check(wanted: Wanted, args: Sequence[str]) -> None:
    """Raise ColobusError for what a job cannot have."""
    flags: Slurm = wanted.flags
    given = {split_flag(word)[0] for word in args}
    for name, what in REFUSED.items():
        if flag_of(name) in given and not (flags.out and name == "resume_or_start"):
            raise ColobusError(f"{flag_of(name)}: {what}")
    if flags.time not in TIMES and not TIME.fullmatch(flags.time):
        raise ColobusError(
            f"--time {flags.time}: want minutes, H:MM:SS, D-HH, short or long, such as 6:00:00"
        )
    if 0 < minutes_of(TIMES.get(flags.time, flags.time)) < LEAST_MINUTES:  # 0: there is no limit
        raise ColobusError(
            f"--time {flags.time}: two minutes before its end a job is saved, and it takes one or "
            f"two to begin; want {LEAST_MINUTES} or more"
        )
    for name in ("partition", "account"):
        if not re.fullmatch(r"[\w.,@+-]*", value := getattr(flags, name)):
            raise ColobusError(f"--{name} {value}: is no name of Slurm")
    cluster_of(flags)
    launcher("ray", replace(flags.cluster, address="job")).check(wanted.experiment, flags.devices)
    if flags.out and not slug(flags.out.name):
        raise ColobusError(f"--out {flags.out}: the job is named like the run; name a new folder")
    out = flags.out
    if out and is_run(out):
        config = read_config(out)
        if config.name != wanted.name:
            raise ColobusError(f"--out {out}: is a run of {config.name}; name another folder")
        if has_checkpoint(out):
            config.check_begun(out, flags.from_)
            resolve_again(Slurm, "slurm", args, config.experiment, either=True)
            return
    if out and not (out.is_dir() and is_only_begun(out)):  # else it is begun anew
        check_new(out)
