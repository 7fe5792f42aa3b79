"""What is measured for Gorila and DQN: times and steps to Pong, and six games with one setting."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import process
from ledger import Cell
from timed import Timed, megabytes, settings, train

TIMED = {
    "--checkpoint-seconds": "10",
    "--keep-checkpoints": "0",
    "--until-score": "19.5",  # over training games: the checkpoint looked for is earlier
    "--steps": "3000000",
    "--minutes": "8",
}
LADDER = TIMED | {"--minutes": "6"}
"""The training games of a ladder of epsilons never have a mean of 19.5: some explore to the end."""

PLAYS_WELL = 15.0
"""Mean score of full games that `gorila-pong` must reach; 18 is its goal."""

GORILA = Timed("gorila-pong", "gorila", TIMED)
GORILA_15 = Timed("gorila-pong", "gorila", TIMED, solved=PLAYS_WELL)
APEX = Timed("apex-pong", "apex", LADDER)
DQN = Timed("dqn-pong", "dqn", TIMED)
A3C = Timed("a3c-pong", "a3c", TIMED)

MEASURED = ((GORILA, (1, 2)), (APEX, (1, 2)), (DQN, (1, 2)), (A3C, (1, 2)))
"""Presets and their seeds."""

GAMES = ("boxing", "freeway", "space_invaders", "seaquest", "qbert", "beam_rider")
SUITE = "gorila-breakout"
MINUTES = 10
PROTOCOL = "noop"
EPISODES = 50


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    trained = [timed.train_cell(seed) for timed, seeds in MEASURED for seed in seeds]
    found = [timed.time_cell(seed) for timed, seeds in MEASURED for seed in seeds]
    fifteen = [GORILA_15.time_cell(seed) for seed in MEASURED[0][1]]
    return [*trained, *fifteen, *found, *(suite_cell(SUITE, game) for game in GAMES)]


def suite_cell(name: str, game: str) -> Cell:
    """Return the cell of one game with the settings of a preset, trained for ten minutes."""
    asked = {"preset": name, "game": game, "minutes": MINUTES}
    asked |= {"protocol": PROTOCOL, "episodes": EPISODES}
    own = settings("gorila-suite", name, **asked)
    return Cell("gorila-suite", 1, own, play)


def play(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train and evaluate one game by `gelada suite`; return its line of the suite's ledger."""
    asked = cell.settings["procedure"]
    suite = scratch / "suite"
    words = ["suite", asked["game"], "--preset", asked["preset"], "--out", str(suite)]
    words += ["--minutes", f"{asked['minutes']:g}"]
    words += ["--protocol", asked["protocol"], "--episodes", str(asked["episodes"])]
    run = suite / "runs" / f"{asked['game']}-1"
    outcome = train(words, run, log)
    text = (suite / "suite.jsonl").read_text(encoding="utf-8")
    shutil.copytree(run / "eval", log / "eval")
    return {
        "command": process.clean(words, scratch),
        **json.loads(text),
        "run_seconds": round(outcome.seconds, 2),
        **megabytes(outcome),
    }
