"""What is measured for Pong, one function a cell. Nothing here is tuned: settings are the preset's.

Every function takes its cell, an empty folder for runs (deleted afterwards) and a folder for logs
(kept), and returns the result that goes into the ledger.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import autoencoders
import cluster
import dba3c
import default_games
import general
import gorila
import ladder
import loaders
import losses
import process
import replicas
import resume
from gelada.core.checkpoint import newest_checkpoint, read_checkpoint
from gelada.experiment.presets import preset
from ledger import Cell, differences, steady_rate
from timed import (
    BENCH_SECONDS,
    Timed,
    megabytes,
    read_metrics,
    settings,
    train,
    train_words,
)

GAME = "pong"

SEEDS = (1, 2, 3, 4, 5)
"""Of `pong_time`. They are for measuring only: no setting was ever chosen on them."""

TIMED = {
    "--checkpoint-seconds": "10",
    "--keep-checkpoints": "0",
    "--until-score": "18.5",  # over training games, which lag: the checkpoint looked for is earlier
    "--steps": "1000000",
}

EQUAL_UPDATES = 200
"""Updates of the two runs that must be equal bit for bit."""

EQUAL_SPEED_STEPS = 80_000
"""Steps of each run whose speed is compared, free and deterministic in turn."""

MEMORY_STEPS = 200_000
"""Steps of the run whose memory is watched; it ends with evaluation, curve and film."""

TURNS = 3
"""How often free and deterministic runs take turns."""


PONG = Timed(GAME, "pong", TIMED)


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    others = (
        dba3c,
        cluster,
        gorila,
        general,
        default_games,
        resume,
        losses,
        ladder,
        autoencoders,
        loaders,
        replicas,
    )
    return [*pong_cells(), *(cell for module in others for cell in module.all_cells())]


def pong_cells() -> list[Cell]:
    """Return the cells of the default recipe."""
    cells = [PONG.train_cell(seed) for seed in SEEDS]
    cells.append(Cell("limit", 1, own("limit", seconds=2 * BENCH_SECONDS), limit))
    speed = own("deterministic-speed", steps=EQUAL_SPEED_STEPS, turns=TURNS)
    cells.append(Cell("deterministic-speed", 1, speed, deterministic_speed))
    cells += [PONG.time_cell(seed) for seed in SEEDS]
    equal = own("deterministic-equal", updates=EQUAL_UPDATES)
    cells.append(Cell("deterministic-equal", 1, equal, deterministic_equal))
    cells.append(Cell("memory", 1, own("memory", steps=MEMORY_STEPS), memory))
    return cells


def own(what: str, **procedure: Any) -> dict[str, Any]:
    """Return the settings of a cell of the default recipe."""
    return settings(what, GAME, **procedure)


def limit(_cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Measure the machine's limit and the share of it that training reaches."""
    rates = process.bench(GAME, 2 * BENCH_SECONDS)
    (log / "bench.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    command = f"gelada bench {GAME} --seconds {2 * BENCH_SECONDS:g} --json"
    return {"command": command, **{k: v for k, v in rates.items() if k != "machine"}}


def deterministic_speed(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train free and deterministic in turn, with equal roles and steps; compare the medians."""
    rates: dict[str, list[float]] = {"free": [], "deterministic": []}
    words: list[str] = []
    for turn in range(TURNS):
        for kind in rates:
            run = scratch / f"{kind}-{turn + 1}"
            words = train_words(GAME, cell.seed, run, "--steps", str(EQUAL_SPEED_STEPS))
            words += ["--deterministic"] if kind == "deterministic" else []
            train(words, run, log, f"{kind}-{turn + 1}-")
            rates[kind].append(round(steady_rate(read_metrics(run)), 1))
    free, deterministic = (median(rates[kind]) for kind in ("free", "deterministic"))
    return {
        "command": process.clean(words, scratch),
        "free_steps_per_s": rates["free"],
        "deterministic_steps_per_s": rates["deterministic"],
        "ratio": round(deterministic / free, 4),
    }


def deterministic_equal(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train twice from one seed; compare every tensor of the checkpoint, and the metrics."""
    import torch

    shape = preset(GAME)[0].shape
    steps = shape.random_steps + EQUAL_UPDATES * shape.actors * shape.games * shape.length
    runs = [scratch / "one", scratch / "two"]
    words: list[str] = []
    for run in runs:
        words = [*train_words(GAME, cell.seed, run, "--steps", str(steps)), "--deterministic"]
        train(words, run, log, f"{run.name}-")
    one, two = (read_checkpoint(newest_checkpoint(run / "checkpoints")[0]) for run in runs)
    unequal = sorted(
        name
        for name in one.tensors.keys() | two.tensors.keys()
        if name not in one.tensors
        or name not in two.tensors
        or not torch.equal(one.tensors[name], two.tensors[name])
    )
    found = differences(read_metrics(runs[0]), read_metrics(runs[1]))
    return {
        "command": process.clean(words, scratch),
        "updates": [one.version.number, two.version.number],
        "tensors": len(one.tensors),
        "unequal_tensors": unequal,
        "metrics_lines": len(read_metrics(runs[0])),
        "unequal_metrics": found[:20],
        "equal": not unequal and not found and one.version == two.version,
    }


def memory(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Watch the memory of a whole run: training, evaluation, curve and film."""
    run = scratch / "run"
    words = ["train", GAME, "--seed", str(cell.seed), "--out", str(run)]
    words += ["--steps", str(MEMORY_STEPS)]
    outcome = train(words, run, log)
    return {
        "command": process.clean(words, scratch),
        "run_seconds": round(outcome.seconds, 2),
        **megabytes(outcome),
    }
