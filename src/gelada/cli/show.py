"""``gelada show``: the settings, the graph and the memory of a run; starts and plays nothing."""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from gelada.cli.display import Printer
from gelada.cli.experiment_flags import ExperimentFlags, resolve
from gelada.cli.flags import print_json
from gelada.cli.parts import Part, in_words, parts_of
from gelada.cli.train import stop_in_words
from gelada.core.types import Version
from gelada.envs.make import make_games
from gelada.nets.network import InputStatistics, Network
from gelada.ops.flat import Layout
from gelada.runtime.graph import Graph, Node
from gelada.training.experiment import Experiment
from gelada.training.limits import memory as estimate
from gelada.training.presets import NOTES
from gelada.training.start import Start, make_network
from gelada.training.topology import make_graph

MIB = 2**20


@dataclass(frozen=True)
class Show(ExperimentFlags):
    """Print the settings, roles, memory and stop rule of a run without starting it."""

    json: bool = False
    """Print one JSON object instead."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    wanted = resolve(Show, "show", args)
    experiment = wanted.experiment
    start = imagined_start(experiment)
    net = make_network(experiment, start)
    graph = make_graph(experiment, start, None)
    parts = parts_of(experiment)
    data = {
        "name": wanted.name,
        "settings": dataclasses.asdict(experiment),
        "roles": dict(graph.counts()),
        "parameters": sum(p.numel() for p in net.parameters()),
        "memory_mib": memory(experiment, net),
        "bytes_per_update": bytes_per_update(experiment, net),
        "parts": [part._asdict() for part in parts],
        "stop": stop_in_words(experiment.stop),
        "notes": list(NOTES.get(wanted.name, ())),
    }
    if wanted.flags.json:
        print_json(data)
    else:
        _print(data, graph, parts, wanted.note, experiment.shape.apart, Printer())
    return 0


def imagined_start(experiment: Experiment) -> Start:
    """Return a start without the random games that measure the input; float32 stands for auto."""
    games = make_games(experiment.games, np.array([1]))  # asked for its sizes, never played
    flat = np.ones(games.frame_shape, dtype=np.float32)
    wanted = experiment.network.precision
    precision = "float32" if wanted == "auto" else wanted
    statistics = InputStatistics(flat, flat)
    return Start(statistics, games.actions, precision, Version(0, 0), 0, None, {}, None, {})


def memory(experiment: Experiment, net: Network) -> dict[str, float]:
    """Return an estimate in MiB by part, and the total; with workers, of all in one process.

    "libraries" is what this process holds now.
    """
    parts = estimate(experiment, net)
    start = parts.pop("input statistics")
    parts = {"libraries": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT, **parts}
    total = max(sum(parts.values()), parts["libraries"] + parts["emulators"] + start)
    parts |= {"input statistics, at the start only": start, "most at once": total}
    return {name: round(value / MIB, 1) for name, value in parts.items()}


def bytes_per_update(experiment: Experiment, net: Network) -> int:
    """Return what a worker moves for each update: a gradient up, a parameter vector down.

    Without workers nothing is moved: the servers step the learner's memory.
    """
    return 2 * 4 * Layout(net).size if experiment.shape.apart else 0


_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def _print(
    data: dict[str, Any],
    graph: Graph,
    parts: list[Part],
    note: str,
    distributed: bool,
    printer: Printer,
) -> None:
    if note:
        printer.line(note)
    settings = Table(title=f"settings of {data['name']}", title_justify="left", show_header=False)
    for group, values in data["settings"].items():
        if isinstance(values, dict):
            shown = ", ".join(f"{k} {v}" for k, v in values.items() if v is not None)
            settings.add_row(group, shown or "none")
        else:
            settings.add_row(group, str(values))
    printer.table(settings)
    roles = Table(title="plan", title_justify="left")
    for column in ("role", "class", "worker", "thread of its own"):
        roles.add_column(column)
    for alike in alike_nodes(graph):
        first, last = alike[0], alike[-1]
        roles.add_row(
            _from_to(first.name, last.name),
            first.role,
            _from_to(first.process, last.process),
            "yes" if first.active else "",
        )
    printer.table(roles)
    printer.line("roles: " + ", ".join(f"{n} {kind}" for kind, n in data["roles"].items()))
    if parts:
        printer.line(in_words(parts))
    printer.line(f"parameters: {data['parameters']:,}")
    printer.line(
        f"memory{', all in one process' if distributed else ''}, estimated: "
        + ", ".join(f"{name} {mib:,.0f} MiB" for name, mib in data["memory_mib"].items())
    )
    if distributed:
        printer.line(
            f"a worker moves {data['bytes_per_update']:,} bytes an update: one gradient up, one "
            "parameter vector down (how many a second, only a run can tell)"
        )
    printer.line(f"runs {data['stop']}")
    for note in data["notes"]:
        printer.line(note)


def alike_nodes(graph: Graph) -> list[list[Node]]:
    """Return the graph's roles grouped by class, in the order in which each class comes first."""
    groups: dict[str, list[Node]] = {}
    for node in graph.nodes:
        groups.setdefault(node.role, []).append(node)
    return list(groups.values())


def _from_to(first: str, last: str) -> str:
    return first if first == last else f"{first} … {last.rpartition('-')[2]}"
