"""``colobus show``: the settings, the graph and the memory of a run; starts and plays nothing.

The parts of APPO that can be switched on, and which of them a run has (docs/appo.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from colobus.algorithms.appo import APPO
from colobus.cli.display import Printer, on_terminal
from colobus.cli.evaluate import check_source
from colobus.cli.experiment_flags import ExperimentFlags, Wanted, experiment_of, parse_onto, resolve
from colobus.cli.flags import print_json
from colobus.core.checkpoint import list_checkpoints, newest_checkpoint, read_about
from colobus.core.errors import ColobusError
from colobus.core.fields import given
from colobus.envs.make import make_games
from colobus.experiment.check import differing
from colobus.experiment.memory import memory as estimate
from colobus.experiment.memory import role_memory
from colobus.experiment.presets import NOTES, PRESETS
from colobus.experiment.settings import Experiment, flag
from colobus.nets.network import InputStatistics, Network
from colobus.ops.flat import Layout
from colobus.report.format import Table
from colobus.runs.config import check_of, read_config
from colobus.runs.folder import CHECKPOINTS, CONFIG, TENSORS, find_files, is_run, place_of, runs_in
from colobus.runtime.graph import Node, RoleGraph
from colobus.runtime.groups import (
    UNKNOWN,
    Cluster,
    group_processes,
    hosts_in,
    hosts_of_job,
    plan_hosts,
)
from colobus.runtime.system import peak_memory
from colobus.training.on_ray import OnRay
from colobus.training.start import Start, check_game, make_network
from colobus.training.topology import make_graph
from colobus.training.words import stop_in_words


def parts_of(experiment: Experiment) -> list[dict[str, Any]]:
    """Return the parts of APPO; [] for another algorithm.

    Each has a ``name``, whether it is ``on``, and the ``flag`` that switches it, with its value.
    """
    appo, shape, network = experiment.algorithm, experiment.shape, experiment.network
    reuse, shared = experiment.reuse, not shape.learners  # a group's actors get each version
    if not isinstance(appo, APPO):
        return []

    def part(name: str, on: bool, group: Any, *settings: str) -> dict[str, Any]:
        flags = " ".join(given(flag(one), getattr(group, one)) for one in settings)
        return {"name": name, "on": on, "flag": flags}

    return [
        part("V-trace", appo.advantage == "vtrace", appo, "advantage"),
        part("PPO's clipped loss", appo.policy_loss == "clip", appo, "policy_loss"),
        part("several epochs", appo.epochs > 1, appo, "epochs"),
        part("target policy", appo.target_every > 0, appo, "target_every"),
        part("KL term", appo.kl_coeff > 0.0, appo, "kl_coeff"),
        part("adaptive rate", appo.kl_adjust > 1.0, appo, "kl_adjust"),
        part("replay mix", reuse.replay_proportion > 0.0, reuse, "replay_proportion"),
        part(
            "buffer of batches", reuse.buffer_batches > 1, reuse, "buffer_batches", "buffer_order"
        ),
        part("recurrent policy", network.recurrent != "none", network, "recurrent"),
        part("autoencoder", network.autoencoder != "off", network, "autoencoder"),
        part("broadcast interval", shared and shape.broadcast_every > 1, shape, "broadcast_every"),
    ]


@dataclass(frozen=True)
class Show(ExperimentFlags):
    """Print the settings, roles, memory and stop rule of a run without starting it.

    The first word may also be the folder of a run or of an exported agent, the file of a
    checkpoint, or zoo:NAME.
    """

    cluster: Cluster = field(default_factory=Cluster)
    nodes: bool = False
    """Print on which host each process would be: of the Slurm job that this is, of the cluster at
    --address, or else of those that --place names."""
    json: bool = False
    """Print one JSON object instead."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    path = path_in(args)
    wanted = resolve(Show, "show", args) if path is None else settings_of(path, args)
    experiment = wanted.experiment
    start = imagined_start(experiment)
    net = make_network(experiment, start)
    graph = make_graph(experiment, start, None)
    apart = experiment.shape.topology.remote_servers
    data = {
        "name": wanted.name,
        "settings": dataclasses.asdict(experiment),
        "roles": dict(graph.counts()),
        "parameters": sum(p.numel() for p in net.parameters()),
        "memory_mib": memory(experiment, net),
        # a gradient up, a parameter vector down; where servers step the learner's memory, nothing
        "bytes_per_update": 2 * 4 * Layout(net).size if apart else 0,
        "parts": parts_of(experiment),
        "stop": stop_in_words(experiment.stop),
        "notes": list(NOTES.get(wanted.name, ())),
    }
    if path is not None:
        data["checkpoint"] = checkpoint_of(path)
    if wanted.flags.nodes:
        data["nodes"] = nodes_of(experiment, graph, wanted.flags.cluster)
    if wanted.flags.json:
        print_json(data)
    else:
        _print(data, graph, wanted.note, Printer(goes_on=False))
    return 0


def nodes_of(experiment: Experiment, graph: RoleGraph, cluster: Cluster) -> dict[str, list[str]]:
    """Return the processes of a run by host, as far as that is settled before it starts.

    Raises:
        ColobusError: if the hosts have not enough room, or one that is named is missing.
    """
    specs, memory, ids = group_processes(graph, cluster.per_process), dict[str, int](), None
    hosts = hosts_of_job() or dict.fromkeys(hosts_in(cluster.place), UNKNOWN)
    with ExitStack() as stack:
        if cluster.joined:
            hosts, ids = OnRay(cluster).hosts(stack)
            memory = role_memory(experiment)
    where = plan_hosts(graph, specs, cluster, hosts, memory, ids)
    names = {host: name for name, host in reversed(list((ids or {}).items()))}
    found: dict[str, list[str]] = {names.get(host, host): [] for host in hosts}
    usual = {spec.name: "any host, as Ray decides" for spec in specs}
    where = usual | {"tracker": "the host of the command"} | where
    for name, host in where.items():
        found.setdefault(names.get(host, host), []).append(name)
    return found


def path_in(args: Sequence[str]) -> Path | None:
    """Return the run or checkpoint that the first word names; None if it names something else."""
    first = args[0] if args else ""
    path = place_of(Path(first))
    if not first or first.startswith("-") or first in PRESETS:
        return None
    return path if is_run(path) or runs_in(path) or path.suffix == TENSORS else None


def settings_of(path: Path, args: Sequence[str]) -> Wanted:
    """Return the settings of the run at a path.

    Raises:
        ColobusError: if it is no run, or a flag asks for another setting.
    """
    folder, _ = find_files(check_source(path))
    config = read_config(folder)
    check_game(config, folder / CONFIG)
    base = config.experiment
    flags = parse_onto(Show, "show", args, base, stop=base.stop)
    alone = {"--env": flags.env, "--algorithm": flags.algorithm_class, "--cores": flags.cores}
    changed = [name for name, word in alone.items() if word]
    if changed := changed or differing(experiment_of(flags, base), base):
        raise ColobusError(f"{', '.join(changed)}: a run's settings are fixed; leave it out")
    return Wanted(flags, base, base, "", f"{config.name}, {path}")


def checkpoint_of(path: Path) -> dict[str, Any] | None:
    """Return what is known of a checkpoint, or of the newest one of a run; None if it has none."""
    folder, file = find_files(path)
    if file is None:
        if not list_checkpoints(folder / CHECKPOINTS):
            return None
        file, _, _ = newest_checkpoint(folder / CHECKPOINTS, check_of(read_config(folder)))
    about = read_about(file)
    return {"file": str(file), "steps": about.steps, "version": about.version}


def imagined_start(experiment: Experiment) -> Start:
    """Return a start without the random games that measure the input; float32 stands for auto."""
    games = make_games(experiment.games, np.array([1]))  # asked for its sizes, never played
    flat = np.ones(games.frame_shape, dtype=np.float32)
    wanted = experiment.network.precision
    precision = "float32" if wanted == "auto" else wanted
    return Start(InputStatistics(flat, flat), games.actions, precision)


def memory(experiment: Experiment, net: Network) -> dict[str, float]:
    """Return an estimate in MiB by part, and the total; with workers, of all in one process.

    "libraries" is what this process has held at most; it counts as nothing where that is unknown.
    """
    parts = estimate(experiment, net)
    start = parts.pop("input statistics")
    parts = {"libraries": peak_memory() or 0, **parts}
    total = max(sum(parts.values()), parts["libraries"] + parts["emulators"] + start)
    parts |= {"input statistics, at the start only": start, "most at once": total}
    return {name: round(value / 2**20, 1) for name, value in parts.items()}


def _print(data: dict[str, Any], graph: RoleGraph, note: str, printer: Printer) -> None:
    if note:
        printer.line(note)
    rows = []
    for group, values in data["settings"].items():
        shown = str(values)
        if isinstance(values, dict):
            shown = ", ".join(f"{k} {v}" for k, v in values.items() if v is not None) or "none"
        rows.append((group, shown))
    title = f"settings of {data['name']}"
    printer.table(on_terminal(Table(("group", "settings"), tuple(rows), title)))
    groups: dict[str, list[Node]] = {}
    for node in graph.nodes:
        groups.setdefault(node.role, []).append(node)
    roles = tuple(
        (
            _from_to(alike[0].name, alike[-1].name),
            alike[0].role,
            _from_to(alike[0].process, alike[-1].process),
            "yes" if alike[0].active else "",
        )
        for alike in groups.values()
    )
    columns = ("role", "class", "process", "thread of its own")
    printer.table(on_terminal(Table(columns, roles, "roles")))
    printer.line("roles: " + ", ".join(f"{n} {kind}" for kind, n in data["roles"].items()))
    if parts := data["parts"]:
        on = [f"{part['name']} ({part['flag']})" for part in parts if part["on"]]
        off = [part["name"] for part in parts if not part["on"]]
        printer.line(f"parts: {', '.join(on) or 'none'}; off: {', '.join(off) or 'none'}")
    printer.line(f"parameters: {data['parameters']:,}")
    distributed = data["bytes_per_update"] > 0
    printer.line(
        f"memory{', all in one process' if distributed else ''}, estimated: "
        + ", ".join(f"{name} {mib:,.0f} MiB" for name, mib in data["memory_mib"].items())
    )
    if distributed:
        printer.line(
            f"a learner moves {data['bytes_per_update']:,} bytes an update: one gradient up, one "
            "parameter vector down (how many a second, only a run can tell)"
        )
    if "nodes" in data:
        hosts = tuple((host, ", ".join(own) or "none") for host, own in data["nodes"].items())
        printer.table(on_terminal(Table(("host", "processes"), hosts, "nodes")))
    printer.line(f"runs {data['stop']}")
    if kept := data.get("checkpoint"):
        printer.line(f"checkpoint {Path(kept['file']).stem}: {kept['steps']:,} steps")
    for note in data["notes"]:
        printer.line(note)


def _from_to(first: str, last: str) -> str:
    return first if first == last else f"{first} … {last.rpartition('-')[2]}"
