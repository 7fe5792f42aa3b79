"""``colobus games``: what can be learned; ``colobus runs``: what was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from colobus.cli.flags import parse, print_json


@dataclass(frozen=True)
class Games:
    """List the names of the games and presets that can be learned."""

    part: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="PART")]] = ""
    """List only names that contain this."""
    json: bool = False
    """Print one JSON object on stdout."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Games, "games", args)
    from rich.columns import Columns

    from colobus.cli.display import Printer
    from colobus.core.errors import program
    from colobus.envs.make import ENVIRONMENTS, known_games
    from colobus.experiment.presets import FAMILIES, PRESETS

    names = {
        "Atari games": [game for game in known_games() if game not in ENVIRONMENTS],
        "small games": list(ENVIRONMENTS),
        "presets": sorted(name for name in PRESETS if name not in known_games()),
    }
    found = {
        kind: [name for name in own if flags.part.lower() in name.lower()]
        for kind, own in names.items()
    }
    if flags.json:
        print_json({**found, "families": list(FAMILIES)})
        return 0
    printer = Printer(goes_on=False)
    for kind, own in found.items():
        if own:
            printer.line(f"{kind} ({len(own)}):")
            printer.table(Columns(own, column_first=True, padding=(0, 2)), soft_wrap=False)
    if not any(found.values()):
        printer.line(f"no game or preset contains {flags.part!r}")
    families = ", ".join(f"{family}-" for family in FAMILIES)
    printer.line(f"A game is learned by another algorithm with one of these before it: {families}")
    printer.line(
        "Environments of Gymnasium with discrete actions are learned by their own names: "
        f"{program()} train CartPole-v1"
    )
    return 0


@dataclass(frozen=True)
class ListRuns:
    """List runs: their tags, what they learn, and how far they are."""

    places: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER ...")]]
    """Runs, or folders with runs below them (default: runs)."""
    tags: str = ""
    """List only runs that have all of these tags, with commas between them."""
    json: bool = False
    """Print one JSON object on stdout."""


def list_runs(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(ListRuns, "runs", args)
    places = flags.places or (Path("runs"),)
    from colobus.cli.display import Printer, on_terminal
    from colobus.core.timing import clock
    from colobus.report.format import DASH, Table
    from colobus.report.statistics import plus_minus
    from colobus.runs.listing import Runs, about_run, check_places
    from colobus.runs.read import tags_of

    check_places(places)
    found = Runs(places, kept=2)
    found.look()
    for run in found.all:
        run.refresh()
    wanted = set(tags_of(flags.tags))
    rows = [about_run(run) for run in found.all if wanted <= set(run.tags)]
    if flags.json:
        print_json({"runs": rows})
        return 0
    printer = Printer(goes_on=False)
    if not rows:
        what = f" with all of the tags {flags.tags!r}" if flags.tags else ""
        printer.line(f"no run{what} in {', '.join(map(str, places))}")
        return 0
    columns = ("run", "tags", "game", "algorithm", "seed>", "steps>", "time>", "score>")
    table = tuple(
        (
            row["run"],
            ", ".join(row["tags"]),
            row["game"],
            row["algorithm"],
            str(DASH if row["seed"] is None else row["seed"]),
            f"{row['steps']:,}",
            clock(row["seconds"]),
            *(DASH if x is None else plus_minus(x, None) for x in (row["score"], row["evaluated"])),
            "learning" if row["learning"] else "",
        )
        for row in rows
    )
    printer.table(on_terminal(Table((*columns, "evaluated>", ""), table)), soft_wrap=False)
    return 0
