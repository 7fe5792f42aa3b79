"""What is measured for learners that step alike: are two of them one with the joined batch?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import process
from gelada.training.presets import preset
from ledger import Cell, Line, steady_rate
from timed import read_metrics, settings, train, train_words

GAME, SOLVED = "pong", 18.0

SEEDS = (1, 2, 3)

STOP = ("--until-score", str(SOLVED), "--minutes", "12", "--steps", "3000000")
"""When the mean of the newest 50 training games is `SOLVED`, or after 12 minutes."""


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    procedure = {"stop": STOP, "kinds": kinds()}
    own = settings("replicas", GAME, **procedure)
    return [Cell("replicas", seed, own, both) for seed in SEEDS]


def kinds() -> dict[str, tuple[str, ...]]:
    """Return the flags of one learner, and of two with half of its actors and minibatch each."""
    shape, algorithm = preset(GAME)[0].shape, preset(GAME)[0].algorithm
    halves = {"--actors": shape.actors // 2, "--minibatch": algorithm.minibatch // 2}
    flags = [word for flag, value in halves.items() for word in (flag, str(value))]
    return {"1 learner": (), "2 learners": ("--learners", "2", "--reduce", "group", *flags)}


def both(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train with one learner, then with two; compare the steps until they play well."""
    steps: dict[str, int | None] = {}
    rates: dict[str, float] = {}
    words: list[str] = []
    for number, (name, flags) in enumerate(kinds().items(), 1):
        run = scratch / f"{number}"
        words = train_words(GAME, cell.seed, run, *STOP, *flags)
        train(words, run, log, f"{number}-")
        metrics = read_metrics(run)
        steps[name], rates[name] = steps_to(metrics, SOLVED), round(steady_rate(metrics), 1)
    one, two = steps.values()
    ratio = round(two / one, 4) if one and two else None
    return {
        "command": process.clean(words, scratch),
        "steps_to_solved": steps,
        "steps_per_s": rates,
        "ratio": ratio,
    }


def steps_to(metrics: list[Line], score: float) -> int | None:
    """Return the steps of the first line with at least this score; None if there is none."""
    found = (line["steps"] for line in metrics if (line["score"] or -1e9) >= score)
    return next(found, None)
