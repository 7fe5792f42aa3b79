"""What is measured for Pong, one function a cell. Nothing here is tuned: settings are the preset's.

Every function takes its cell, an empty folder for runs (deleted afterwards) and a folder for logs
(kept), and returns the result that goes into the ledger.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import process
from gelada.checkpoint import list_checkpoints, newest_checkpoint, read_checkpoint
from gelada.presets import preset
from ledger import (
    LEDGER,
    RUNS,
    Cell,
    Ledger,
    Line,
    can_reach,
    differences,
    finished,
    first_confirmed,
    steady_rate,
)

GAME = "pong"

SEEDS = (1, 2, 3, 4, 5)
"""Of `pong_time`. They are for measuring only: no setting was ever chosen on them."""

ROUND = 1
"""Raise this to measure everything anew, for example after a change of the code."""

SOLVED = 18.0
"""Mean score of full games that counts as having learned Pong."""

EVALUATED_GAMES = 50
"""Full games of an evaluation, and again of its confirmation (the sum of `PARTS`)."""

PARTS = (8, 8, 16, 18)
"""An evaluation's games; after each part a checkpoint may be given up: see `ledger.can_reach`."""

BENCH_SECONDS = 18.0
"""Of each measurement of the machine's limit, before and after a timed run."""

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


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    cells = [train_cell(seed) for seed in SEEDS]
    cells.append(Cell("limit", 1, settings("limit", seconds=2 * BENCH_SECONDS), limit))
    speed = settings("deterministic-speed", steps=EQUAL_SPEED_STEPS, turns=TURNS)
    cells.append(Cell("deterministic-speed", 1, speed, deterministic_speed))
    cells += [
        Cell("pong-time", seed, settings("pong-time", timed=TIMED, solved=SOLVED), pong_time)
        for seed in SEEDS
    ]
    equal = settings("deterministic-equal", updates=EQUAL_UPDATES)
    cells.append(Cell("deterministic-equal", 1, equal, deterministic_equal))
    cells.append(Cell("memory", 1, settings("memory", steps=MEMORY_STEPS), memory))
    return cells


def train_cell(seed: int) -> Cell:
    """Return the cell whose run `pong_time` evaluates."""
    return Cell("pong-train", seed, settings("pong-train", timed=TIMED), pong_train)


def settings(what: str, **procedure: Any) -> dict[str, Any]:
    """Return everything a result may depend on: the preset, and how it is measured."""
    experiment = dataclasses.asdict(preset(GAME)[0])
    del experiment["seed"]
    return {"what": what, "round": ROUND, "experiment": experiment, "procedure": procedure}


def pong_train(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:  # noqa: ARG001 - a form
    """Train alone on the machine, between two measurements of its limit; keep the checkpoints."""
    run = RUNS / cell.name
    shutil.rmtree(run, ignore_errors=True)
    words = train_words(cell.seed, run, *pairs(TIMED))
    before = process.bench(GAME, BENCH_SECONDS)["limit_steps_per_s"]
    outcome = train(words, run, log)
    after = process.bench(GAME, BENCH_SECONDS)["limit_steps_per_s"]
    metrics = read_metrics(run)
    rate, allowed = steady_rate(metrics), (before + after) / 2
    return {
        "command": process.clean(words, RUNS),
        "checkpoints": {  # seconds from the process's start until each was complete on disk
            path.stem: round(path.with_suffix(".json").stat().st_mtime - outcome.began, 2)
            for path in list_checkpoints(run / "checkpoints")
        },
        "run_seconds": round(outcome.seconds, 2),
        "run_steps": metrics[-1]["steps"],
        "steps_per_s": round(rate, 1),
        "limit_before": before,
        "limit_after": after,
        "share_of_limit": round(rate / allowed, 4),
        **megabytes(outcome),
    }


def pong_time(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:  # noqa: ARG001 - a cell's form
    """Look for the first checkpoint of the timed run that plays well enough; timed is nothing."""
    trained = train_cell(cell.seed)
    line = finished(Ledger(LEDGER).of(trained))
    if line is None or not (RUNS / trained.name).is_dir():
        raise LookupError(f"{trained.name} must be measured first, on this machine")
    seconds = line["result"]["checkpoints"]
    found, evaluated = find_solved(cell.seed, RUNS / trained.name, seconds, log)
    return {
        "solved": found is not None,
        "seconds_to_solved": evaluated[found]["seconds"] if found is not None else None,
        "steps_to_solved": evaluated[found]["steps"] if found is not None else None,
        "evaluated": evaluated,
    }


def find_solved(
    seed: int, run: Path, seconds: dict[str, float], log: Path
) -> tuple[int | None, list[dict[str, Any]]]:
    """Evaluate checkpoints in order until one is confirmed.

    Return its index (None if there is none) and what was found about each. A checkpoint whose first
    games are so bad that winning all others could not save it is not played to the end; its
    "games" says so.
    """
    from gelada.agent import load
    from gelada.roles.evaluator import evaluate

    paths = list_checkpoints(run / "checkpoints")
    evaluated: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []

    def mean(index: int, confirm: bool) -> float:
        agent, scores = load(paths[index]), list[float]()
        for part, games in enumerate(PARTS):
            own_seed = evaluation_seed(seed, index, confirm, part)
            evaluation = evaluate(agent, "training", games, seed=own_seed)
            if evaluation.interrupted:
                raise KeyboardInterrupt
            kept.append(evaluation.as_dict())
            scores += evaluation.scores
            if not can_reach(SOLVED, scores, EVALUATED_GAMES):
                break
        about = {
            "games": len(scores),
            "steps": agent.checkpoint.steps,
            "seconds": seconds[paths[index].stem],
            "mean": round(fmean(scores), 3),
            "standard_error": round(stdev(scores) / len(scores) ** 0.5, 3),
        }
        if confirm:
            evaluated[index]["confirmed_mean"] = about["mean"]
            evaluated[index]["confirmed_standard_error"] = about["standard_error"]
        else:
            evaluated.append(about)
        return fmean(scores)

    try:
        return first_confirmed(len(paths), mean, SOLVED), evaluated
    finally:
        text = "".join(json.dumps(one) + "\n" for one in kept)
        (log / "evaluations.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def evaluation_seed(seed: int, index: int, confirm: bool, part: int) -> int:
    """Return a seed that no other evaluation uses; those of the command line begin at 1."""
    return 1_000_000 + 10_000 * seed + 10 * index + 5 * confirm + part


def limit(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:  # noqa: ARG001 - a cell's form
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
            words = train_words(cell.seed, run, "--steps", str(EQUAL_SPEED_STEPS))
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
        words = [*train_words(cell.seed, run, "--steps", str(steps)), "--deterministic"]
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


def train_words(seed: int, run: Path, *more: str) -> list[str]:
    """Return the words after ``gelada`` of a run that only trains."""
    return ["train", GAME, "--seed", str(seed), "--out", str(run), "--no-finish", *more]


def train(words: Sequence[str], run: Path, log: Path, prefix: str = "") -> process.Outcome:
    """Run a training; keep its settings, metrics and output under ``log``, whatever happens."""
    output = log / f"{prefix}output.txt"
    try:
        return process.run(words, output)
    finally:
        if output.exists():
            said = output.read_text(encoding="utf-8", errors="replace")
            output.write_text(said.replace(str(run.parent), "RUNS"), encoding="utf-8")
        if (run / "metrics.jsonl").exists():
            data = gzip.compress((run / "metrics.jsonl").read_bytes(), mtime=0)
            (log / f"{prefix}metrics.jsonl.gz").write_bytes(data)
        if (run / "config.json").exists():
            shutil.copy(run / "config.json", log / f"{prefix}config.json")


def read_metrics(run: Path) -> list[Line]:
    """Return the lines of a run's metrics."""
    text = (run / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def megabytes(outcome: process.Outcome) -> dict[str, float]:
    """Return the peaks of memory in megabytes (10**6 bytes)."""
    return {
        "peak_rss_mb": round(outcome.peak_rss / 1e6, 1),
        "peak_pss_mb": round(outcome.peak_pss / 1e6, 1),
    }


def pairs(flags: dict[str, str]) -> list[str]:
    """Return flags and their values as words."""
    return [word for pair in flags.items() for word in pair]
