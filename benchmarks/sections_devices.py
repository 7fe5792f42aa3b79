"""The sections of docs/results.md about loaders and learners that step alike.

A section is on the page once something of it was measured.
"""

from __future__ import annotations

from ledger import median_of
from loaders import GAMES, KINDS
from lookup import Results
from page import Row, Section
from replicas import SCORES, kinds
from table import listed

LOADERS = "A loader on a CPU"
REPLICAS = "Two learners in step"
DETERMINISTIC = "Two learners in step, deterministic"


def sections(results: Results) -> list[Section]:
    """Return the sections that have a row."""
    every = (loaders(results), replicas(results), deterministic(results))
    return [one for one in every if one.rows]


def loaders(results: Results) -> Section:
    """Return the section about runs with and without a loader."""
    rows = []
    for game in GAMES:
        for found in results.seeds("loaders-games", game):
            result = found.line["result"]
            cells = (
                game,
                *(listed(result["steps_per_s"][kind], "{:,.0f}") for kind in KINDS),
                listed(result["ratios"], "{:.3f}"),
                *(listed(result["learner_waits"][kind], "{:.3f}") for kind in KINDS),
            )
            rows.append(Row(cells, (found,)))
    return Section(
        LOADERS,
        "Pairs of runs in turn, without and with `--loaders 1`. The learner waits for a batch for "
        "the given share of its time; without a loader it joins the batch in that time, too.",
        ("", "steps/s without", "steps/s with", "ratio", "waits without", "waits with"),
        tuple(rows),
    )


def replicas(results: Results) -> Section:
    """Return the section about two learners with half a batch each."""
    found, rows = results.seeds("replicas"), list[Row]()
    values = [one.line["result"] for one in found]
    for kind in kinds() if found else ():
        cells = (
            kind,
            listed([value["steps_to_solved"][kind] for value in values], "{:,.0f}"),
            listed([value["steps_per_s"][kind] for value in values], "{:,.0f}"),
        )
        rows.append(Row(cells, tuple(found)))
    if found:
        rows.append(Row(("ratio", listed([value["ratio"] for value in values], "{:.2f}"), "")))
    return Section(
        REPLICAS,
        "Pong with the default recipe on threads, and with `--learners 2 --reduce group`, half of "
        "the actors and half of the minibatch for each of the two. A run ends when the mean of its "
        "last 50 training games is 18.",
        ("", "steps to 18", "steps/s"),
        tuple(rows),
    )


def deterministic(results: Results) -> Section:
    """Return the section about the same runs, deterministic, with more seeds."""
    found, rows = results.seeds("replicas-steps"), list[Row]()
    values = [one.line["result"]["steps_to"] for one in found]
    for score in SCORES if found else ():
        by_kind = [[value[kind][f"{score:g}"] for value in values] for kind in kinds()]
        one, two = map(median_of, by_kind)
        ratio = f"{two / one:.2f}" if one and two else "none"
        cells = (f"steps to {score:g}", *(listed(steps, "{:,.0f}") for steps in by_kind), ratio)
        rows.append(Row(cells, tuple(found)))
    return Section(
        DETERMINISTIC,
        "The same with `--deterministic`, until the mean of the last 50 training games is 18 or "
        "for 800,000 steps; the ratio is that of the medians.",
        ("", *kinds(), "ratio"),
        tuple(rows),
    )
