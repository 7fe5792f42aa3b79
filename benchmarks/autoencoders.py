"""What is measured for the autoencoder: what each form costs, and whether it learns sooner."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import process
from games import GAMES
from ledger import Cell, Line, steady_rate
from timed import read_metrics, settings, train, train_words

OFF = "off"

FORMS: dict[str, tuple[str, ...]] = {
    OFF: (),
    "predict": ("--autoencoder", "predict"),
    "auxiliary": ("--autoencoder", "auxiliary"),
    "auxiliary, 1/16": ("--autoencoder", "auxiliary", "--autoencoder-part", "0.0625"),
    "latent": ("--autoencoder", "latent"),
}
"""Flags of each form; a fraction is the part of a minibatch that its loss takes (default: 1/4)."""

SPEED_MINUTES, ROUNDS = "0.35", 3

GAME_STEPS = "500000"

PLAYER = ("--size", "42", "--torso", "small", "--deterministic")
"""Flags of `ppo-GAME` without an autoencoder: the small network, so that six games can be played.
Runs are deterministic and end by steps, so two cells may be measured side by side."""

CHEAPEST = "predict"
"""The form that plays the six games."""

SEEDS = (1, 2, 3)


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    about = settings("autoencoder-speed", "pong", forms=FORMS, minutes=SPEED_MINUTES, rounds=ROUNDS)
    games = [game_cell(game, seed) for seed in SEEDS for game in GAMES]
    return [Cell("autoencoder-speed", 1, about, speed), *games]


def game_cell(game: str, seed: int) -> Cell:
    """Return the cell of one game with and without an autoencoder."""
    own = {"game": game, "form": FORMS[CHEAPEST], "steps": GAME_STEPS, "player": PLAYER}
    return Cell(
        "autoencoder-games", seed, settings("autoencoder-games", f"ppo-{game}", **own), both
    )


def speed(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train Pong with each form in turn; compare the medians of steps per second."""
    rates: dict[str, list[float]] = {name: [] for name in FORMS}
    words: list[str] = []
    for turn in range(ROUNDS):
        for number, (name, flags) in enumerate(FORMS.items()):
            run = scratch / f"{number}-{turn + 1}"
            words = train_words("pong", cell.seed, run, "--minutes", SPEED_MINUTES, *flags)
            train(words, run, log, f"{run.name}-")
            rates[name].append(round(steady_rate(read_metrics(run)), 1))
    without = median(rates[OFF])
    return {
        "command": process.clean(words, scratch),
        "steps_per_s": rates,
        "time": {name: round(without / median(own), 3) for name, own in rates.items()},
    }


def both(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train one game without and with the autoencoder, one after the other, for equal steps."""
    asked = cell.settings["procedure"]
    curves: dict[str, list[Line]] = {}
    costs: list[float] = []
    words: list[str] = []
    for name in (OFF, CHEAPEST):
        run = scratch / name
        words = train_words(f"ppo-{asked['game']}", cell.seed, run, *PLAYER, *FORMS[name])
        words += ["--steps", asked["steps"]]
        outcome = train(words, run, log, f"{run.name}-")
        metrics = read_metrics(run)
        costs.append(round(1000 * outcome.processor / metrics[-1]["steps"], 4))
        curves[name] = [line for line in metrics if line["score"] is not None]
    without, with_it = curves[OFF], curves[CHEAPEST]
    return {
        "game": asked["game"],
        "command": process.clean(words, scratch),
        **sooner(without, with_it),
        "processor_ms": costs,
        "scores": [own[-1]["score"] for own in (without, with_it)],
    }


def sooner(without: list[Line], with_it: list[Line]) -> dict[str, Any]:
    """Return the highest score that both runs reach, and the steps that each needs for it.

    Args:
        without: lines of metrics with a score, oldest first.
        with_it: those of the other run.
    """
    level = min(max(line["score"] for line in own) for own in (without, with_it))
    steps = [next(x["steps"] for x in own if x["score"] >= level) for own in (without, with_it)]
    return {"level": level, "steps": steps, "ratio": round(steps[1] / steps[0], 4)}
