"""Where the time of runs went, and what bounded their speed, as a table of a report."""

from __future__ import annotations

from collections.abc import Mapping

from gelada.page.report.blocks import Block, Heading, Table, Text
from gelada.page.report.results import Results

LEAST = 0.005
"""Shares below this are left out."""


def where_the_time_went(results: Results) -> list[Block]:
    """Return a row for each run that wrote its shares; nothing if none did."""
    found = [(one.run, stages) for one in results.all if (stages := one.run.stages())]
    if not found:
        return []
    roles = sorted({role for _, stages in found for role in stages})
    rows = tuple(
        (run.name, run.bound(), *(shares_in_words(stages.get(role, {})) for role in roles))
        for run, stages in found
    )
    columns = ("run", "speed limited by", *(f"time of {role}s" for role in roles))
    said = "Shares of the time of each kind of role, at the newest line of the run's metrics."
    return [Heading("Where the time went"), Table(columns, rows), Text(said)]


def shares_in_words(shares: Mapping[str, float]) -> str:
    """Return such as "emulate 52 %, act 34 %", the largest share first."""
    order = sorted(shares.items(), key=lambda one: -one[1])
    return ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in order if share >= LEAST)
