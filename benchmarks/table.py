"""The table of what was asked and what was measured, from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger import Cell, Line, finished, median_of


def table(cells: Sequence[Cell], lines: Sequence[Line]) -> list[str]:
    """Return the lines of a Markdown table. What is not measured yet says so."""

    def results(what: str) -> list[dict[str, Any]]:
        own = [cell for cell in cells if cell.what == what]
        done = [finished([line for line in lines if cell.matches(line)]) for cell in own]
        return [line["result"] for line in done if line]

    timed = results("pong-time")
    many = f"median of {len(timed)} seeds"
    seconds = [result["seconds_to_solved"] for result in timed]
    steps = [result["steps_to_solved"] for result in timed]
    trained = [r for r in results("pong-train") + timed if "share_of_limit" in r]
    shares = [result["share_of_limit"] for result in trained]
    ratios = [result["ratio"] for result in results("deterministic-speed")]
    equal = [result["equal"] for result in results("deterministic-equal")]
    memory = [result["peak_rss_mb"] for result in results("memory")]
    rows = [
        (f"seconds to Pong ({many})", "180", "75", listed(seconds, "{:.0f}")),
        (f"steps to Pong ({many})", "500,000", "250,000", listed(steps, "{:,.0f}")),
        (
            f"share of the machine's limit (median of {len(trained)} seeds)",
            "0.80",
            "0.92",
            listed(shares, "{:.2f}"),
        ),
        ("speed with --deterministic, free = 1", "0.85", "0.95", listed(ratios, "{:.2f}")),
        ("--deterministic twice, bit for bit", "equal", "equal", judged(equal)),
        ("peak memory of a whole run, MB", "2,000", "1,000", listed(memory, "{:,.0f}")),
    ]
    head = ["| | must | goal | measured |", "|---|---|---|---|"]
    return head + [f"| {' | '.join(row)} |" for row in rows]


def listed(values: Sequence[float | None], form: str) -> str:
    """Return the median, and the single values behind it if there are several."""
    if not values:
        return "not measured yet"
    words = ["never" if value is None else form.format(value) for value in values]
    if len(values) == 1:
        return words[0]
    middle = median_of(values)
    median = "never" if middle is None else form.format(middle)
    return f"**{median}** ({', '.join(words)})"


def judged(values: Sequence[bool]) -> str:
    """Return "equal" if all are."""
    if not values:
        return "not measured yet"
    return "equal" if all(values) else "not equal"
