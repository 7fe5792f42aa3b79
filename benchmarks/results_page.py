"""Writes docs/results.md, and the short table of the README, from the files in results/."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import screen
import sections
import sections_appo
import sections_default
import sections_devices
import sections_losses
import sections_peers
import sections_ray
import sections_screen
import sections_search
import sections_use
import sections_workers
import tried
from ledger import LEDGER, Ledger, Line
from lookup import Results
from page import Section, machine, wrapped
from peers import OURS, RESULTS
from table import markdown

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"

APPO = ROOT / "docs" / "appo.md"

BLOCK = re.compile(r"(<!-- results -->\n).*(<!-- end of results -->\n)", re.DOTALL)
"""Of the README and docs/appo.md: what stands between these lines is written by `write`."""

ABOUT = """\
# Results

This page is written by `python benchmarks/run.py results` from the files in
[`benchmarks/results`](../benchmarks/results/README.md). A test compares the two; do not edit it.
Every figure says how, where and when it was measured. The first finished measurement of a thing
counts and is not replaced by a better one; where something was measured again, because its settings
or the code had changed, the newest settings count and the remarks tell the older result.

* Seeds 1 to 5 are for measuring only; settings were searched on other seeds
  ([the recipe](recipe.md)). Some measurements were repeated after a change that their first result
  had caused. The remarks say which: Freeway with PPO, Boxing and Freeway with the default, the runs
  of DBA3C on Pong, the shares on Ray and the shape of DBA3C's paper.
* A **bold** value is the median of the values behind it, which are in the order of the seeds,
  unless the section says that it is their mean. Before ± it is the mean of the games.
* A commit is the state of the code that was measured; with `+` the code differed from it. Commands
  stand here as they were given then. Some flags have other names today: `--chaos` is `--faults`,
  `--bundles` is `--workers`, `--passes` is `--epochs`. A game that is named alone is learned by DQN
  since 2026-11-24 and was learned by PPO before, for which `ppo-` stands before its name today.
* The folder of a run is left out of the commands.
* Machines are shared virtual ones with two cores and no GPU, but for the one of [Pong on a
  GPU](#pong-on-a-gpu). Figures differ from machine to machine and from day to day; compare only
  what was measured on one machine.
"""


def all_sections() -> list[Section]:
    """Return every section, in the order of the page."""
    results = Results(Ledger(LEDGER).lines())
    return [
        *sections.sections(results),
        *sections_default.sections(results),
        *sections_search.sections(tried.lines()),
        *sections_screen.sections(screen.lines()),
        *sections_screen.long(screen.lines("long"), results),
        *sections_peers.sections(),
        *sections_workers.sections(results),
        *sections_appo.sections(results),
        *sections_ray.sections(results),
        *sections_use.sections(),
        *sections_losses.sections(results),
        sections_devices.on_a_gpu(),
        *sections_devices.sections(results),
    ]


def page() -> str:
    """Return the text of docs/results.md."""
    found = all_sections()
    links = [f"* [{one.title}](#{anchor(one.title)})" for one in found]
    lines = [ABOUT, *links, "", *(line for one in found for line in one.lines())]
    return "\n".join(lines).rstrip() + "\n"


def anchor(title: str) -> str:
    """Return the name that a heading has in links."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def short_table() -> str:
    """Return the lines of the README between the two marks."""
    lines = Ledger(RESULTS).lines()
    found = sections_peers.pairs(lines)
    ours = sections_peers.tries(lines, OURS)
    reached = [one for line in ours if (one := sections_peers.minutes(line)) is not None]
    rates = [x for (_, mode), own in found.items() if mode == "own" for x in own[-1]]
    time = f"**{median(reached):.1f}** ({min(reached):.1f} to {max(reached):.1f})"
    rows = [["**Gelada**", time, f"**{sections_peers.middle(rates, 'ours'):,.0f}**", ""]]
    others = []
    for peer, name in sections_peers.NAMES.items():
        run, pairs = sections_peers.tries(lines, peer)[-1], found[peer, "own"][-1]
        took = sections_peers.minutes(run)
        alike = median(line["ratio"] for line in found[peer, "alike"][-1])
        words = f"{took:.1f}" if took else f"not in {run['theirs']['within'] / 60:.0f}"
        rate = f"{sections_peers.middle(pairs, 'theirs'):,.0f}"
        label = f"{name} {run['theirs']['version']}"
        others.append((took or 1e9, [label, words, rate, f"{alike:.1f} times"]))
    rows += [row for _, row in sorted(others)]
    head = (
        "Pong",
        "minutes to a mean score of 18",
        "decisions a second",
        "with the same network and batches, Gelada is faster",
    )
    text = told(ours, lines)
    return "\n".join([*markdown(head, rows), "", *wrapped(text)]) + "\n"


def told(ours: list[Line], lines: list[Line]) -> str:
    """Return the sentences below the short table: where, how often, and other games."""
    machines = dict.fromkeys(machine(line) for line in ours)
    days = between({line["time"][:10] for line in lines if machine(line) in machines})
    text = (
        f"Measured on a server ({', '.join(machines)}, no GPU; {' to '.join(days)}). "
        f"Gelada's minutes are the median of {len(ours)} seeds; the others have one try of an hour "
        "each, with the recipe of their own documentation. Decisions a second are medians of the "
        "runs with these recipes, of Gelada those beside any of the others."
    )
    results = Results(Ledger(LEDGER).lines())
    if found := results.one("breakout-score"):
        one = found.line["result"]["minutes"]["60"]
        player = "PPO" if sections.by_ppo(found.line) else "the agent"
        score = f"{one['mean']:.0f} ± {one['standard_error']:.0f}"
        text += (
            f"\n\nIn Breakout, {player} scores {score} after an hour of training (the checkpoint "
            f"of minute {one['seconds'] / 60:.0f}, seed {found.line['seed']}, 50 full games; "
            f"{machine(found.line)}). Single checkpoints [swing](docs/results.md#breakout)."
        )
    played = sections_default.after_ten_minutes(results)
    above = [f"`{game}` ({100 * mean:.0f} %)" for game, (mean, low) in played.items() if low > 1]
    if above:
        text += (
            "\n\nAfter ten minutes of `gelada train GAME` on two such cores the agent has a "
            "[human-normalised score](docs/evaluation.md#human-normalised-score) above 100 %, that "
            f"of a human, by more than two standard errors in {len(above)} of {len(played)} games: "
            f"{', '.join(above)}. These are means of 50 full games with no-op starts, over one to "
            "three seeds; the settings were chosen on six of these games; "
            "[six games](docs/results.md#six-games-with-the-default) and "
            "[games that nothing was tuned on](docs/results.md#games-that-nothing-was-tuned-on) "
            "have all scores."
        )
    return text


def between(days: Iterable[str]) -> list[str]:
    """Return the first and the last day, or the only one."""
    found = sorted(days)
    return found[:1] if found[0] == found[-1] else [found[0], found[-1]]


def readme() -> str:
    """Return the README with the short table of today."""
    return with_block(README, short_table())


def appo() -> str:
    """Return docs/appo.md with the ladder's tables of today."""
    return with_block(APPO, sections_appo.ladder_block(Results(Ledger(LEDGER).lines())))


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


def write() -> None:
    """Write the page, the README's table and those of docs/appo.md."""
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
    APPO.write_text(appo(), encoding="utf-8")
