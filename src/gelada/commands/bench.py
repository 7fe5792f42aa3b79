"""``gelada bench``: the speed this machine allows, and the speed training reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.table import Table

from gelada.bench import bench
from gelada.commands.parsing import at_least, print_json
from gelada.commands.settings import Settings, resolve
from gelada.display import Printer
from gelada.place.cluster import Cluster, check_cluster

LEAST_SECONDS = 6.0


@dataclass(frozen=True)
class Bench(Settings):
    """Measure how fast this machine could learn a game, and how fast it does."""

    seconds: float = 40.0
    """Of measuring; half of them are training."""
    on: Literal["threads", "ray"] = "threads"
    """Where the roles live: on threads of this process, or in processes of a Ray cluster."""
    cluster: Cluster = field(default_factory=Cluster)
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    wanted = resolve(Bench, "bench", args, default_game="pong")
    flags = wanted.flags
    at_least("--seconds", flags.seconds, LEAST_SECONDS)
    check_cluster(flags.cluster, flags.on == "ray")
    cluster = flags.cluster if flags.on == "ray" else None
    printer = Printer(to_stderr=flags.json)
    with printer.progress(f"measuring {wanted.experiment.games.game}", "%") as bar:
        rates = bench(
            wanted.experiment, flags.seconds, lambda _, share: bar(100 * share, 100.0), cluster
        )
    if flags.json:
        print_json(rates)
    else:
        printer.console.print(table_of(rates))
    return 0


def table_of(rates: dict[str, Any]) -> Table:
    """Return the rates as a table."""
    machine = rates["machine"]
    title = f"{rates['game']} on {machine['cores']} cores ({machine['processor']})"
    table = Table(title=title, title_justify="left")
    table.add_column("stage")
    table.add_column("steps/s", justify="right")
    for what, key in (
        ("emulate, all cores", "emulate_steps_per_s"),
        ("act, all cores", "act_samples_per_s"),
        ("learn, all passes, all cores", "learn_samples_per_s"),
        ("limit: 1 / sum of 1 / rate", "limit_steps_per_s"),
        ("training reaches", "achieved_steps_per_s"),
    ):
        table.add_row(what, f"{rates[key]:,.0f}")
    table.add_row("share of the limit", f"{100 * rates['share_of_limit']:.0f} %")
    return table
