"""The table of what was asked and what was measured, from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger import Cell, Line, finished, median_of


def results_of(cells: Sequence[Cell], lines: Sequence[Line], what: str) -> list[dict[str, Any]]:
    """Return the results of all finished cells of that name, in the cells' order."""
    own = [cell for cell in cells if cell.what == what]
    done = [finished([line for line in lines if cell.matches(line)]) for cell in own]
    return [line["result"] for line in done if line]


def table(cells: Sequence[Cell], lines: Sequence[Line]) -> list[str]:
    """Return the lines of a Markdown table. What is not measured yet says so."""

    def results(what: str) -> list[dict[str, Any]]:
        return results_of(cells, lines, what)

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
    return rows_of(rows)


def dba3c_table(cells: Sequence[Cell], lines: Sequence[Line]) -> list[str]:
    """Return the lines of a Markdown table about DBA3C."""

    def column(what: str, name: str) -> list[Any]:
        return [r[name] for r in results_of(cells, lines, what) if name in r]

    def percent(values: Sequence[float]) -> str:
        return listed([100 * value for value in values], "{:.1f} %")

    one_vector_each_way = [
        r["bytes_per_update"] / (8 * PARAMETERS) for r in results_of(cells, lines, "dba3c-train")
    ]
    rows = [
        (
            "seconds to Pong, 2 workers, 2 servers",
            "900",
            "240",
            listed(column("dba3c-time", "seconds_to_solved"), "{:.0f}"),
        ),
        (
            "steps to Pong",
            "",
            "",
            listed(column("dba3c-time", "steps_to_solved"), "{:,.0f}"),
        ),
        (
            "seconds to Pong, asynchronous",
            "",
            "",
            listed(column("dba3c-async-time", "seconds_to_solved"), "{:.0f}"),
        ),
        (
            "steps to Pong, asynchronous",
            "",
            "",
            listed(column("dba3c-async-time", "steps_to_solved"), "{:,.0f}"),
        ),
        (
            "share of the machine's limit",
            "0.60",
            "0.85",
            listed(
                column("dba3c-limit", "share_of_limit") + column("dba3c-train", "share_of_limit"),
                "{:.2f}",
            ),
        ),
        (
            "updates/s with a straggler, no backup (without = 1)",
            "at most 0.15",
            "",
            listed(column("dba3c-straggler", "ratio_no_backup"), "{:.3f}"),
        ),
        (
            "the same, 1 backup",
            "at least 0.95",
            "",
            listed(column("dba3c-straggler", "ratio_1_backup"), "{:.3f}"),
        ),
        (
            "bytes of an update, gradient up and parameters down = 100 %",
            "95 to 105 %",
            "",
            percent(one_vector_each_way),
        ),
    ]
    return rows_of(rows)


def dba3c_details(cells: Sequence[Cell], lines: Sequence[Line]) -> list[list[str]]:
    """Return the Markdown tables behind the plots of docs/dba3c.md, as far as there are results."""

    def own(what: str) -> list[dict[str, Any]]:
        return results_of(cells, lines, what)

    tables: list[list[str]] = []
    for modes in zip(own("dba3c-train"), own("dba3c-async-train"), strict=False):
        head = ["", "synchronous", "asynchronous"]
        names = ("steps_per_s", "updates", "gradients_dropped", "gradients_torn", "share_of_limit")
        rows = [[name, *(f"{mode[name]:,}" for mode in modes)] for name in names]
        tables.append(markdown(head, rows))
    for result in own("dba3c-straggler"):
        head = ["8 workers, 50 ms a gradient", "versions/s", "datapoints/s", "dropped", "torn"]
        tables.append(markdown(head, [[name, *rates_of(r)] for name, r in result["runs"].items()]))
    for what, key in (("dba3c-servers", "servers"), ("dba3c-workers", "workers")):
        for result in own(what):
            head = [key, "versions/s", "datapoints/s", "dropped", "torn"]
            rows = [[name, *rates_of(rates)] for name, rates in result[key].items()]
            tables.append(markdown(head, rows))
    if delays := own("dba3c-delay"):
        head = ["updates old", "score at the end", "best"]
        rows = [
            [f"{r['lag'][0]:.0f}", f"{r['last_score']:.2f}", f"{r['best']:.2f}"] for r in delays
        ]
        tables.append(markdown(head, rows))
    return tables


def ray_tables(cells: Sequence[Cell], lines: Sequence[Line]) -> list[list[str]]:
    """Return the Markdown tables of docs/clusters.md, as far as there are results."""

    def own(what: str) -> list[tuple[Cell, dict[str, Any]]]:
        found = [(cell, results_of([cell], lines, what)) for cell in cells]
        return [(cell, results[0]) for cell, results in found if results]

    tables: list[list[str]] = []
    if shares := own("ray-limit"):
        head = ["share of the machine's limit", "must", "goal", "on Ray", "on threads"]
        names = {"dba3c-pong": "DBA3C, 2 workers, 2 servers", "pong": "APPO, 2 remote actors"}
        rows = [
            [names[r["preset"]], "0.45", "0.75", *(f"{r['share_of_limit'][k]:.2f}" for k in PLACES)]
            for _, r in shares
        ]
        tables.append(markdown(head, rows))
    if failures := own("ray-failure") + own("ray-host"):
        head = ["lost", "by", "seconds to detect", "to be back", "to 90 % of the speed before"]
        tables.append(
            markdown([*head, "steps lost", "versions lost"], list(map(cost_of, failures)))
        )
    for _, r in own("ray-paper"):
        head = ["64 workers, quorum 60, 4 servers, Catch", "at most", "measured"]
        rows = [
            ["processes", "9", str(r["processes"])],
            ["seconds to a score of 0.9", "180", f"{r['seconds']:.0f}"],
            [
                "PSS of everything, Ray's own processes too, GB",
                "6",
                f"{r['peak_pss_mb'] / 1000:.1f}",
            ],
        ]
        tables.append(markdown(head, rows))
    if killed := own("ray-killed"):
        head = ["dba3c-pong to 18", "seed", "steps", "seconds", "hits", "restores", "steps lost"]
        rows = [
            [
                cell.settings["procedure"]["faults"] or "nothing killed",
                str(cell.seed),
                *(f"{r[key]:,.0f}" for key in KILLED),
            ]
            for cell, r in killed
        ]
        tables.append(markdown(head, rows))
    return tables


PLACES = ("ray", "threads")

KILLED = ("steps", "seconds", "hits", "restored", "lost_steps")


def cost_of(failure: tuple[Cell, dict[str, Any]]) -> list[str]:
    """Return the cells of a row about something that was lost."""
    cell, result = failure
    procedure = cell.settings["procedure"]
    hows = {"kill": "SIGKILL", "stop": "SIGSTOP", "freeze": "SIGSTOP to all its processes"}
    whom = procedure.get("whom", "a host")
    how = "power" if (whom, procedure["how"]) == ("a host", "kill") else hows[procedure["how"]]

    def number(name: str) -> str:
        return "never" if result[name] is None else f"{result[name]:.1f}"

    names = ("seconds_to_detect", "seconds_to_be_back", "seconds_to_recover")
    lost = [f"{result[name]:,}" for name in ("lost_steps", "lost_versions")]
    return [whom, how, *map(number, names), *lost]


def rates_of(rates: dict[str, Any]) -> list[str]:
    """Return the cells of a row about runs that sleep instead of computing."""
    return [
        f"{rates['versions_per_s']:.1f}",
        f"{rates['datapoints_per_s']:,.0f}",
        f"{rates['gradients_dropped']:,}",
        f"{rates['gradients_torn']:,}",
    ]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


PARAMETERS = 217_216
"""Length of the flat vector of dba3c-pong's network (217,207 parameters, padded to 64)."""


def rows_of(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Return Markdown lines."""
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
