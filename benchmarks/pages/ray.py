"""Sections about runs on Ray, and what failures cost."""

from __future__ import annotations

from benchmarks.lib.ledger import Found, Results
from benchmarks.lib.page import Row, Section

PRESETS = {"dba3c-pong": "DBA3C, 2 workers, 2 servers", "pong": "APPO, 2 remote actors"}

PLACES = ("ray", "threads")

SIGNALS = {"kill": "SIGKILL", "stop": "SIGSTOP"}

HOSTS = {"kill": "power", "freeze": "SIGSTOP to all its processes"}

KILLED = ("steps", "lost_steps", "seconds", "hits", "restored")


def shares(results: Results) -> Section:
    """Return the section about shares of the machine's limit."""
    rows = []
    for preset, name in PRESETS.items():
        found = results.one("ray-limit", preset)
        if found:
            share = found.line["result"]["share_of_limit"]
            rows.append(Row((name, *(f"{share[place]:.2f}" for place in PLACES)), (found,)))
    return Section(
        "Ray: share of the machine's limit",
        "`gelada bench` with `--on ray --cpus 0.5`, and on threads right after; the share is of "
        "the limit that the same command measures.",
        ("share of the machine's limit", "on Ray", "on threads"),
        tuple(rows),
    )


def failures(results: Results) -> Section:
    """Return the section about what the loss of a process or a host costs."""
    rows = [
        cost(whom, SIGNALS[how], found)
        for whom in ("worker", "server", "learner")
        for how in SIGNALS
        if (found := results.one("ray-failure", f"{whom} {how}"))
    ]
    rows += [
        cost("a host", name, found)
        for how, name in HOSTS.items()
        if (found := results.one("ray-host", how))
    ]
    return Section(
        "Ray: what a loss costs",
        "`dba3c-pong` (worker, server, host) and `pong` (learner). Hosts are three made of "
        "namespaces on the same two cores, one CPU each. *Detected* is the line that names the "
        "loss; *back* is when the last process has its roles again; the speed is regained when "
        "three seconds in a row have 90 % of the speed of the ten seconds before. Each row is "
        "one try.",
        (
            *("lost", "by", "seconds to detect", "to be back", "to 90 % of the speed before"),
            *("steps lost", "versions lost"),
        ),
        tuple(rows),
    )


def cost(whom: str, how: str, found: Found) -> Row:
    """Return the row of one loss."""
    result = found.line["result"]
    names = ("seconds_to_detect", "seconds_to_be_back", "seconds_to_recover")
    seconds = ("never" if result[name] is None else f"{result[name]:.1f}" for name in names)
    lost = (f"{result[name]:,}" for name in ("lost_steps", "lost_versions"))
    return Row((whom, how, *seconds, *lost), (found,), f"{whom}, {how}")


def paper_shape(results: Results) -> Section:
    """Return the section about the shape of DBA3C's paper."""
    found = results.one("ray-paper")
    rows: tuple[Row, ...] = ()
    if found:
        result, own = found.line["result"], (found,)
        rows = (
            Row(("processes", str(result["processes"])), own),
            Row(("seconds to a score of 0.9", f"{result['seconds']:.0f}"), own),
            Row(
                ("PSS of all processes, Ray's too, GB", f"{result['peak_pss_mb'] / 1000:.1f}"), own
            ),
        )
    return Section(
        "Ray: the shape of DBA3C's paper",
        "64 workers, a quorum of 60 and 4 servers, with a tiny network on Catch.",
        ("", "measured"),
        rows,
    )


def killed(results: Results) -> Section:
    """Return the section about runs whose processes are killed again and again."""
    rows = []
    calm = {one.line["seed"]: one for one in results.seeds("ray-killed")}
    for hit in results.seeds("ray-killed", "any kill"):
        seed = str(hit.line["seed"])
        own = calm.get(hit.line["seed"])
        cells = (seed, "every 30 s", *counts(hit), *ratios(hit, own))
        rows.append(Row(cells, (hit,), f"killed every 30 s, seed {seed}"))
        if own:
            cells = (seed, "never", *counts(own), "1", "1")
            rows.append(Row(cells, (own,), f"never killed, seed {seed}"))
    return Section(
        "Ray: Pong with processes that are killed",
        "`dba3c-pong` to a training score of 18 with `--faults kill=any:30s`, and without. "
        "*Steps* are those that count at the end; *steps lost* came after the last checkpoint "
        "before a loss and were played again on top of them. The ratio of steps counts both. In "
        "version 0.1 a restore began all games anew, so long games were missing among those that "
        "the score is the mean of.",
        (
            *("seed", "killed", "steps", "steps lost", "seconds", "hits", "restores"),
            *("steps and steps lost, never killed = 1", "seconds, never killed = 1"),
        ),
        tuple(rows),
    )


def counts(found: Found) -> tuple[str, ...]:
    """Return the cells of a row about a run to Pong."""
    return tuple(f"{found.line['result'][name]:,.0f}" for name in KILLED)


def ratios(hit: Found, calm: Found | None) -> tuple[str, str]:
    """Return played steps, and seconds, relative to the run of the same seed without trouble."""
    if calm is None:
        return "", ""
    one, other = hit.line["result"], calm.line["result"]
    played = (one["steps"] + one["lost_steps"]) / (other["steps"] + other["lost_steps"])
    return f"{played:.2f}", f"{one['seconds'] / other['seconds']:.2f}"


def sections(results: Results) -> list[Section]:
    """Return the sections of the page."""
    return [shares(results), failures(results), paper_shape(results), killed(results)]
