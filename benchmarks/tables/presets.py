"""Tables about single presets: Pong by all algorithms, DBA3C, and runs on Ray."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from benchmarks.lib.cluster import DELAYS
from benchmarks.lib.ledger import MEAN_15, Found, Results
from benchmarks.lib.table import MISSING, Row, Table, figure, listed, values

HEAD = ("", "measured")

SHARE, SHARE_OF_LIMIT = "share of the machine's limit", "share_of_limit"

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


def times(label: str, found: Sequence[Found]) -> tuple[Row, Row]:
    """Return the rows of seconds and steps until the score was reached."""
    return (
        figure(f"seconds to {label}", found, "seconds_to_solved", "{:.0f}"),
        figure(f"steps to {label}", found, "steps_to_solved", "{:,.0f}"),
    )


def pong(results: Results) -> Table:
    """Return the table about the default recipe on Pong."""
    timed = results.seeds("pong-time")
    trained = [*timed, *results.seeds("pong-train")]
    shares = [one for one in trained if SHARE_OF_LIMIT in one.line["result"]]
    shares.sort(key=lambda one: one.line["seed"])
    equal = results.seeds("deterministic-equal")
    same = ("equal" if all(values(equal, "equal")) else "not equal") if equal else MISSING
    bench, speed = results.seeds("limit"), results.seeds("deterministic-speed")
    memory = results.seeds("memory")
    return Table(
        HEAD,
        (
            *times("Pong", timed),
            figure(SHARE, shares, SHARE_OF_LIMIT, "{:.2f}"),
            figure("the same by `colobus bench` alone", bench, SHARE_OF_LIMIT, "{:.2f}"),
            figure("speed with --deterministic, free = 1", speed, "ratio", "{:.2f}"),
            Row(("--deterministic twice, bit for bit", same), tuple(equal)),
            figure("peak memory of a whole run (RSS), MB", memory, "peak_rss_mb", "{:,.0f}"),
        ),
    )


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
    solved = sorted(value for value in every if value is not None)
    after = ""
    if len(solved) > len(SEEDS):
        after = (
            f"Two seeds are few: the {len(every)} seeds of the default recipe need from "
            f"{solved[0]:.0f} to {solved[-1]:.0f} seconds (median {median(solved):.0f})."
        )
    return Table(("Pong, mean of 18", "steps", "seconds"), rows, after)


def gorila(results: Results) -> Table:
    """Return the table about the times of Gorila and its relatives."""
    measured = (
        ("seconds to a mean of 15, gorila-pong", results.seeds("gorila-time", MEAN_15)),
        ("seconds to a mean of 18, gorila-pong", results.seeds("gorila-time")),
        ("seconds to a mean of 18, apex-pong", results.seeds("apex-time")),
    )
    return Table(HEAD, [figure(a, found, "seconds_to_solved", "{:.0f}") for a, found in measured])


def appo(results: Results) -> Table:
    """Return the table about APPO with old windows, a target policy and a KL term."""
    share = figure(SHARE, results.seeds("appo-train"), SHARE_OF_LIMIT, "{:.2f}")
    return Table(HEAD, (*times("Pong, appo-pong", results.seeds("appo-time")), share))


def dba3c(results: Results) -> Table:
    """Return the table about DBA3C's times, share and traffic."""
    trained, slow = results.seeds("dba3c-train"), results.seeds("dba3c-straggler")
    both = [*results.seeds("dba3c-limit"), *trained]
    traffic = [100 * n / (8 * PARAMETERS) for n in values(trained, "bytes_per_update")]
    return Table(
        HEAD,
        (
            *times("Pong", results.seeds("dba3c-time")),
            *times("Pong, asynchronous", results.seeds("dba3c-async-time")),
            figure(SHARE, both, SHARE_OF_LIMIT, "{:.2f}"),
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
    )


def sleeping(results: Results, what: str, key: str) -> Table:
    """Return the table of a cell about workers that sleep instead of computing."""
    found = results.one(what)
    rows = [
        Row(
            (
                name,
                f"{rates['versions_per_s']:.1f}",
                f"{rates['datapoints_per_s']:,.0f}",
                f"{rates['gradients_dropped']:,}",
                f"{rates.get('gradients_partial', rates.get('gradients_torn', 0)):,}",
            ),
            (found,),
        )
        for name, rates in (found.line["result"][key] if found else {}).items()
        if found
    ]
    return Table(
        (key.replace("runs", ""), "versions/s", "datapoints/s", "dropped", "partial"), rows
    )


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
            share = found.line["result"][SHARE_OF_LIMIT]
            cells = (f"{share[place]:.2f}" for place in ("ray", "threads"))
            rows.append(Row((name, *cells), (found,)))
    return Table((SHARE, "on Ray", "on threads"), rows)


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
