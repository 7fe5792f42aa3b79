"""Fills the tables of docs/results.md, its pages and the README from the files in results/.

    python -m benchmarks.render              the tables
    python -m benchmarks.render pictures     the pictures, too

A page has words of its own, and marks (`BLOCK`) between which this program writes a table by its
name (`TABLES`). A test compares the pages with what it writes. Pages without
marks are about measurements that are over: they are frozen.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.lib.ledger import Ledger, Results
from benchmarks.lib.table import Table, anchor, items, markdown, wrapped
from benchmarks.tables import games, presets, speed

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

BLOCK = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- end of results -->\n)", re.DOTALL)
"""What stands between these lines of a page is written by `pages`."""

TABLES: dict[str, Callable[[Results], Table]] = {
    "pong": partial(presets.figures, name="pong"),
    "algorithms": presets.algorithms,
    "gorila": partial(presets.figures, name="gorila"),
    "appo": partial(presets.figures, name="appo"),
    "dba3c": presets.dba3c,
    "dba3c-straggler": partial(presets.sleeping, what="dba3c-straggler", key="runs"),
    "dba3c-servers": partial(presets.sleeping, what="dba3c-servers", key="servers"),
    "dba3c-workers": partial(presets.sleeping, what="dba3c-workers", key="workers"),
    "dba3c-delays": presets.dba3c_delays,
    "ray-shares": presets.ray_shares,
    "ray-failures": presets.ray_failures,
    "breakout": games.breakout,
    "dba3c-breakout": partial(games.breakout, what="dba3c-breakout"),
    "six-games": games.six,
    "means": games.means,
    "untuned-games": games.five,
    "six-games-before": partial(games.six, kinds=games.BEFORE),
    "means-before": partial(games.means, kinds=games.BEFORE),
    "untuned-games-before": partial(games.five, kinds=games.BEFORE),
    "limits": speed.limits,
    "peers-speed": speed.peers_speed,
    "peers-time": speed.peers_time,
    "beside": speed.beside,
    "gpu": partial(presets.figures, name="gpu"),
}
"""The tables, by the name that stands in the marks of a page."""

RENAMED = "Commands stand as they were given. The program was called `gelada` then."
"""A sentence about the name of the command in the ledger, if it has another one today."""

HEADLINES = """
pong              | seconds to Pong                        | 1 | Pong: seconds to a score of 18
pong              | steps to Pong                          | 1 | Pong: steps to it
breakout          | Breakout after 60 minutes              | 1 | Breakout after an hour, before
means             | 10 minutes                             | 1 | Six games, 10 minutes, human = 1
means-before      | 60 minutes                             | 1 | Six games, an hour, before
untuned-games     | median                                 | 2 | Games not tuned on, human = 1
limits            | Pong, the recipe                       | 3 | Pong: share of the machine's limit
pong              | peak memory of a whole run (RSS), MB   | 1 | Memory of a whole run, MB
peers-time        | Colobus, median of 5 seeds              | 1 | Pong: minutes to 18 in training
peers-time        | Sample Factory APPO                    | 1 | The next fastest system's minutes
peers-speed       | Stable-Baselines3 PPO 2.9.2            | 3 | Speed, Stable-Baselines3 PPO = 1
dba3c             | seconds to Pong                        | 1 | DBA3C: seconds to Pong
dba3c             | updates/s with a slow worker, 1 backup | 1 | DBA3C: a slow worker, none = 1
ray-shares        | APPO, 2 remote actors                  | 1 | Ray: share of the machine's limit
ray-failures      | worker, SIGKILL                        | 4 | Ray: seconds to recover a worker
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
    """Return the text of every page with marks, by its path."""
    results = Results(Ledger().lines())
    tables = {name: make(results) for name, make in TABLES.items()}
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("results/*.md"))}
    texts[DOCS / "results.md"] = (DOCS / "results.md").read_text(encoding="utf-8")
    places = dict(places_of(texts))
    blocks = {name: table.lines() for name, table in tables.items()}
    blocks["headlines"] = headlines(tables, places)
    blocks["earlier"] = earlier(tables, places)
    blocks["readme"] = speed.readme()
    blocks["readme-games"] = games.readme(results)
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
    """Return what was measured before, and what failed, below a link to each section."""
    lines: list[str] = []
    before = ("", "")
    for name, table in tables.items():
        if texts := table.earlier():
            page, title = place = places[name]
            lines += ["", f"[{title}]({page}#{anchor(title)}):", ""] if place != before else []
            lines += items(texts)
            before = place
    return lines[1:]


if __name__ == "__main__":
    sys.exit(main())
