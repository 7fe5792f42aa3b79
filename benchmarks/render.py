"""Fills the tables of docs/results.md, its pages and the README from the files in results/.

    python -m benchmarks.render              the tables
    python -m benchmarks.render pictures     the pictures, too

A page has words of its own, and marks (`BLOCK`) between which this program writes a table by its
name (`benchmarks.tables.TABLES`). A test compares the pages with what it writes. Pages without
marks are about measurements that are over: they are frozen.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.lib.ledger import Ledger, Line, Results
from benchmarks.lib.table import Table, anchor, items, machine, markdown, wrapped
from benchmarks.peers.matches import OURS
from benchmarks.tables import TABLES, games, speed

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

BLOCK = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end of results -->\n)", re.DOTALL)
"""What stands between these lines of a page is written by `pages`."""

RENAMED = ""
"""A sentence about the name of the command in the ledger, if it has another one today."""

HEADLINES = """
pong              | seconds to Pong                        | 1 | Pong: seconds to a score of 18
pong              | steps to Pong                          | 1 | Pong: steps to it
breakout          | Breakout after 60 minutes              | 1 | Breakout after an hour
means             | 10 minutes, no-op starts               | 1 | Six games, 10 minutes, human = 1
means             | 60 minutes, no-op starts               | 1 | Six games, an hour, human = 1
untuned-games     | median                                 | 2 | Games not tuned on, human = 1
limits            | Pong, the recipe                       | 3 | Pong: share of the machine's limit
pong              | peak memory of a whole run (RSS), MB   | 1 | Memory of a whole run, MB
peers-time        | Gelada, median of 5 seeds              | 1 | Pong: minutes to 18 in training
peers-time        | Sample Factory APPO                    | 1 | The next fastest system's minutes
peers-speed       | Stable-Baselines3 PPO 2.9.2            | 3 | Speed, Stable-Baselines3 PPO = 1
dba3c             | seconds to Pong                        | 1 | DBA3C: seconds to Pong
dba3c             | updates/s with a slow worker, 1 backup | 1 | DBA3C: a slow worker, none = 1
ray-shares        | APPO, 2 remote actors                  | 1 | Ray: share of the machine's limit
ray-failures      | worker, SIGKILL                        | 4 | Ray: seconds to recover a worker
gpu | 2 x 32 games, 16 emulator threads each, rollouts of 64 | 3 | Pong on an H100, steps/s
"""
"""Figures that stand on the first page: table, row, column, and what they are called there."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("tables", "pictures"), default="tables")
    flags = parser.parse_args(args)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    if flags.what == "pictures":
        from benchmarks import pictures

        pictures.draw_all()
    return 0


def pages() -> dict[Path, str]:
    """Return the text of every page with marks, by its path.

    Raises:
        KeyError: if a table has no place, or a mark no table.
    """
    results = Results(Ledger().lines())
    tables = {name: make(results) for name, make in TABLES.items()}
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("results/*.md"))}
    texts[DOCS / "results.md"] = (DOCS / "results.md").read_text(encoding="utf-8")
    places = dict(places_of(texts))
    blocks = {name: table.lines() for name, table in tables.items()}
    blocks["headlines"] = headlines(tables, places)
    blocks["earlier"] = earlier(tables, places)
    blocks["readme"] = short_table(results)
    texts[ROOT / "README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")

    def written(found: re.Match[str]) -> str:
        return "".join([found[1], *(f"{line}\n" for line in blocks[found[2]]), found[3]])

    return {path: BLOCK.sub(written, text) for path, text in texts.items() if BLOCK.search(text)}


def places_of(texts: dict[Path, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the name of each table with its page and the heading above it."""
    for path, text in texts.items():
        title = ""
        for line in text.splitlines():
            if line.startswith("## "):
                title = line.removeprefix("## ")
            elif found := BLOCK.match(f"{line}\n<!-- end of results -->\n"):
                yield found[2], (path.name, title)


def headlines(tables: dict[str, Table], places: dict[str, tuple[str, str]]) -> list[str]:
    """Return the table of the main results; what is not measured is left out."""
    rows = []
    for line in HEADLINES.strip().splitlines():
        name, label, column, shown = (word.strip() for word in line.split("|"))
        page, title = places[name]
        row = next((row for row in tables[name].rows if row.label == label), None)
        if row is not None:
            link = f"[{shown}](results/{page}#{anchor(title)})"
            rows.append((link, row.cells[int(column)]))
    return [*markdown(("", "measured"), rows), *(["", *wrapped(RENAMED)] if RENAMED else [])]


def earlier(tables: dict[str, Table], places: dict[str, tuple[str, str]]) -> list[str]:
    """Return what was measured before, and what failed, below a link to each table."""
    lines: list[str] = []
    for name, table in tables.items():
        if texts := table.earlier():
            page, title = places[name]
            lines += ["", f"[{title}]({page}#{anchor(title)}):", "", *items(texts)]
    return lines[1:]


def short_table(results: Results) -> list[str]:
    """Return the lines of the README between its marks."""
    lines = speed.lines_of()
    found = speed.pairs(lines)
    ours = speed.tries(lines, OURS)
    reached = [one for line in ours if (one := speed.minutes(line)) is not None]
    rates = [x for (_, mode), own in found.items() if mode == "own" for x in own[-1]]
    time = f"**{median(reached):.1f}** ({min(reached):.1f} to {max(reached):.1f})"
    rows = [["**Gelada**", time, f"**{speed.middle(rates, 'ours'):,.0f}**", ""]]
    others = []
    for peer, name in speed.NAMES.items():
        run, pairs = speed.tries(lines, peer)[-1], found[peer, "own"][-1]
        took = speed.minutes(run)
        alike = median(line["ratio"] for line in found[peer, "alike"][-1])
        words = f"{took:.1f}" if took else f"not in {run['theirs']['within'] / 60:.0f}"
        rate = f"{speed.middle(pairs, 'theirs'):,.0f}"
        label = f"{name} {run['theirs']['version']}"
        others.append((took or 1e9, [label, words, rate, f"{alike:.1f} times"]))
    rows += [row for _, row in sorted(others)]
    head = (
        "Pong",
        "minutes to a mean score of 18",
        "decisions a second",
        "with the same network and batches, Gelada is faster",
    )
    text = told(results, ours, lines)
    return [*markdown(head, rows), "", *wrapped(text)]


def told(results: Results, ours: list[Line], lines: list[Line]) -> str:
    """Return the sentences below the short table: where, how often, and other games."""
    machines = dict.fromkeys(machine(line) for line in ours)
    days = between({line["time"][:10] for line in lines if machine(line) in machines})
    text = (
        f"Measured on a server ({', '.join(machines)}, no GPU; {' to '.join(days)}). "
        f"Gelada's minutes are the median of {len(ours)} seeds; the others have one try of an hour "
        "each, with the recipe of their own documentation. Decisions a second are medians of the "
        "runs with these recipes, of Gelada those beside any of the others."
    )
    if found := results.one("breakout-score"):
        one = found.line["result"]["minutes"]["60"]
        score = f"{one['mean']:.0f} ± {one['standard_error']:.0f}"
        text += (
            f"\n\nIn Breakout, the agent scores {score} after an hour of training (the checkpoint "
            f"of minute {one['seconds'] / 60:.0f}, seed {found.line['seed']}, 50 full games; "
            f"{machine(found.line)}). Single checkpoints [swing](docs/results/games.md#breakout)."
        )
    played = games.after_ten_minutes(results)
    above = [f"`{game}` ({100 * mean:.0f} %)" for game, (mean, low) in played.items() if low > 1]
    if above:
        text += (
            "\n\nAfter ten minutes of `gelada train GAME` on two such cores the agent has a "
            "[human-normalised score](docs/evaluation.md#human-normalised-score) above 100 %, that "
            f"of a human, by more than two standard errors in {len(above)} of {len(played)} games: "
            f"{', '.join(above)}. These are means of 50 full games with no-op starts, over one to "
            "three seeds; the settings were chosen on six of these games; "
            "[six games](docs/results/games.md#six-games-with-the-default) and "
            "[games that nothing was tuned "
            "on](docs/results/games.md#games-that-nothing-was-tuned-on) have all scores."
        )
    return text


def between(days: Iterable[str]) -> list[str]:
    """Return the first and the last day, or the only one."""
    found = sorted(days)
    return found[:1] if found[0] == found[-1] else [found[0], found[-1]]


if __name__ == "__main__":
    sys.exit(main())
