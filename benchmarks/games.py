"""Six games with the settings of one preset, ten minutes each, beside the published scores."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process
from gelada.cli.suite import GENERAL
from gelada.evaluation.scores import normalised, published
from ledger import Cell
from timed import megabytes, settings, train

GAMES = ("boxing", "freeway", "space_invaders", "seaquest", "qbert", "beam_rider")

MINUTES = 10
PROTOCOL = "noop"
EPISODES = 50

COLUMNS = {
    "random": "random play",
    "human": "human",
    "dqn_2015": "DQN, 200 M frames",
    "gorila": "Gorila",
    "a2c": "A2C, 40 M",
    "ppo": "PPO, 40 M",
}
"""Published scores beside ours, and how they are called."""


@dataclass(frozen=True)
class Games:
    """The six games by `gelada suite` with one preset."""

    what: str
    preset: str = ""  # the general recipe

    def cells(self) -> list[Cell]:
        """Return a cell for each game."""
        return [self.cell(game) for game in GAMES]

    def cell(self, game: str) -> Cell:
        """Return the cell of one game."""
        asked: dict[str, Any] = {"game": game, "minutes": MINUTES}
        asked |= {"protocol": PROTOCOL, "episodes": EPISODES}
        return Cell(
            self.what, 1, settings(self.what, self.preset or GENERAL, **asked), self.measure
        )

    def measure(self, cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
        """Train and evaluate one game; return its line of the suite's ledger."""
        game = cell.settings["procedure"]["game"]
        suite = scratch / "suite"
        run = suite / "runs" / f"{game}-1"
        words = ["suite", game, "--out", str(suite)]
        words += ["--preset", self.preset] if self.preset else []
        words += ["--minutes", str(MINUTES), "--protocol", PROTOCOL, "--episodes", str(EPISODES)]
        outcome = train(words, run, log)
        shutil.copytree(run / "eval", log / "eval")
        return {
            "command": process.clean(words, scratch),
            **json.loads((suite / "suite.jsonl").read_text(encoding="utf-8")),
            "run_seconds": round(outcome.seconds, 2),
            **megabytes(outcome),
        }


HEAD = ["game", "score", "steps", "human-normalised", *COLUMNS.values()]


def row_of(result: dict[str, Any]) -> list[str]:
    """Return a game's score beside the published ones."""
    game, score = result["game"], result["score"]
    share = normalised(score, game)
    beside = [published(game, name) for name in COLUMNS]
    return [
        game,
        f"**{score:,.1f}** ± {result['standard_error']:.1f}",
        f"{result['steps']:,}",
        "" if share is None else f"{share:.0f} %",
        *("" if value is None else f"{value:,.1f}" for value in beside),
    ]
