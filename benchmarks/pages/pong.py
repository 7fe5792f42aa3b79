"""Sections about Pong: the default recipe, all algorithms, and single ones of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.lib.ledger import MEAN_15, Found, Results
from benchmarks.lib.page import MISSING, Row, Section, figure, listed, values

SOLVED = (
    "Seconds run from the start of the process, imports included, to the first checkpoint whose "
    "later evaluation over 50 fresh full games has a mean of at least 18 and is confirmed by 50 "
    "more games. The evaluation itself is not in these seconds."
)

HEAD = ("", "measured")

ALGORITHMS = (
    ("pong", "APPO, the default (`pong`)"),
    ("dqn", "DQN (`dqn-pong`)"),
    ("apex", "Ape-X (`apex-pong`)"),
    ("gorila", "Gorila (`gorila-pong`)"),
    ("a3c", "A3C (`a3c-pong`)"),
    ("dba3c", "DBA3C (`dba3c-pong`)"),
    ("pqn", "PQN (`pqn-pong`)"),
)
"""Timed presets of one network: the first part of the names of their cells, and what they are."""

SEEDS = (1, 2)
"""Of the comparison of algorithms; other sections have all seeds."""


def pong(results: Results) -> Section:
    """Return the section about the default recipe on Pong."""
    timed = results.seeds("pong-time")
    trained = [*timed, *results.seeds("pong-train")]
    shares = [one for one in trained if "share_of_limit" in one.line["result"]]
    shares.sort(key=lambda one: one.line["seed"])
    equal = results.seeds("deterministic-equal")
    return Section(
        "Pong with the default recipe",
        f"{SOLVED} Single values are in the order of the seeds.\n\n"
        "The share of the machine's limit is the speed of the timed run from second 10 to its end, "
        "divided by the mean of the limits that `gelada bench` finds right before and right after.",
        HEAD,
        (
            *times("Pong", timed),
            figure("share of the machine's limit", shares, "share_of_limit", "{:.2f}"),
            figure(
                "the same by `gelada bench` alone",
                results.seeds("limit"),
                "share_of_limit",
                "{:.2f}",
            ),
            figure(
                "speed with --deterministic, free = 1",
                results.seeds("deterministic-speed"),
                "ratio",
                "{:.2f}",
            ),
            Row(
                ("--deterministic twice, bit for bit", judged(values(equal, "equal"))), tuple(equal)
            ),
            figure(
                "peak memory of a whole run (RSS), MB",
                results.seeds("memory"),
                "peak_rss_mb",
                "{:,.0f}",
            ),
        ),
    )


def times(label: str, found: Sequence[Found]) -> tuple[Row, Row]:
    """Return the rows of seconds and steps until the score was reached."""
    return (
        figure(f"seconds to {label}", found, "seconds_to_solved", "{:.0f}"),
        figure(f"steps to {label}", found, "steps_to_solved", "{:,.0f}"),
    )


def judged(values: Sequence[bool]) -> str:
    """Return "equal" if all are."""
    return ("equal" if all(values) else "not equal") if values else MISSING


def algorithms(results: Results) -> Section:
    """Return the section that compares all algorithms on Pong."""
    rows = []
    for what, name in ALGORITHMS:
        found = [one for one in results.seeds(f"{what}-time") if one.line["seed"] in SEEDS]
        if not found:
            continue
        steps, seconds = (values(found, f"{key}_to_solved") for key in ("steps", "seconds"))
        cells = (name, listed(steps, "{:,.0f}"), listed(seconds, "{:.0f}"))
        rows.append(Row(cells, tuple(found)))
    every = values(results.seeds("pong-time"), "seconds_to_solved")
    solved = sorted(value for value in every if value is not None)
    after = (
        "![Score against steps and against seconds for each algorithm](../pictures/algorithms.png)"
    )
    if len(solved) > len(SEEDS):
        after = (
            f"Two seeds are few: the {len(every)} seeds of the default recipe need from "
            f"{solved[0]:.0f} to {solved[-1]:.0f} seconds (median {median(solved):.0f}).\n\n{after}"
        )
    return Section(
        "All algorithms on Pong",
        "One network (42x42 frames), a mean of 18, seeds 1 and 2; where one value stands, seed 1. "
        "The value methods play all but greedily here, the others draw from their policy.",
        ("Pong, mean of 18", "steps", "seconds"),
        tuple(rows),
        after,
    )


def gorila(results: Results) -> Section:
    """Return the section about the times of Gorila and its relatives."""
    measured = (
        ("seconds to a mean of 15, gorila-pong", results.seeds("gorila-time", MEAN_15)),
        ("seconds to a mean of 18, gorila-pong", results.seeds("gorila-time")),
        ("seconds to a mean of 18, apex-pong", results.seeds("apex-time")),
    )
    return Section(
        "Gorila on Pong",
        f"{SOLVED} `gorila-pong` has two workers and two servers.",
        HEAD,
        tuple(figure(label, found, "seconds_to_solved", "{:.0f}") for label, found in measured),
    )


def appo(results: Results) -> Section:
    """Return the section about APPO with old windows, a target policy and a KL term."""
    trained = results.seeds("appo-train")
    return Section(
        "appo-pong on Pong",
        f"`gelada train appo-pong` with the best of its [tries](appo.md#parts-of-appo-on-pong). "
        f"{SOLVED}",
        HEAD,
        (
            *times("Pong, appo-pong", results.seeds("appo-time")),
            figure("share of the machine's limit", trained, "share_of_limit", "{:.2f}"),
        ),
    )


def sections(results: Results) -> list[Section]:
    """Return the sections of the page."""
    return [pong(results), algorithms(results), gorila(results), appo(results)]
