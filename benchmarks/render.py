"""Writes docs/results.md, its pages and the table of the README from the files in results/.

    python -m benchmarks.render              the texts
    python -m benchmarks.render pictures     the pictures, too

A test compares the pages with what this writes. Pages about measurements that are over are frozen
(`FROZEN`): they stay as they were written at version 0.2.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.lib.ledger import Ledger, Line, Results
from benchmarks.lib.page import Section, anchor, items, machine, markdown, wrapped
from benchmarks.pages import dba3c, games, gpu, pong, ray, speed
from benchmarks.peers.matches import OURS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"

BLOCK = re.compile(r"(<!-- results -->\n).*(<!-- end of results -->\n)", re.DOTALL)
"""Of the README: what stands between these lines is written by `write`."""

SUBJECTS = {
    "pong": ("Pong", pong, "the default recipe and all algorithms."),
    "games": (
        "Games",
        games,
        "Breakout, six games with the default, others, public curves.",
    ),
    "speed": ("Speed", speed, "The machine's limit, other systems, version 0.1."),
    "dba3c": ("DBA3C", dba3c, "Times, traffic, slow workers, slow links, old parameters."),
    "ray": ("Ray", ray, "Shares of the limit in processes, and what failures cost."),
    "gpu": ("A GPU", gpu, "Pong on an H100."),
}
"""Pages that are written: title, module with the sections, what is on it."""

FROZEN = {
    "search": "Candidates of all kinds, then a screen of DQN's settings.",
    "appo": "What each part of APPO and the autoencoder gain.",
    "choices": "Single choices in the code, replay buffers, loaders, learners in step, the page.",
    "stops": "Runs that are stopped and go on, frozen and killed processes.",
    "first-version": "Six games with the settings of version 0.1.",
}
"""Pages about measurements that are over, and what is on them."""


class Headline(NamedTuple):
    """A figure of a page that stands on the first one, too."""

    label: str
    page: str
    section: str
    row: str
    column: int = 1


RECIPE, FROM_IQM = "Pong with the default recipe", "Interquartile means over six games"
PEERS_SPEED = "Beside other systems: steps a second"
PEERS_TIME = "Beside other systems: minutes to 18 in Pong"
LOSS = "Ray: what a loss costs"
HEADLINES = (
    Headline("Pong: seconds to a mean score of 18", "pong", RECIPE, "seconds to Pong"),
    Headline("Pong: steps to it", "pong", RECIPE, "steps to Pong"),
    Headline("Breakout after an hour", "games", "Breakout", "Breakout after 60 minutes"),
    Headline(
        "Six games after ten minutes, human = 1", "games", FROM_IQM, "10 minutes, no-op starts"
    ),
    Headline("Six games after an hour, human = 1", "games", FROM_IQM, "60 minutes, no-op starts"),
    Headline(
        "Games not tuned on, ten minutes, human = 1",
        "games",
        "Games that nothing was tuned on",
        "median",
        2,
    ),
    Headline(
        "Share of the machine's limit, Pong",
        "speed",
        "Shares of the machine's limit",
        "Pong, the recipe",
        3,
    ),
    Headline("Memory of a whole run, MB", "pong", RECIPE, "peak memory of a whole run (RSS), MB"),
    Headline("Minutes to 18 in Pong", "speed", PEERS_TIME, "Gelada, median of 5 seeds"),
    Headline("The next fastest system's minutes", "speed", PEERS_TIME, "Sample Factory APPO"),
    Headline(
        "Steps/s like for like, Stable-Baselines3 PPO = 1",
        "speed",
        PEERS_SPEED,
        "Stable-Baselines3 PPO 2.9.2",
        3,
    ),
    Headline("DBA3C: seconds to Pong", "dba3c", "DBA3C on Pong", "seconds to Pong"),
    Headline(
        "DBA3C: speed with a slow worker and a backup, none slow = 1",
        "dba3c",
        "DBA3C on Pong",
        "updates/s with a slow worker, 1 backup",
    ),
    Headline(
        "Share of the machine's limit on Ray, APPO",
        "ray",
        "Ray: share of the machine's limit",
        "APPO, 2 remote actors",
    ),
    Headline(
        "Seconds to 90 % of the speed after a killed worker", "ray", LOSS, "worker, SIGKILL", 4
    ),
    Headline(
        "Pong on an H100, steps/s",
        "gpu",
        "Pong on a GPU",
        "2 x 32 games, 16 emulator threads each, rollouts of 64",
        3,
    ),
)

RENAMED = ""
"""A sentence about the name of the command in the ledger (`NAME`), if it has another one today."""

READ = f"""\
## How to read the pages

Pages are written by `python -m benchmarks.render` from the files in
[`benchmarks/results`](../benchmarks/results/README.md), which says how each thing is measured and
where its log is. A test compares the two; do not edit them. The first finished measurement of a
thing counts and is not replaced by a better one. Where something was measured again, because its
settings or the code had changed, the newest settings count, and [earlier
results](results/earlier.md) has the older ones.

* Seeds 1 to 5 are for measuring only; settings were searched on other seeds
  ([the searches](recipe-search.md)). Some measurements were repeated after a change that their
  first result had caused. Remarks say which: Freeway with PPO, Boxing and Freeway with the default,
  the runs of DBA3C on Pong, the shares on Ray and the shape of DBA3C's paper.
* A **bold** value is the median of the values behind it, which are in the order of the seeds,
  unless the section says that it is their mean. Before ± it is the mean of the games.
* A commit is the state of the code that was measured; with `+` the code differed from it. Commands
  stand as they were given then, without the folder of the run. Some flags have other names today:
  `--chaos` is `--faults`, `--bundles` is `--workers`, `--passes` is `--epochs`. A game that is
  named alone is learned by DQN since 2026-11-24 and was learned by PPO before, for which `ppo-`
  stands before its name today. {RENAMED}
* Machines are shared virtual ones with two cores and no GPU, but for the one of [Pong on a
  GPU](results/gpu.md). Figures differ from machine to machine and from day to day; compare only
  what was measured on one machine.
"""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("texts", "pictures"), default="texts")
    flags = parser.parse_args(args)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    if flags.what == "pictures":
        from benchmarks import pictures

        pictures.draw_all()
    return 0


def pages() -> dict[Path, str]:
    """Return the text of every page that is written, by its path."""
    results = Results(Ledger().lines())
    sections = {name: module.sections(results) for name, (_, module, _) in SUBJECTS.items()}
    found = {DOCS / "results" / f"{name}.md": page(name, own) for name, own in sections.items()}
    found[DOCS / "results" / "earlier.md"] = earlier(sections)
    found[DOCS / "results.md"] = front(sections)
    found[README] = with_block(README, short_table(results))
    return found


def page(name: str, sections: Sequence[Section]) -> str:
    """Return the text of the page of a subject."""
    lines = [f"# {SUBJECTS[name][0]}", ""]
    lines += wrapped(
        "[All results](../results.md), and [how to read](../results.md#how-to-read-the-pages) them."
    )
    if len(sections) > 1:
        lines += ["", *(f"* [{one.title}](#{anchor(one.title)})" for one in sections)]
    return joined([*lines, "", *(line for one in sections for line in one.lines())])


def earlier(sections: dict[str, list[Section]]) -> str:
    """Return the text of the page with what was measured before, and what failed."""
    lines = ["# Earlier results", ""]
    lines += wrapped(
        "Measurements with other settings or other code than those that count now, by page and "
        "section. [How to read](../results.md#how-to-read-the-pages) it. The rows are those of the "
        "section's table."
    )
    for name, own in sections.items():
        for one in own:
            if texts := one.earlier():
                title = f"[{one.title}]({name}.md#{anchor(one.title)})"
                lines += ["", f"## {one.title}", "", f"Beside {title}:", "", *items(texts)]
    return joined(lines)


def front(sections: dict[str, list[Section]]) -> str:
    """Return the text of docs/results.md: headline figures, the pages, how to read them."""
    written = [
        f"* [{title}](results/{name}.md): {about}" for name, (title, _, about) in SUBJECTS.items()
    ]
    frozen = [f"* [{title_of(name)}](results/{name}.md): {about}" for name, about in FROZEN.items()]
    return joined(
        [
            "# Results",
            "",
            *wrapped(
                "The main figures, measured on two shared cores without a GPU unless the row "
                "says otherwise. Each links to its section, which says how, where and when."
            ),
            "",
            *markdown(("", "measured"), headlines(sections)),
            "",
            *written,
            "* [Earlier results](results/earlier.md): measurements with other settings.",
            "",
            "Of measurements that are over:",
            "",
            *frozen,
            "",
            *READ.splitlines(),
        ]
    )


def headlines(sections: dict[str, list[Section]]) -> list[tuple[str, str]]:
    """Return links and figures of the main results; what is not measured is left out."""
    cells = {
        (name, one.title, row.label): row.cells
        for name, own in sections.items()
        for one in own
        for row in reversed(one.rows)  # of rows with one label the first counts
    }
    return [
        (f"[{head.label}](results/{head.page}.md#{anchor(head.section)})", row[head.column])
        for head in HEADLINES
        if (row := cells.get((head.page, head.section, head.row)))
    ]


def title_of(name: str) -> str:
    """Return the heading of a frozen page."""
    text = (DOCS / "results" / f"{name}.md").read_text(encoding="utf-8")
    return text.splitlines()[0].removeprefix("# ")


def joined(lines: Iterable[str]) -> str:
    """Return lines as the text of a file."""
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def short_table(results: Results) -> str:
    """Return the lines of the README between the two marks."""
    lines = Ledger(speed.PEERS).lines()
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
    return "\n".join([*markdown(head, rows), "", *wrapped(text)]) + "\n"


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
        player = "PPO" if games.by_ppo(found.line) else "the agent"
        score = f"{one['mean']:.0f} ± {one['standard_error']:.0f}"
        text += (
            f"\n\nIn Breakout, {player} scores {score} after an hour of training (the checkpoint "
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


def with_block(file: Path, block: str) -> str:
    """Return a file's text with other lines between its two marks.

    Raises:
        LookupError: if the file has no such marks.
    """
    text, count = BLOCK.subn(
        lambda found: found[1] + block + found[2], file.read_text(encoding="utf-8")
    )
    if count != 1:
        raise LookupError(f"{file.name}: the marks of the results are missing")
    return text


if __name__ == "__main__":
    sys.exit(main())
