"""The sections of docs/results.md about version 0.1, the loaded agent and the live page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from gelada.core.files import read_lines
from ledger import Line
from page import Row, Section, machine
from table import listed

FOLDER = Path(__file__).parent / "results"

PAIRS = FOLDER / "pairs.jsonl"

FIRST = "logs/live_page-1/live_page.json"
"""A first measurement of the live page, in the folder of results."""


def where(measured: dict[str, Any]) -> str:
    """Return machine, day and commit of a measurement."""
    commit = measured["machine"].get("commit") or "unknown"
    return f"{machine(measured)}; {measured['time'][:10]}, commit `{commit}`"


FIRST_VERSION = "b8731a0"
"""Commit of version 0.1."""

COMPARED = {
    "pong": "Pong, steps/s",
    "breakout": "Breakout, steps/s",
    "pong memory": "Pong, largest memory, MB",
    "breakout memory": "Breakout, largest memory, MB",
    "gelada --help": "`gelada --help`, s",
    "import gelada": "`import gelada`, s",
}


def beside_first_version(lines: Sequence[Line]) -> Section | None:
    """Return the section about pairs with version 0.1; None without any."""
    of = {
        what: [line for line in lines if (line["other"], line["what"]) == (FIRST_VERSION, what)]
        for what in COMPARED
    }
    rows = [Row((COMPARED[what], *_compared(own))) for what, own in of.items() if own]
    if not rows:
        return None
    command = f"`python benchmarks/pairs.py {FIRST_VERSION} --pairs"
    measured = [f"{command} {_many(own[-1])}`; {where(own[-1])}" for own in of.values() if own]
    return Section(
        "Beside version 0.1",
        "Runs of 45 seconds of version 0.1 and of the code of the commit below in turn. A ratio is "
        "today's figure to 0.1's, of times 0.1's to today's, so above 1 is better but for memory; "
        "the median, and in brackets each pair, of the commands the median alone. The newest runs "
        "of games were measured because the ones before came out badly. Every other pair of theirs "
        "begins with today's code; in earlier ones 0.1 always ran first. Whether that explains "
        "the difference these few pairs do not tell. Single ratios differ by more than a quarter, "
        "so for speeds the median of all pairs is the better estimate. Earlier pairs are "
        "of earlier commits.",
        ("", "0.1, median", "today, median", "ratio", "earlier medians (pairs)", "all pairs"),
        tuple(rows),
        measured=list(dict.fromkeys(measured)),
    )


def _many(line: Line) -> int:
    """Return how many pairs of runs were asked for; 0: of commands only."""
    return 0 if line["unit"] == "s" else len(line["pairs"])


def _compared(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the cells of the newest of these lines, the medians of the others and that of all."""
    *older, newest = lines
    digits = ".4f" if newest["unit"] == "s" else ",.0f"
    before, now = (median(pair[i] for pair in newest["pairs"]) for i in (0, 1))
    newest_ratio = listed(newest["ratios"], "{:.3f}")
    return (
        format(before, digits),
        format(now, digits),
        f"**{newest['median_ratio']:.3f}**" if newest["unit"] == "s" else newest_ratio,
        ", ".join(f"{line['median_ratio']:.3f} ({len(line['pairs'])})" for line in older),
        f"{median(ratio for line in lines for ratio in line['ratios']):.3f}",
    )


def acting(measured: dict[str, Any]) -> Section:
    """Return the section about the time of an action."""
    return Section(
        "The loaded agent: one observation",
        f"Wall time of `agent.act` with one numpy observation, over {measured['calls']:,} calls.",
        ("", "median, ms", "95 % of the calls, ms"),
        tuple(
            Row((name, f"{own['median_ms']:.2f}", f"{own['p95_ms']:.2f}"))
            for name, own in measured["agents"].items()
        ),
        measured=[f"`python benchmarks/act.py`; {where(measured)}"],
    )


def live_page(measured: dict[str, Any]) -> Section:
    """Return the section about the live page."""
    runs = f"{measured['runs']} runs of {measured['steps']:,} steps"
    speeds, cost = measured["steps_per_s"], measured["cost"]
    labels = {
        "from elsewhere": "speed of a run that is watched from elsewhere, alone = 1",
        "here": "the same with a browser on the same two cores",
    }
    shares = measured["server_share"]
    rows = [
        Row((f"first view of {runs}, s", listed(measured["first_view_s"], "{:.2f}"))),
        Row(("a new line of metrics on that page, s", listed(measured["update_s"], "{:.2f}"))),
        *(Row((label, f"{1 - cost[watched]:.3f}")) for watched, label in labels.items()),
        *(
            Row((f"{what}: share of both cores that the server takes", listed(own, "{:.4f}")))
            for what, own in shares.items()
        ),
    ]
    return Section(
        "The live page",
        "Seconds in Chromium on the same machine: from the request of the page to a drawn chart "
        "and a row of each run, and from a line in `metrics.jsonl` to its score on the page. "
        "Speeds are medians of runs of Pong in turn: "
        + "; ".join(f"{name}: {listed(own, '{:,.0f}')} steps/s" for name, own in speeds.items())
        + f". They vary more than the page costs. {first_page()}",
        ("", "measured"),
        tuple(rows),
        measured=[f"`python benchmarks/live_page.py`; {where(measured)}"],
    )


def first_page() -> str:
    """Return what was measured first, and why again."""
    first = json.loads((FOLDER / FIRST).read_text(encoding="utf-8"))
    cost, turns = first["cost"], len(first["steps_per_s"]["alone"])
    elsewhere, here = (f"{1 - cost[name]:.3f}" for name in ("from elsewhere", "here"))
    return (
        f"A first measurement of {turns} turns gave {elsewhere} from elsewhere and {here} with a "
        "browser. It asked for everything twice a second, as no page does, and other programs read "
        "files meanwhile; so it was repeated with questions as the page asks them, and with the "
        "processor time of the server."
    )


def sections() -> list[Section]:
    """Return the sections of this module; what is not measured yet is left out."""
    found = []
    if first := beside_first_version(read_lines(PAIRS)):
        found.append(first)
    for name, make in (("act", acting), ("live_page", live_page)):
        if (file := FOLDER / f"{name}.json").exists():
            found.append(make(json.loads(file.read_text(encoding="utf-8"))))
    return found
