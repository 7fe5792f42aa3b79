"""What is measured for learners that step alike: are two of them one with the joined batch?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import process
from gelada.experiment.presets import preset
from ledger import Cell, Line, steady_rate
from timed import read_metrics, settings, train, train_words

GAME, SOLVED = "pong", 18.0

SEEDS = (1, 2, 3)

STOP = ("--until-score", str(SOLVED), "--minutes", "12", "--steps", "3000000")
"""When the mean of the newest 50 training games is `SOLVED`, or after 12 minutes."""

SCORES = (0.0, 10.0, SOLVED)
"""A deterministic run is compared at these scores of its newest 50 training games."""

PAIRS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Seeds of deterministic runs. The steps of one recipe differ by a factor of three from seed to
seed, so three pairs cannot show whether two recipes are the same."""

DETERMINISTIC = ("--deterministic", "--until-score", str(SOLVED), "--steps", "800000")


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    free = settings("replicas", GAME, stop=STOP, kinds=kinds())
    same = settings("replicas-steps", GAME, stop=DETERMINISTIC, kinds=kinds(), scores=SCORES)
    cells = [Cell("replicas", seed, free, both) for seed in SEEDS]
    return cells + [Cell("replicas-steps", seed, same, side_by_side) for seed in PAIRS]


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


def side_by_side(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train both kinds at once, deterministically: what runs beside them changes no result."""

    def steps(kind: str) -> dict[str, int | None]:
        run = scratch / kind.replace(" ", "-")
        words = train_words(GAME, cell.seed, run, *DETERMINISTIC, *kinds()[kind])
        train(words, run, log, f"{run.name}-")
        metrics = read_metrics(run)
        return {f"{score:g}": steps_to(metrics, score) for score in SCORES}

    with ThreadPoolExecutor() as pool:
        found = dict(zip(kinds(), pool.map(steps, kinds()), strict=True))
    words = train_words(GAME, cell.seed, scratch / "run", *DETERMINISTIC)
    return {"command": process.clean(words, scratch), "steps_to": found}


def steps_to(metrics: list[Line], score: float) -> int | None:
    """Return the steps of the first line with at least this score; None if there is none."""
    found = (line["steps"] for line in metrics if (line["score"] or -1e9) >= score)
    return next(found, None)
