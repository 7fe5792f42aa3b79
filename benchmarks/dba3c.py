"""What is measured for DBA3C: times and steps to Pong, shares, stragglers, links, delays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import process
from ledger import Cell, Line, steady_rate
from timed import BENCH_SECONDS, Timed, read_metrics, settings, train, train_words

PRESET = "dba3c-pong"

SEEDS = (1, 2)

TIMED = {
    "--checkpoint-seconds": "10",
    "--keep-checkpoints": "0",
    "--until-score": "19.5",
    "--steps": "3000000",
    "--minutes": "6",
}
"""Runs that ended at a training score of 18.5 ended too early: see the README of the results."""

SYNCHRONOUS = Timed(PRESET, "dba3c", TIMED)
ASYNCHRONOUS = Timed(PRESET, "dba3c-async", TIMED, switches=("--asynchronous",))

MINUTES = "0.4"
"""Of each run that sleeps instead of computing."""

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

LINK = "link=20MB"

SERVERS = (1, 2, 4)

WORKERS = (1, 2, 4, 8, 16, 32)

DELAYS = (0, 1, 2, 4, 8, 16)

DELAY_STEPS = 500_000


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    limit = settings("dba3c-limit", PRESET, seconds=2 * BENCH_SECONDS)
    slow = settings("dba3c-straggler", PRESET, minutes=MINUTES, runs=STRAGGLERS)
    servers = settings("dba3c-servers", PRESET, minutes=MINUTES, faults=[SLEEP, LINK], of=SERVERS)
    workers = settings("dba3c-workers", PRESET, minutes=MINUTES, faults=SLEEP, of=WORKERS)
    return [
        *(SYNCHRONOUS.train_cell(seed) for seed in SEEDS),
        Cell("dba3c-limit", 1, limit, share_of_limit),
        Cell("dba3c-straggler", 1, slow, straggler),
        Cell("dba3c-servers", 1, servers, servers_under_a_link),
        Cell("dba3c-workers", 1, workers, more_workers),
        *(ASYNCHRONOUS.train_cell(seed) for seed in SEEDS),
        *(SYNCHRONOUS.time_cell(seed) for seed in SEEDS),
        *(ASYNCHRONOUS.time_cell(seed) for seed in SEEDS),
        *(delay_cell(delay) for delay in DELAYS),
    ]


def delay_cell(delay: int) -> Cell:
    """Return the cell of one delay; its number stands in the settings."""
    own = settings("dba3c-delay", PRESET, delay=delay, steps=DELAY_STEPS)
    return Cell("dba3c-delay", 1, own, delayed)


def share_of_limit(_cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Measure the machine's limit and the share of it that training reaches."""
    rates = process.bench(PRESET, 2 * BENCH_SECONDS)
    (log / "bench.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    command = f"gelada bench {PRESET} --seconds {2 * BENCH_SECONDS:g} --json"
    return {"command": command, **{k: v for k, v in rates.items() if k != "machine"}}


def straggler(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Count updates with and without a slow worker, with and without a backup."""
    rates, commands = {}, []
    for number, (name, (workers, quorum, faults)) in enumerate(STRAGGLERS.items()):
        flags = ("--workers", workers, "--quorum", quorum, "--faults", faults)
        found, command = sleeping(cell, scratch, log, f"{number}-", flags)
        rates[name] = found
        commands.append(command)
    versions = {name: found["versions_per_s"] for name, found in rates.items()}
    return {
        "commands": commands,
        "runs": rates,
        "ratio_no_backup": round(
            versions["one slow, no backup"] / versions["all as fast, no backup"], 4
        ),
        "ratio_1_backup": round(
            versions["one slow, 1 backup"] / versions["all as fast, 1 backup"], 4
        ),
    }


def servers_under_a_link(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Count datapoints with one, two and four servers behind links of equal speed."""
    faults = f"{SLEEP},{LINK}"
    kinds = [(str(count), faults) for count in SERVERS] + [("1", SLEEP)]
    rates, commands = {}, []
    for count, trouble in kinds:
        flags = ("--workers", "8", "--servers", count, "--faults", trouble)
        name = count if trouble == faults else "1, no limit"
        found, command = sleeping(cell, scratch, log, f"{name.replace(', ', '-')}-", flags)
        rates[name] = found
        commands.append(command)
    return {"commands": commands, "servers": rates}


def more_workers(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Count datapoints with more and more workers that sleep as long as a gradient takes."""
    rates, commands = {}, []
    for count in WORKERS:
        flags = ("--workers", str(count), "--faults", SLEEP)
        rates[str(count)], command = sleeping(cell, scratch, log, f"{count}-", flags)
        commands.append(command)
    return {"commands": commands, "workers": rates}


def sleeping(
    cell: Cell, scratch: Path, log: Path, prefix: str, flags: Sequence[str]
) -> tuple[dict[str, float], str]:
    """Run workers that sleep instead of computing; return their rates and the command."""
    run = scratch / prefix.strip("-")
    words = train_words(PRESET, cell.seed, run, "--minutes", MINUTES, *flags)
    train(words, run, log, prefix)
    metrics = read_metrics(run)
    found = {
        "versions_per_s": round(rate_of(metrics, "version"), 3),
        "datapoints_per_s": round(steady_rate(metrics, SETTLED), 1),
        "gradients_dropped": metrics[-1]["gradients_dropped"],
        "gradients_partial": metrics[-1]["gradients_partial"],
        "updates": metrics[-1]["updates"],
    }
    return found, process.clean(words, scratch)


def rate_of(metrics: Sequence[Line], name: str) -> float:
    """Return how much a counter grows in a second, after `SETTLED`."""
    part = [line for line in metrics if line["seconds"] >= SETTLED]
    first, last = part[0], part[-1]
    return float((last[name] - first[name]) / (last["seconds"] - first["seconds"]))


def delayed(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train with parameters that are exactly so many versions old; deterministic, equal steps."""
    delay = cell.settings["procedure"]["delay"]
    run = scratch / "run"
    words = train_words(PRESET, cell.seed, run, "--steps", str(DELAY_STEPS), "--deterministic")
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
