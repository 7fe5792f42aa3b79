"""What is measured of many processes and workers.

On Ray: shares of the machine's limit, and what failures cost. For DBA3C: slow workers, links, more
workers, old parameters. There workers sleep as long as a gradient takes instead of computing one
(``--faults compute=50ms``); pulls and pushes are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.lib import process
from benchmarks.lib.ledger import Cell, Line
from benchmarks.lib.timed import read_metrics, steady_rate, train, train_words
from colobus.core.files import read_lines

ON_RAY = ("--on", "ray", "--cpus", "0.5")

SECONDS = 80.0
"""Of a measurement of shares: half of it is training, and processes take their time to start."""

FAILURES = {"worker": "dba3c-pong", "server": "dba3c-pong", "learner": "pong"}
"""The kind of process that is hit, and in which preset."""

MINUTES = "1.7"
"""Of a run in which one process is hit, 20 to 60 seconds after its beginning."""

BEFORE = 10.0
"""Seconds before the hit over which the speed is taken."""

WINDOW = 3.0
"""Seconds over which the speed after the hit is taken."""

RECOVERED = 0.9
"""Of the speed before."""


SLEEPING_MINUTES, OF_MANY = "0.4", "0.9"
"""Of each run that sleeps instead of computing; the games of 32 workers are opened in half a minute
of it."""

SETTLED = 6.0
"""Seconds of such a run that are not counted."""

SLEEP = "compute=50ms"

STRAGGLERS = {
    "all as fast, no backup": ("8", "8", SLEEP),
    "one slow, no backup": ("8", "8", f"{SLEEP},straggler=500ms"),
    "all as fast, 1 backup": ("8", "7", SLEEP),
    "one slow, 1 backup": ("8", "7", f"{SLEEP},straggler=500ms"),
}
"""Workers, quorum and trouble."""

COUNTED = ("gradients_dropped", "gradients_partial", "updates")

WORKERS, DELAYS = (1, 2, 4, 8, 16, 32), (0, 1, 2, 4, 8, 16)

DELAY_STEPS = 800_000
"""After 500,000 not even the runs without a delay had learned Pong."""


RUNS: dict[str, dict[str, tuple[str, ...]]] = {
    "runs": {
        name: ("--workers", workers, "--quorum", quorum, "--faults", faults)
        for name, (workers, quorum, faults) in STRAGGLERS.items()
    },
    "workers": {str(count): ("--workers", str(count), "--faults", SLEEP) for count in WORKERS},
}
"""The flags of runs whose workers sleep, by what is compared: slow ones, and more and more."""


def sleeping(key: str, cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Run workers that sleep, with some flags of `RUNS` after the other; return their rates."""
    rates, commands = {}, []
    for number, (name, own) in enumerate(RUNS[key].items()):
        run = scratch / str(number)
        words = train_words(cell.preset, cell.seed, run, "--minutes", cell.asked["minutes"], *own)
        train(words, run, log, f"{number}-")
        commands.append(process.clean(words, scratch))
        metrics = read_metrics(run)
        rates[name] = {
            "versions_per_s": round(steady_rate(metrics, SETTLED, "version"), 3),
            "datapoints_per_s": round(steady_rate(metrics, SETTLED), 1),
            **{name: metrics[-1][name] for name in COUNTED},
        }
    found: dict[str, Any] = {"commands": commands, key: rates}
    for backup in ("no backup", "1 backup") if key == "runs" else ():
        fast, slow = (rates[f"{way}, {backup}"] for way in ("all as fast", "one slow"))
        ratio = slow["versions_per_s"] / fast["versions_per_s"]
        found[f"ratio_{backup.replace(' ', '_')}"] = round(ratio, 4)
    return found


def delayed(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train with parameters that are exactly so many versions old; deterministic, equal steps."""
    delay, run = cell.asked["delay"], scratch / "run"
    words = train_words(cell.preset, cell.seed, run, "--steps", str(DELAY_STEPS), "--deterministic")
    words += ["--ahead", "0"]
    words += ["--faults", f"delay={delay}"] if delay else []
    train(words, run, log)
    metrics = read_metrics(run)
    return {
        "command": process.clean(words, scratch),
        "lag": [metrics[-1]["lag_min"], metrics[-1]["lag_max"]],
        "steps": [line["steps"] for line in metrics],
        "score": [line["score"] for line in metrics],
        "last_score": metrics[-1]["score"],
        "best": metrics[-1]["best"],
    }


def share_of_limit(cell: Cell, _scratch: Path, _log: Path) -> dict[str, Any]:
    """Measure the machine's limit and what training in processes reaches, threads beside it."""
    ways = {"ray": ON_RAY, "threads": ()}
    rates = {name: process.bench(cell.preset, SECONDS, *words) for name, words in ways.items()}
    command = f"colobus bench {cell.preset} --seconds {SECONDS:g} --json {' '.join(ON_RAY)}"
    shares = {name: own["share_of_limit"] for name, own in rates.items()}
    return {"command": command, "preset": cell.preset, "share_of_limit": shares, "rates": rates}


def fail(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Kill or freeze one process of a run; say how soon that was seen, and over."""
    fault, run = f"{cell.asked['how']}={cell.asked['whom']}:40s", scratch / "run"
    words = train_words(cell.preset, cell.seed, run, "--minutes", MINUTES)
    words += ["--checkpoint-seconds", "5", *ON_RAY, "--faults", fault, "--until-score", "21"]
    train(words, run, log)
    return {"command": process.clean(words, scratch), **cost(run)}


def cost(run: Path) -> dict[str, Any]:
    """Return what the first hit of a run cost."""
    events = sorted(read_lines(run / "events.jsonl"), key=lambda event: event["seconds"])
    hit = next(event for event in events if event["event"] == "hit")
    later = [event for event in events if event["seconds"] > hit["seconds"]]
    end = next((e["seconds"] for e in later if e["event"] == "hit"), float("inf"))
    within = [event for event in later if event["seconds"] < end]

    def first(name: str) -> Line:
        return next((event for event in within if event["event"] == name), {})

    lost, restored = first("lost"), first("restored")
    back = [event["seconds"] for event in within if event["event"] == "back"]
    before, after = speeds(read_metrics(run), hit["seconds"], end)
    return {
        "hit": hit,
        "seconds_to_detect": round(lost["seconds"] - hit["seconds"], 2),
        "seconds_to_be_back": round(max(back) - hit["seconds"], 2) if back else None,
        "speed_before": round(before, 1),
        "seconds_to_recover": after,
        "lost_steps": restored.get("lost_steps", 0),
        "lost_versions": restored.get("lost_versions", 0),
    }


def speeds(metrics: Sequence[Line], hit: float, end: float) -> tuple[float, float | None]:
    """Return steps per second before a hit, and seconds until `RECOVERED` of that is reached.

    The speed at a moment is that of the `WINDOW` after it. Steps fall where a run goes back to a
    checkpoint; a window with such a fall in it does not count.
    """
    points = [(line["seconds"], line["steps"]) for line in metrics]
    calm = [point for point in points if hit - BEFORE <= point[0] <= hit]
    before = (calm[-1][1] - calm[0][1]) / (calm[-1][0] - calm[0][0])
    after = [point for point in points if hit < point[0] < end]
    for i, (seconds, steps) in enumerate(after):
        window = [point for point in after[i:] if point[0] <= seconds + WINDOW + 1.0]
        if window[-1][0] - seconds < WINDOW:
            continue  # nothing is written for a while, or the end is near
        rises = all(b[1] >= a[1] for a, b in pairwise(window))
        rate = (window[-1][1] - steps) / (window[-1][0] - seconds)
        if rises and rate >= RECOVERED * before:
            return before, round(seconds - hit, 2)
    return before, None
