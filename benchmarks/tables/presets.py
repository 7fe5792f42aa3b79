"""Tables about single presets: Pong by all algorithms, DBA3C, and runs on Ray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from benchmarks.lib.cluster import DELAYS
from benchmarks.lib.ledger import Results
from benchmarks.lib.table import Row, Table, figure, listed, values

HEAD = ("", "measured")

ALGORITHMS = {
    "pong": "APPO, the default (`pong`)",
    "dqn": "DQN (`dqn-pong`)",
    "apex": "Ape-X (`apex-pong`)",
    "gorila": "Gorila (`gorila-pong`)",
    "a3c": "A3C (`a3c-pong`)",
    "dba3c": "DBA3C (`dba3c-pong`)",
    "pqn": "PQN (`pqn-pong`)",
}
"""Timed presets of one network: the first part of the names of their cells, and what they are."""

SEEDS = (1, 2)
"""Of the comparison of algorithms; other tables have all seeds."""

PARAMETERS = 217_216
"""Length of the flat vector of dba3c-pong's network (217,207 parameters, padded to 64)."""


FIGURES = {
    "pong": """
seconds to Pong                      | pong-time             | seconds_to_solved | {:.0f}
steps to Pong                        | pong-time             | steps_to_solved   | {:,.0f}
share of the machine's limit         | pong-time, pong-train | share_of_limit    | {:.2f}
the same by `colobus bench` alone    | limit                 | share_of_limit    | {:.2f}
speed with --deterministic, free = 1 | deterministic-speed   | ratio             | {:.2f}
--deterministic twice, bit for bit   | deterministic-equal   | equal             | equal
peak memory of a whole run (RSS), MB | memory                | peak_rss_mb       | {:,.0f}
""",
    "gorila": """
seconds to a mean of 15, gorila-pong | gorila-time/mean 15   | seconds_to_solved | {:.0f}
seconds to a mean of 18, gorila-pong | gorila-time           | seconds_to_solved | {:.0f}
seconds to a mean of 18, apex-pong   | apex-time             | seconds_to_solved | {:.0f}
""",
    "appo": """
seconds to Pong, appo-pong           | appo-time             | seconds_to_solved | {:.0f}
steps to Pong, appo-pong             | appo-time             | steps_to_solved   | {:,.0f}
share of the machine's limit         | appo-train            | share_of_limit    | {:.2f}
""",
    "dba3c": """
seconds to Pong                        | dba3c-time               | seconds_to_solved | {:.0f}
steps to Pong                          | dba3c-time               | steps_to_solved   | {:,.0f}
seconds to Pong, asynchronous          | dba3c-async-time         | seconds_to_solved | {:.0f}
steps to Pong, asynchronous            | dba3c-async-time         | steps_to_solved   | {:,.0f}
share of the machine's limit           | dba3c-train           | share_of_limit    | {:.2f}
the same by `colobus bench` alone      | dba3c-limit           | share_of_limit    | {:.2f}
updates/s with a slow worker, no backup | dba3c-straggler         | ratio_no_backup   | {:.3f}
updates/s with a slow worker, 1 backup | dba3c-straggler          | ratio_1_backup    | {:.3f}
""",
    "gpu": """
Pong: seconds of the training          | gpu-pong                 | seconds           | {:.0f}
Pong: score in training                | gpu-pong                 | score             | {:.1f}
Pong: steps/s                          | gpu-pong                 | steps_per_s       | {:,.0f}
Breakout: score in training            | gpu-breakout             | score             | {:.1f}
Breakout: steps/s                      | gpu-breakout             | steps_per_s       | {:,.0f}
""",
}
"""Tables with one figure a row: its label, cells (with a variant), name in results, and form: a
word for what is true or not."""


def figures(results: Results, name: str) -> Table:
    """Return a table of `FIGURES`, a median over seeds in each row."""
    rows = []
    for line in FIGURES[name].strip().splitlines():
        label, cells, key, form = (word.strip() for word in line.split("|"))
        found = [one for cell in cells.split(", ") for one in results.seeds(*cell.split("/"))]
        found = [one for one in found if key in one.line["result"]]
        found.sort(key=lambda one: one.line["seed"])
        if "{" not in form and not all(values(found, key)):
            form = f"not {form}"
        rows.append(figure(label, found, key, form))
    return Table(HEAD, rows)


def dba3c(results: Results) -> Table:
    """Return the table about DBA3C's times, share and traffic."""
    trained = results.seeds("dba3c-train")
    traffic = [100 * n / (8 * PARAMETERS) for n in values(trained, "bytes_per_update")]
    label = "bytes of an update, gradient and parameters = 100 %"
    row = Row((label, listed(traffic, "{:.1f} %")), tuple(trained))
    return Table(HEAD, [*figures(results, "dba3c").rows, row])


def algorithms(results: Results) -> Table:
    """Return the table that compares all algorithms on Pong."""
    rows = []
    for what, name in ALGORITHMS.items():
        found = [one for one in results.seeds(f"{what}-time") if one.line["seed"] in SEEDS]
        if found:
            steps, seconds = (values(found, f"{key}_to_solved") for key in ("steps", "seconds"))
            cells = (name, listed(steps, "{:,.0f}"), listed(seconds, "{:.0f}"))
            rows.append(Row(cells, tuple(found)))
    every = values(results.seeds("pong-time"), "seconds_to_solved")
    solved = sorted(math.inf if value is None else value for value in every)
    after = ""
    if len(solved) > len(SEEDS):
        after = (
            f"Two seeds are few: the {len(every)} seeds of the default recipe need from "
            f"{solved[0]:.0f} to {solved[-1]:.0f} seconds (median {median(solved):.0f})."
        )
    return Table(("Pong, mean of 18", "steps", "seconds"), rows, after)


def sleeping(results: Results, what: str, key: str) -> Table:
    """Return the table of a cell about workers that sleep instead of computing."""
    rows = []
    for found in results.seeds(what):
        for name, rates in found.line["result"][key].items():
            torn = rates.get("gradients_partial", rates.get("gradients_torn", 0))
            speeds = f"{rates['versions_per_s']:.1f}", f"{rates['datapoints_per_s']:,.0f}"
            lost = f"{rates['gradients_dropped']:,}", f"{torn:,}"
            rows.append(Row((name, *speeds, *lost), (found,)))
    head = (key.replace("runs", ""), "versions/s", "datapoints/s", "dropped", "partial")
    return Table(head, rows)


def dba3c_delays(results: Results) -> Table:
    """Return the table about actors that play with old parameters."""
    rows = []
    for found in filter(None, (results.seeds("dba3c-delay", str(delay)) for delay in DELAYS)):
        told = [one.line["result"] for one in found]
        scores = (in_seeds([one[name] for one in told]) for name in ("last_score", "best"))
        rows.append(Row((f"{told[0]['lag'][0]:.0f}", *scores), tuple(found)))
    return Table(("updates old", "score at the end", "best"), rows)


def in_seeds(scores: Sequence[float]) -> str:
    """Return the mean of the seeds, and the lowest and highest of several."""
    mean = f"{fmean(scores):.2f}"
    return f"{mean} ({min(scores):.2f} to {max(scores):.2f})" if len(scores) > 1 else mean


def ray_shares(results: Results) -> Table:
    """Return the table about shares of the machine's limit on Ray."""
    rows = []
    presets = {"dba3c-pong": "DBA3C, 2 workers, 2 servers", "pong": "APPO, 2 remote actors"}
    for preset, name in presets.items():
        if found := results.one("ray-limit", preset):
            share = found.line["result"]["share_of_limit"]
            cells = (f"{share[place]:.2f}" for place in ("ray", "threads"))
            rows.append(Row((name, *cells), (found,)))
    return Table(("share of the machine's limit", "on Ray", "on threads"), rows)


def ray_failures(results: Results) -> Table:
    """Return the table about what the loss of a process or a host costs."""
    lost = [
        (whom, signal, results.one("ray-failure", f"{whom} {how}"))
        for whom in ("worker", "server", "learner")
        for how, signal in (("kill", "SIGKILL"), ("stop", "SIGSTOP"))
    ]
    hosts = (("kill", "power"), ("freeze", "SIGSTOP to all its processes"))
    lost += [("a host", name, results.one("ray-host", how)) for how, name in hosts]
    rows = []
    for whom, how, found in lost:
        if found:
            result = found.line["result"]
            times = (result[f"seconds_to_{name}"] for name in ("detect", "be_back", "recover"))
            seconds = ("never" if value is None else f"{value:.1f}" for value in times)
            again = (f"{result[name]:,}" for name in ("lost_steps", "lost_versions"))
            rows.append(Row((whom, how, *seconds, *again), (found,), f"{whom}, {how}"))
    head = ("lost", "by", "seconds to detect", "to be back", "to 90 % of the speed before")
    return Table((*head, "steps lost", "versions lost"), rows)
