"""What is measured for DBA3C beside its times: slow workers, links, more workers, old parameters.

Workers sleep as long as a gradient takes instead of computing one (``--faults compute=50ms``);
pulls and pushes are real.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.lib import process
from benchmarks.lib.ledger import Cell
from benchmarks.lib.timed import read_metrics, steady_rate, train, train_words

MINUTES = "0.4"
"""Of each run that sleeps instead of computing."""

SETTLED = 6.0
"""Seconds of such a run that are not counted."""

SLEEP, LINK = "compute=50ms", "link=20MB"

STRAGGLERS = {
    "all as fast, no backup": ("8", "8", SLEEP),
    "one slow, no backup": ("8", "8", f"{SLEEP},straggler=500ms"),
    "all as fast, 1 backup": ("8", "7", SLEEP),
    "one slow, 1 backup": ("8", "7", f"{SLEEP},straggler=500ms"),
}
"""Workers, quorum and trouble."""

SERVERS, WORKERS, DELAYS = (1, 2, 4), (1, 2, 4, 8, 16, 32), (0, 1, 2, 4, 8, 16)
FREE = "1, no limit"

DELAY_STEPS = 500_000


RUNS: dict[str, dict[str, tuple[str, ...]]] = {
    "runs": {
        name: ("--workers", workers, "--quorum", quorum, "--faults", faults)
        for name, (workers, quorum, faults) in STRAGGLERS.items()
    },
    "servers": {
        name: ("--workers", "8", "--servers", servers, "--faults", faults)
        for name, servers, faults in (
            *((str(count), str(count), f"{SLEEP},{LINK}") for count in SERVERS),
            (FREE, "1", SLEEP),
        )
    },
    "workers": {str(count): ("--workers", str(count), "--faults", SLEEP) for count in WORKERS},
}
"""The flags of runs whose workers sleep, by what is compared: slow workers, servers behind links of
equal speed, more and more workers."""


def sleeping(key: str, cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Run workers that sleep, with some flags of `RUNS` after the other; return their rates."""
    rates, commands = {}, []
    for number, (name, own) in enumerate(RUNS[key].items()):
        run = scratch / str(number)
        words = train_words(cell.preset, cell.seed, run, "--minutes", MINUTES, *own)
        train(words, run, log, f"{number}-")
        commands.append(process.clean(words, scratch))
        metrics = read_metrics(run)
        rates[name] = {
            "versions_per_s": round(steady_rate(metrics, SETTLED, "version"), 3),
            "datapoints_per_s": round(steady_rate(metrics, SETTLED), 1),
            "gradients_dropped": metrics[-1]["gradients_dropped"],
            "gradients_partial": metrics[-1]["gradients_partial"],
            "updates": metrics[-1]["updates"],
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
