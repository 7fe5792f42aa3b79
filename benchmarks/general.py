"""What is measured for the general recipe: Breakout for an hour, six games, shares of the limit."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import process
from games import Games
from gelada.checkpoint import list_checkpoints
from ledger import LEDGER, RUNS, Cell, Ledger, finished
from timed import EVALUATED_GAMES, evaluation_seed, megabytes, pairs, settings, train, train_words

BREAKOUT = "breakout"
HOUR = {"--minutes": "75", "--checkpoint-seconds": "300", "--keep-checkpoints": "0"}
MINUTES = (60, 75)
"""Of Breakout's training; the newest checkpoint of each is evaluated."""

SIX = Games("general-games")

NATURE = ("--torso", "nature", "--width", "512", "--size", "84")
LIMITS = {
    "Pong, the recipe": ("pong",),
    "Breakout, the recipe": (BREAKOUT,),
    "Pong, Nature network, 84x84": ("pong", *NATURE),
    "Breakout, Nature network, 84x84": (BREAKOUT, *NATURE),
}
LIMIT_SECONDS = 60.0
ROUNDS = 3


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    shares = settings("general-limit", BREAKOUT, of=LIMITS, seconds=LIMIT_SECONDS, rounds=ROUNDS)
    return [
        Cell("general-limit", 1, shares, share_of_limits),
        train_cell(),
        Cell("breakout-score", 1, settings("breakout-score", BREAKOUT, timed=HOUR), score),
        *SIX.cells(),
    ]


def train_cell() -> Cell:
    """Return the cell of Breakout's long run."""
    return Cell("breakout-train", 1, settings("breakout-train", BREAKOUT, timed=HOUR), learn)


def learn(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:  # noqa: ARG001 - a cell's form
    """Train alone on the machine, and keep the checkpoints."""
    run = RUNS / cell.name
    shutil.rmtree(run, ignore_errors=True)
    words = train_words(BREAKOUT, cell.seed, run, *pairs(HOUR))
    outcome = train(words, run, log)
    return {
        "command": process.clean(words, RUNS),
        "checkpoints": {
            path.stem: round(path.with_suffix(".json").stat().st_mtime - outcome.began, 2)
            for path in list_checkpoints(run / "checkpoints")
        },
        "run_seconds": round(outcome.seconds, 2),
        **megabytes(outcome),
    }


def score(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:  # noqa: ARG001 - a cell's form
    """Play 50 fresh full games with the newest checkpoint of each of `MINUTES`."""
    from gelada.agent import load
    from gelada.roles.evaluator import evaluate

    trained = train_cell()
    line = finished(Ledger(LEDGER).of(trained))
    if line is None or not (RUNS / trained.name).is_dir():
        raise LookupError(f"{trained.name} must be measured first, on this machine")
    seconds, kept = line["result"]["checkpoints"], []
    found: dict[str, Any] = {}
    for minutes in MINUTES:
        paths = list_checkpoints(RUNS / trained.name / "checkpoints")
        index, path = [(i, p) for i, p in enumerate(paths) if seconds[p.stem] <= 60 * minutes][-1]
        own_seed = evaluation_seed(cell.seed, index, confirm=False, part=0)
        evaluation = evaluate(load(path), "training", EVALUATED_GAMES, seed=own_seed)
        if evaluation.interrupted:
            raise KeyboardInterrupt
        kept.append(evaluation.as_dict())
        names = ("steps", "mean", "standard_error", "median", "human_normalised")
        found[str(minutes)] = {name: kept[-1][name] for name in names}
        found[str(minutes)]["seconds"] = seconds[path.stem]
    text = "".join(json.dumps(one) + "\n" for one in kept)
    (log / "evaluations.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return {"minutes": found}


def share_of_limits(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:  # noqa: ARG001
    """Measure the share of the machine's limit, all settings in turn."""
    rates: dict[str, list[dict[str, Any]]] = {name: [] for name in LIMITS}
    for _ in range(ROUNDS):
        for name, words in LIMITS.items():
            rates[name].append(process.bench(words[0], LIMIT_SECONDS, *words[1:]))
    (log / "bench.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    return {
        "commands": [f"gelada bench {' '.join(words)} --json" for words in LIMITS.values()],
        "shares": {name: [one["share_of_limit"] for one in own] for name, own in rates.items()},
        "steps_per_s": {
            name: [one["achieved_steps_per_s"] for one in own] for name, own in rates.items()
        },
    }
