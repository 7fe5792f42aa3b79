"""What is measured for the default: six games, ten minutes and an hour, and games not tuned on.

    python benchmarks/run.py --only default                  all
    python benchmarks/run.py --only default-games --most 6   the six games once

Every run is a cell of its own: `gelada train GAME` for so long, alone on the machine, and then 50
full games of its last checkpoint. The runs of an hour count as those of ten minutes of their seed
too: of each the last checkpoint within ten minutes plays 50 full games as well.
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
from gelada.core.checkpoint import list_checkpoints, read_about
from ledger import Cell, Line
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
    early: float | None = None  # minutes after which a checkpoint is evaluated as well

    def cells(self) -> list[Cell]:
        """Return the cell of each run: all games once, before any is repeated."""
        return [self.cell(game, seed) for seed in self.seeds for game in self.games]

    def cell(self, game: str, seed: int) -> Cell:
        """Return the cell of one run."""
        asked: dict[str, Any] = {"game": game, "minutes": self.minutes, "flags": self.flags}
        asked |= {"protocol": self.protocol, "episodes": EPISODES, "early": self.early}
        return Cell(self.what, seed, settings(self.what, game, **asked), self.measure)

    def measure(self, cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
        """Train, then play full games with the last checkpoint, and with an early one if asked."""
        asked, run = cell.settings["procedure"], scratch / "run"
        length = {"--minutes": f"{asked['minutes']:g}", "--steps": "1000000000"}
        if self.early is not None:
            length["--keep-checkpoints"] = "0"
        words = train_words(asked["game"], cell.seed, run, *asked["flags"], *pairs(length))
        outcome = train(words, run, log)
        metrics, checkpoints = read_metrics(run), list_checkpoints(run / "checkpoints")
        result = {
            "game": asked["game"],
            "command": process.clean(words, scratch),
            **self.evaluated(cell, checkpoints[-1], log),
            "steps": metrics[-1]["steps"],
            "seconds": metrics[-1]["seconds"],
            "run_seconds": round(outcome.seconds, 2),
            **megabytes(outcome),
        }
        if self.early is not None:
            path, at = within(60 * self.early, metrics, checkpoints)
            result["early"] = {**at, **self.evaluated(cell, path, log, f"minute-{self.early:g}-")}
        return result

    def evaluated(
        self, cell: Cell, checkpoint: Path, log: Path, prefix: str = ""
    ) -> dict[str, float]:
        """Return the mean of the games of a checkpoint, with its standard error."""
        from gelada.evaluation.agent import load
        from gelada.evaluation.evaluator import evaluate

        agent = load(checkpoint)
        own_seed = evaluation_seed(cell.seed, 0, confirm=False, part=0)
        asked = cell.settings["procedure"]
        evaluation = evaluate(agent, asked["protocol"], asked["episodes"], seed=own_seed)
        if evaluation.interrupted:
            raise KeyboardInterrupt
        text = json.dumps(evaluation.as_dict()) + "\n"
        data = gzip.compress(text.encode(), mtime=0)
        (log / f"{prefix}evaluations.jsonl.gz").write_bytes(data)
        found = {"score": evaluation.mean, "standard_error": evaluation.standard_error}
        return {name: round(value, 3) for name, value in found.items()}


def within(
    seconds: float, metrics: list[Line], checkpoints: list[Path]
) -> tuple[Path, dict[str, float]]:
    """Return the last checkpoint of a run's first seconds, and the steps and seconds it is from.

    Raises:
        LookupError: if there is none.
    """
    times = {line["steps"]: line["seconds"] for line in metrics}
    for path in reversed(checkpoints):
        steps = read_about(path).steps
        at = next((t for n, t in times.items() if n >= steps), None)
        if at is not None and at <= seconds:
            return path, {"steps": steps, "seconds": at}
    raise LookupError(f"no checkpoint within {seconds:g} seconds")


STICKY_FLAGS = ("--sticky", "0.25", "--no-life-loss-ends", "--noop-max", "0")

TEN = Course("default-games", SIX, (2, 3), 10)
STICKY = Course("default-sticky-games", SIX, (1,), 10, "sticky", STICKY_FLAGS)
OTHERS = Course("default-untuned-games", UNTUNED, (1,), 10)
HOUR = Course("default-hour-games", SIX, (1,), 60, early=TEN.minutes)


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    others = [*HOUR.cells(), *STICKY.cells(), *OTHERS.cells()]
    return [*TEN.cells(), *others]
