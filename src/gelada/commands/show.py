"""``gelada show``: the settings, the plan and the memory of a run; starts and plays nothing."""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from gelada.commands.parsing import print_json
from gelada.commands.settings import Settings, resolve
from gelada.commands.train import stop_in_words
from gelada.display import Printer
from gelada.envs.games import make_games
from gelada.nets.network import InputStatistics, Network
from gelada.place.plan import Plan
from gelada.presets import Experiment
from gelada.roles.parameter_server import KEPT
from gelada.run import draw
from gelada.start import Start, make_network
from gelada.types import Version

MIB = 2**20

EMULATOR_MIB = 2.0
"""One Atari game of ale-py, measured: its state, screens and thread."""

SLOTS = {"adam": 2, "rmsprop": 2}
"""Vectors that an optimizer keeps beside the parameters."""


@dataclass(frozen=True)
class Show(Settings):
    """Print settings, roles, memory and stop rule of a run; start nothing."""

    json: bool = False
    """Print one JSON object instead."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    wanted = resolve(Show, "show", args)
    experiment = wanted.experiment
    start = imagined_start(experiment)
    net = make_network(experiment, start)
    plan = draw(experiment, start, None)
    data = {
        "name": wanted.flags.name,
        "settings": dataclasses.asdict(experiment),
        "roles": dict(plan.counts()),
        "parameters": sum(p.numel() for p in net.parameters()),
        "memory_mib": memory(experiment, net),
        "stop": stop_in_words(experiment.stop),
    }
    if wanted.flags.json:
        print_json(data)
    else:
        _print(data, plan, wanted.note, Printer())
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
    """Return an estimate in MiB by part, and the total.

    Counted from the shapes in the code; "libraries" is what this process holds now.
    """
    shape = experiment.shape
    height, width = net.mean.shape
    games = shape.actors * shape.games
    pixels = height * width
    vector = 4 * sum(p.numel() for p in net.parameters())
    frames = games * (shape.length + net.stack) * pixels  # one batch, uint8
    batches = shape.ahead + 2  # kept at most by the replay
    seen = 2 if net.precision == "bfloat16" else 4
    copies = 2 + SLOTS[experiment.optimizer.optimizer] + KEPT + shape.actors
    sample = 4 * net.torso.outputs + seen * net.stack * pixels
    chunk = max(experiment.algorithm.minibatch, shape.games)
    atari = experiment.games.game != "catch"
    start = 10 * shape.random_steps * pixels / MIB  # uint8 twice, float32 twice, then freed
    parts = {
        "libraries": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / MIB,
        "emulators": games * EMULATOR_MIB if atari else 0.0,
        "parameters": copies * vector / MIB,
        "trajectories": (batches + 2) * frames / MIB,  # being played and being joined: one each
        "standardised frames": (1 + seen) * frames / MIB + seen * frames / MIB,
        "minibatch with gradients": 2 * chunk * sample / MIB,
    }
    held = parts["libraries"] + parts["emulators"]
    total = max(sum(parts.values()), held + start)
    parts |= {"input statistics, at the start only": start, "most at once": total}
    return {name: round(value, 1) for name, value in parts.items()}


_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def _print(data: dict[str, Any], plan: Plan, note: str, printer: Printer) -> None:
    if note:
        printer.line(note)
    settings = Table(title=f"settings of {data['name']}", title_justify="left", show_header=False)
    for group, values in data["settings"].items():
        if isinstance(values, dict):
            shown = ", ".join(f"{k} {v}" for k, v in values.items() if v is not None)
            settings.add_row(group, shown or "none")
        else:
            settings.add_row(group, str(values))
    printer.console.print(settings)
    roles = Table(title="plan", title_justify="left")
    for column in ("role", "class", "process", "thread of its own"):
        roles.add_column(column)
    for node in plan.nodes:
        roles.add_row(node.name, node.kind, node.bundle, "yes" if node.active else "")
    printer.console.print(roles)
    printer.line("roles: " + ", ".join(f"{n} {kind}" for kind, n in data["roles"].items()))
    printer.line(f"parameters: {data['parameters']:,}")
    printer.line(
        "memory, estimated: "
        + ", ".join(f"{name} {mib:,.0f} MiB" for name, mib in data["memory_mib"].items())
    )
    printer.line(f"runs {data['stop']}")
