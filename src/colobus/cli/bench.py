"""``colobus bench``: the speed this machine allows, the speed training reaches, where time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from colobus.cli.costs import measure_costs
from colobus.cli.display import Printer, on_terminal
from colobus.cli.experiment_flags import ExperimentFlags, Wanted, cluster_of, resolve
from colobus.cli.flags import check_file, print_json, without
from colobus.cli.profiler import OTHER, kind_of, profile
from colobus.cli.throughput import bench
from colobus.core.errors import ColobusError, program, quoted
from colobus.core.fields import Range
from colobus.envs.make import agents
from colobus.experiment.check import differing
from colobus.experiment.settings import Experiment, flag
from colobus.report.format import Table
from colobus.runtime.devices import AUTO, Devices, place
from colobus.runtime.groups import Cluster

LEAST_SECONDS = 6.0


@dataclass(frozen=True)
class Bench(ExperimentFlags):
    """Measure how fast this machine could learn a game, and how fast it does."""

    seconds: Annotated[float, Range(LEAST_SECONDS)] = 40.0
    """Seconds of measuring, half of them training (with --profile all of them)."""
    profile: Path | None = None
    """Only train, and write a trace of the stages of all processes to this .json file, for
    ui.perfetto.dev."""
    costs: Path | None = None
    """Only measure what each stage costs, and write it to this .json file, for colobus plan and for
    --on virtual."""
    on: Literal["threads", "ray"] = "threads"
    """Run the roles on threads of this process, or in processes of a Ray cluster."""
    devices: Devices = field(default_factory=Devices)
    cluster: Cluster = field(default_factory=Cluster)
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    wanted = resolve(Bench, "bench", args, default_game="pong")
    flags, experiment = wanted.flags, wanted.experiment
    if experiment.replay.capacity and not experiment.replay.samples_per_insert:
        raise ColobusError(
            "--samples-per-insert 0: colobus bench must know how often a step is learned from; "
            "give a number above 0"
        )
    cluster_of(flags)
    place(flags.devices, on_ray=flags.on == "ray")
    check_flags(wanted)
    cluster = flags.cluster if flags.on == "ray" else None
    printer = Printer(to_stderr=flags.json)
    with printer.progress(f"measuring {experiment.games.game}", "%") as bar:

        def tell(share: float) -> None:
            bar(100 * share, 100.0)

        if flags.costs:
            rates = measure_costs(experiment, flags.costs, flags.seconds, tell)
        elif flags.profile:
            rates = profile(experiment, flags.seconds, flags.profile, tell, flags.devices, cluster)
        else:
            rates = bench(experiment, flags.seconds, tell, cluster, flags.devices)
    if flags.json:
        print_json(rates)
    elif flags.costs:
        name = [] if flags.name or flags.env else [wanted.name]
        said = quoted(*name, *without(args, ("--seconds", "--on", "--device")))
        unplanned = experiment.replay.capacity or agents(experiment.games) > 1
        then = f"train {said} --on virtual" if unplanned else f"plan {said} --nodes 4"
        printer.line(f"costs: {flags.costs} (use it with: {program()} {then})")
    elif flags.profile:
        show_profile(printer, rates)
    else:
        printer.table(on_terminal(table_of(rates)))
    return 0


def check_flags(wanted: Wanted) -> None:
    """Raise ColobusError, before anything is started, for flags that bench cannot follow."""
    flags, base = wanted.flags, wanted.base
    named = [flag(name) for name, value in vars(flags.stop).items() if value is not None]
    kept = replace(wanted.experiment, tracker=base.tracker, sidecars=base.sidecars)
    if named := named + differing(wanted.experiment, kept):
        raise ColobusError(
            f"{', '.join(named)}: has no effect in colobus bench, which trains for --seconds and "
            "keeps nothing"
        )
    if flags.profile and flags.costs:
        raise ColobusError("--profile with --costs: each measures alone; leave one of them out")
    if flags.costs:
        _check_costs(flags, wanted.experiment)
    check_file("--profile", flags.profile, ".json")
    check_file("--costs", flags.costs, ".json")


def _check_costs(flags: Bench, experiment: Experiment) -> None:
    """Raise ColobusError for what has no effect on costs, which are of this machine's CPU."""
    devices = flags.devices
    if flags.on != "threads":
        raise ColobusError(f"--on {flags.on} with --costs: it needs no runtime; leave --on out")
    if Cluster().joined:
        raise ColobusError("RAY_ADDRESS with --costs: it measures this machine; unset RAY_ADDRESS")
    if devices.device not in ("cpu", AUTO) or devices.act_device or devices.act_with != "torch":
        raise ColobusError(
            "--costs: measures torch on the CPU; leave --device, --act-device and --act-with out"
        )
    if experiment.shape.topology.replicas > 1:
        raise ColobusError("--reduce group with --costs: is not simulated; leave one of them out")


def show_profile(printer: Printer, rates: dict[str, Any]) -> None:
    """Print what a training with a trace came to."""
    printer.line(f"training reaches {rates['achieved_steps_per_s']:,.0f} steps/s")
    printer.table(on_terminal(shares_table(rates["threads"])))
    printer.line(f"trace: {rates['trace']} (open it in https://ui.perfetto.dev)")


def shares_table(threads: dict[str, dict[str, float]]) -> Table:
    """Return a table of the shares of time: a row a stage, a column a thread."""
    sums: dict[str, float] = {}
    for stages in threads.values():
        for stage, share in stages.items():
            sums[stage] = sums.get(stage, 0.0) + share
    rows = list[tuple[str, ...]]()
    for stage in sorted(sums.keys() - {OTHER}, key=lambda stage: -sums[stage]):
        shares = [stages.get(stage) for stages in threads.values()]
        rows.append((stage, *("" if s is None else f"{100 * s:.1f} %" for s in shares)))
    for kind in ("busy", "waiting"):
        totals = (
            sum(s for stage, s in stages.items() if stage != OTHER and kind_of(stage) == kind)
            for stages in threads.values()
        )
        rows.append((kind, *(f"{100 * total:.1f} %" for total in totals)))
    rows.append((OTHER, *(f"{100 * stages[OTHER]:.1f} %" for stages in threads.values())))
    columns = ("stage", *(f"{role}>" for role in threads))
    return Table(columns, tuple(rows), "share of each thread's time")


def table_of(rates: dict[str, Any]) -> Table:
    """Return the rates as a table."""
    machine = rates["machine"]
    title = f"{rates['game']} on {machine['cores']} cores ({machine['processor']})"
    gpu = machine.get("gpu")
    learns = "all cores" if machine.get("device", "cpu") == "cpu" else gpu
    acts = "all cores" if machine.get("act_device", "cpu") == "cpu" else gpu
    limit = "of host or GPU, the lesser" if gpu else "1 / sum of 1 / rate"
    rate, share, exact = "{:,.0f}", "{:.0%}", "{:.1%}"
    rows = (
        ("emulate, all cores", "emulate_steps_per_s", rate),
        (f"act, {acts}", "act_samples_per_s", rate),
        ("join batches, all cores", "feed_samples_per_s", rate),
        (f"learn, all epochs, {learns}", "learn_samples_per_s", rate),
        (f"limit: {limit}", "limit_steps_per_s", rate),
        ("training reaches", "achieved_steps_per_s", rate),
        ("share of the limit", "share_of_limit", share),
        ("learner waits", "learner_waits", exact),
        ("learner waits for a batch", "learner_waits_for_batch", exact),
        ("loader waits", "loader_waits", exact),
    )
    found = [(what, form.format(rates[key])) for what, key, form in rows if key in rates]
    shown = tuple((what, text.replace("%", " %")) for what, text in found)
    return Table(("stage", "steps/s>"), shown, title)
