"""What is measured for loaders: on a CPU, what a thread that prepares batches gains or costs."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from typing import Any

import process
from ledger import Cell, Line, steady_rate
from timed import read_metrics, settings, train, train_words

GAMES = ("pong", "breakout")
"""By PPO, whose preset of the first has small batches, and that of the second large ones."""

MINUTES, TURNS = "0.5", 5

KINDS: dict[str, tuple[str, ...]] = {"without": (), "with": ("--loaders", "1")}
"""Flags of the two runs of a pair."""

SETTLED = 10.0
"""Seconds after which a run counts."""

WAIT = "time_learner_wait_for_experience"
"""In metrics, the share of the learner's time in which it waits for a batch. Without a loader it
also joins the batch in that time."""


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    procedure = {"kinds": KINDS, "minutes": MINUTES, "turns": TURNS}
    return [
        Cell(
            "loaders-games",
            1,
            settings("loaders-games", f"ppo-{game}", **procedure, game=game),
            pairs,
        )
        for game in GAMES
    ]


def pairs(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train without and with a loader in turn; compare steps a second and the learner's wait."""
    game = cell.settings["procedure"]["game"]
    rates: dict[str, list[float]] = {name: [] for name in KINDS}
    waits: dict[str, list[float]] = {name: [] for name in KINDS}
    words: list[str] = []
    for turn in range(TURNS):
        for name, flags in KINDS.items():
            run = scratch / f"{name}-{turn + 1}"
            words = train_words(f"ppo-{game}", cell.seed, run, "--minutes", MINUTES, *flags)
            train(words, run, log, f"{run.name}-")
            metrics = read_metrics(run)
            rates[name].append(round(steady_rate(metrics, SETTLED), 1))
            waits[name].append(waiting(metrics))
    ratios = [now / before for before, now in zip(rates["without"], rates["with"], strict=True)]
    return {
        "game": game,
        "command": process.clean(words, scratch),
        "steps_per_s": rates,
        "learner_waits": waits,
        "ratios": [round(ratio, 4) for ratio in ratios],
        "median_ratio": round(median(ratios), 4),
    }


def waiting(metrics: list[Line]) -> float:
    """Return the mean share of the learner's time in which it waits for a batch.

    Raises:
        ValueError: if there is no line after `SETTLED` seconds.
    """
    shares = [line[WAIT] for line in metrics if line["seconds"] >= SETTLED and WAIT in line]
    if not shares:
        raise ValueError(f"no metrics lines after {SETTLED:g} s: the run was too short")
    return round(fmean(shares), 4)
