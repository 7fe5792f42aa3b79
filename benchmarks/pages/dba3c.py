"""Sections about DBA3C: times and traffic, slow workers, links, more workers, old parameters."""

from __future__ import annotations

from typing import Any

from benchmarks.lib.dba3c import DELAYS
from benchmarks.lib.ledger import Found, Results
from benchmarks.lib.page import Row, Section, figure, listed
from benchmarks.pages.pong import HEAD, SOLVED, times

PARAMETERS = 217_216
"""Length of the flat vector of dba3c-pong's network (217,207 parameters, padded to 64)."""

RATES = ("versions/s", "datapoints/s", "dropped", "partial")
"""Columns about runs that sleep instead of computing."""


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
        "was tried](../../benchmarks/results/dba3c-search.jsonl)). The shares are first that of "
        "`gelada bench`, then those of the timed runs in the order of their seeds.",
        HEAD,
        (
            *times("Pong", timed),
            *times("Pong, asynchronous", late),
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
        "![Score against steps and seconds](../pictures/dba3c-pong.png)",
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
            "![Datapoints a second against servers and workers](../pictures/dba3c-servers.png)",
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
    found = [one for delay in DELAYS if (one := results.one("dba3c-delay", str(delay))) is not None]
    rows = [delay_row(one) for one in found]
    return Section(
        "DBA3C with old parameters",
        "`--deterministic --ahead 0 --faults delay=D`: actors play with parameters that are "
        "exactly D updates old. Equal steps, seed 1; nothing in it depends on the load of the "
        "machine.",
        ("updates old", "score at the end", "best"),
        tuple(rows),
        "![Score against steps for each delay](../pictures/dba3c-delay.png)",
    )


def delay_row(found: Found) -> Row:
    """Return the row of one delay."""
    result = found.line["result"]
    cells = (f"{result['lag'][0]:.0f}", f"{result['last_score']:.2f}", f"{result['best']:.2f}")
    return Row(cells, (found,))


def sections(results: Results) -> list[Section]:
    """Return the sections of the page."""
    return [dba3c(results), modes(results), *slow_workers(results), delays(results)]
