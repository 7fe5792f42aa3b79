"""The sections of docs/results.md about DBA3C, Gorila and the other algorithms."""

from __future__ import annotations

from statistics import median
from typing import Any

from lookup import MEAN_15, Found, Results
from page import Row, Section
from sections import HEAD, SOLVED, figure, six_games, values
from table import listed

PARAMETERS = 217_216
"""Length of the flat vector of dba3c-pong's network (217,207 parameters, padded to 64)."""

RATES = ("versions/s", "datapoints/s", "dropped", "partial")
"""Columns about runs that sleep instead of computing."""

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


def dba3c(results: Results) -> Section:
    """Return the section about DBA3C's times, share and traffic."""
    timed, late = results.seeds("dba3c-time"), results.seeds("dba3c-async-time")
    trained = results.seeds("dba3c-train")
    bench = results.seeds("dba3c-limit")
    slow = results.seeds("dba3c-straggler")
    both = [*bench, *trained]
    traffic = [100 * one.line["result"]["bytes_per_update"] / (8 * PARAMETERS) for one in trained]
    return Section(
        "DBA3C on Pong",
        f"Two workers, two servers. {SOLVED} The settings were searched on seeds 11 to 14 ([what "
        "was tried](../benchmarks/results/dba3c-search.jsonl)). The shares are first that of "
        "`gelada bench`, then those of the timed runs in the order of their seeds.",
        HEAD,
        (
            figure("seconds to Pong", timed, "seconds_to_solved", "{:.0f}"),
            figure("steps to Pong", timed, "steps_to_solved", "{:,.0f}"),
            figure("seconds to Pong, asynchronous", late, "seconds_to_solved", "{:.0f}"),
            figure("steps to Pong, asynchronous", late, "steps_to_solved", "{:,.0f}"),
            figure("share of the machine's limit", both, "share_of_limit", "{:.2f}"),
            figure("updates/s with a slow worker, no backup", slow, "ratio_no_backup", "{:.3f}"),
            figure("updates/s with a slow worker, 1 backup", slow, "ratio_1_backup", "{:.3f}"),
            Row(
                (
                    "bytes of an update, gradient and parameters = 100 %",
                    listed(traffic, "{:.1f} %"),
                ),
                tuple(trained),
            ),
        ),
        "Updates a second with a slow worker are relative to the same run without one.",
    )


def modes(results: Results) -> Section:
    """Return the section about synchronous and asynchronous runs."""
    pair = [results.seeds(what)[:1] for what in ("dba3c-train", "dba3c-async-train")]
    found = tuple(one for own in pair for one in own)
    names = {
        "steps_per_s": "steps/s",
        "updates": "updates",
        "gradients_dropped": "gradients dropped",
        "share_of_limit": "share of the limit",
    }
    rows = [
        Row((label, *(f"{one.line['result'][name]:,}" for one in found)), found)
        for name, label in names.items()
    ]
    partial = (f"{partly_counted(one.line['result']):,}" for one in found)
    rows.insert(3, Row(("gradients partly counted", *partial), found))
    return Section(
        "DBA3C, synchronous against asynchronous",
        "The timed runs of seed 1. A gradient is *partly counted* when some servers counted it "
        "and others did not.",
        ("", "synchronous", "asynchronous"),
        tuple(rows),
        "![Score against steps and seconds](pictures/dba3c-pong.png)",
    )


def partly_counted(result: dict[str, Any]) -> int:
    """Return how many gradients some servers counted and others did not."""
    return int(result.get("gradients_partial", result.get("gradients_torn", 0)))


def rates_of(rates: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row about runs that sleep instead of computing."""
    return (
        f"{rates['versions_per_s']:.1f}",
        f"{rates['datapoints_per_s']:,.0f}",
        f"{rates['gradients_dropped']:,}",
        f"{partly_counted(rates):,}",
    )


def sleeping(results: Results, what: str, key: str) -> tuple[Row, ...]:
    """Return the rows of a cell about runs that sleep instead of computing."""
    found = results.one(what)
    if found is None:
        return ()
    runs = found.line["result"][key]
    return tuple(Row((name, *rates_of(rates)), (found,)) for name, rates in runs.items())


def slow_workers(results: Results) -> list[Section]:
    """Return the sections about a slow worker, links and the number of workers."""
    return [
        Section(
            "DBA3C with a slow worker",
            "Eight workers. Each sleeps 50 ms instead of computing a gradient, a slow one 500 ms; "
            "pulls and pushes are real.",
            ("", *RATES),
            sleeping(results, "dba3c-straggler", "runs"),
        ),
        Section(
            "DBA3C with servers behind slow links",
            "Eight such workers. Each server is behind a link of 20 MB/s.",
            ("servers", *RATES),
            sleeping(results, "dba3c-servers", "servers"),
            "![Datapoints a second against servers and workers](pictures/dba3c-servers.png)",
        ),
        Section(
            "DBA3C with more workers",
            "Two servers in one process, no limit of the links, workers that sleep.",
            ("workers", *RATES),
            sleeping(results, "dba3c-workers", "workers"),
        ),
    ]


def delays(results: Results) -> Section:
    """Return the section about actors that play with old parameters."""
    found = [
        one
        for delay in (0, 1, 2, 4, 8, 16)
        if (one := results.one("dba3c-delay", str(delay))) is not None
    ]
    rows = [delay_row(one) for one in found]
    return Section(
        "DBA3C with old parameters",
        "`--deterministic --ahead 0 --faults delay=D`: actors play with parameters that are "
        "exactly D updates old. Equal steps, seed 1; nothing in it depends on the load of the "
        "machine.",
        ("updates old", "score at the end", "best"),
        tuple(rows),
        "![Score against steps for each delay](pictures/dba3c-delay.png)",
    )


def delay_row(found: Found) -> Row:
    """Return the row of one delay."""
    result = found.line["result"]
    cells = (f"{result['lag'][0]:.0f}", f"{result['last_score']:.2f}", f"{result['best']:.2f}")
    return Row(cells, (found,))


def gorila(results: Results) -> Section:
    """Return the section about the times of Gorila and its relatives."""
    fifteen = results.seeds("gorila-time", MEAN_15)
    return Section(
        "Gorila on Pong",
        f"{SOLVED} `gorila-pong` has two workers and two servers.",
        HEAD,
        (
            figure("seconds to a mean of 15, gorila-pong", fifteen, "seconds_to_solved", "{:.0f}"),
            figure(
                "seconds to a mean of 18, gorila-pong",
                results.seeds("gorila-time"),
                "seconds_to_solved",
                "{:.0f}",
            ),
            figure(
                "seconds to a mean of 18, apex-pong",
                results.seeds("apex-time"),
                "seconds_to_solved",
                "{:.0f}",
            ),
        ),
    )


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
    after = ""
    if len(solved) > len(SEEDS):
        after = (
            f"Two seeds are few: the {len(every)} seeds of the default recipe need from "
            f"{solved[0]:.0f} to {solved[-1]:.0f} seconds (median {median(solved):.0f})."
        )
    return Section(
        "All algorithms on Pong",
        "One network (42x42 frames), a mean of 18, seeds 1 and 2; where one value stands, seed 1. "
        "The value methods play all but greedily here, the others draw from their policy.",
        ("Pong, mean of 18", "steps", "seconds"),
        tuple(rows),
        "\n\n".join(
            filter(
                None,
                (
                    after,
                    "![Score against steps and against seconds for each algorithm]"
                    "(pictures/algorithms.png)",
                ),
            )
        ),
    )


def sections(results: Results) -> list[Section]:
    """Return the sections of this module."""
    return [
        dba3c(results),
        modes(results),
        *slow_workers(results),
        delays(results),
        gorila(results),
        algorithms(results),
        six_games(
            results,
            "gorila-games",
            "Six games with the settings of Gorila",
            "`gelada suite GAME --preset gorila-breakout --minutes 10`. No setting was chosen on "
            "these games; one earlier run of Boxing, on seed 11, was looked at.",
        ),
    ]
