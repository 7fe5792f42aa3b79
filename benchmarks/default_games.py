"""What is measured for the default: six games, ten minutes and an hour, and games not tuned on.

    python benchmarks/run.py --only default                  all
    python benchmarks/run.py --only default-games --most 6   the six games once

Every run is a cell of its own: `gelada train GAME` for so long, alone on the machine, and then 50
full games of its last checkpoint.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import process
from games import EPISODES
from games import GAMES as SIX
from gelada.core.checkpoint import list_checkpoints
from ledger import Cell
from timed import evaluation_seed, megabytes, pairs, read_metrics, settings, train, train_words

UNTUNED = ("battle_zone", "double_dunk", "name_this_game", "phoenix")
"""With Qbert, the five games that stand for 57 (Aitchison et al. 2023). Qbert is one of the six."""


@dataclass(frozen=True)
class Course:
    """Runs of some games, all with the default and some flags."""

    what: str
    games: tuple[str, ...]
    seeds: tuple[int, ...]
    minutes: float
    protocol: str = "noop"
    flags: tuple[str, ...] = ()

    def cells(self) -> list[Cell]:
        """Return the cell of each run: all games once, before any is repeated."""
        return [self.cell(game, seed) for seed in self.seeds for game in self.games]

    def cell(self, game: str, seed: int) -> Cell:
        """Return the cell of one run."""
        asked: dict[str, Any] = {"game": game, "minutes": self.minutes, "flags": self.flags}
        asked |= {"protocol": self.protocol, "episodes": EPISODES}
        return Cell(self.what, seed, settings(self.what, game, **asked), self.measure)

    def measure(self, cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
        """Train, then play full games with the last checkpoint."""
        asked, run = cell.settings["procedure"], scratch / "run"
        length = {"--minutes": f"{asked['minutes']:g}", "--steps": "1000000000"}
        words = train_words(asked["game"], cell.seed, run, *asked["flags"], *pairs(length))
        outcome = train(words, run, log)
        last = read_metrics(run)[-1]
        return {
            "game": asked["game"],
            "command": process.clean(words, scratch),
            **self.evaluated(cell, run, log),
            "steps": last["steps"],
            "seconds": last["seconds"],
            "run_seconds": round(outcome.seconds, 2),
            **megabytes(outcome),
        }

    def evaluated(self, cell: Cell, run: Path, log: Path) -> dict[str, float]:
        """Return the mean of the games of a run's last checkpoint, with its standard error."""
        from gelada.evaluation.agent import load
        from gelada.evaluation.evaluator import evaluate

        agent = load(list_checkpoints(run / "checkpoints")[-1])
        own_seed = evaluation_seed(cell.seed, 0, confirm=False, part=0)
        asked = cell.settings["procedure"]
        evaluation = evaluate(agent, asked["protocol"], asked["episodes"], seed=own_seed)
        if evaluation.interrupted:
            raise KeyboardInterrupt
        text = json.dumps(evaluation.as_dict()) + "\n"
        (log / "evaluations.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        found = {"score": evaluation.mean, "standard_error": evaluation.standard_error}
        return {name: round(value, 3) for name, value in found.items()}


STICKY_FLAGS = ("--sticky", "0.25", "--no-life-loss-ends", "--noop-max", "0")

TEN = Course("default-games", SIX, (1, 2, 3), 10)
STICKY = Course("default-sticky-games", SIX, (1,), 10, "sticky", STICKY_FLAGS)
OTHERS = Course("default-untuned-games", UNTUNED, (1,), 10)
HOUR = Course("default-hour-games", SIX, (1,), 60)


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    ten = TEN.cells()
    once, again = ten[: len(SIX)], ten[len(SIX) :]
    return [*once, *STICKY.cells(), *again, *OTHERS.cells(), *HOUR.cells()]
