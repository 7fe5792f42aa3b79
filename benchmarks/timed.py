"""Timed trainings of Pong, and the search for the first checkpoint that plays well enough.

A preset is trained alone on the machine with a checkpoint every ten seconds; afterwards the
checkpoints are evaluated in order. Every function that is a cell's takes the cell, an empty folder
for runs (deleted afterwards) and a folder for logs (kept), and returns its result.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import process
from gelada.core.checkpoint import list_checkpoints
from gelada.core.files import read_lines
from gelada.experiment.presets import preset
from ledger import (
    LEDGER,
    RUNS,
    Cell,
    Ledger,
    Line,
    can_reach,
    finished,
    first_confirmed,
    steady_rate,
)

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


@dataclass(frozen=True)
class Timed:
    """A preset that is timed until it plays Pong well enough."""

    preset: str
    what: str  # its cells are WHAT-train and WHAT-time
    flags: dict[str, str]
    solved: float = SOLVED
    switches: tuple[str, ...] = ()  # flags without a value

    def train_cell(self, seed: int) -> Cell:
        """Return the cell whose run `time_cell` evaluates."""
        name = f"{self.what}-train"
        own = settings(name, self.preset, **self._procedure())
        return Cell(name, seed, own, self.train)

    def time_cell(self, seed: int) -> Cell:
        """Return the cell that looks for the first checkpoint that is good enough."""
        name = f"{self.what}-time"
        own = settings(name, self.preset, **self._procedure(), solved=self.solved)
        return Cell(name, seed, own, self.time)

    def _procedure(self) -> dict[str, Any]:
        return {"timed": self.flags} | ({"switches": self.switches} if self.switches else {})

    def train(self, cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
        """Train alone on the machine, between two measurements of its limit; keep checkpoints."""
        run = RUNS / cell.name
        shutil.rmtree(run, ignore_errors=True)
        words = [*train_words(self.preset, cell.seed, run, *pairs(self.flags)), *self.switches]
        before = self._limit()
        outcome = train(words, run, log)
        after = self._limit()
        metrics = read_metrics(run)
        rate = steady_rate(metrics)
        return {
            "command": process.clean(words, RUNS),
            "checkpoints": {  # seconds from the process's start until each was complete on disk
                path.stem: round(path.with_suffix(".json").stat().st_mtime - outcome.began, 2)
                for path in list_checkpoints(run / "checkpoints")
            },
            "run_seconds": round(outcome.seconds, 2),
            "run_steps": metrics[-1]["steps"],
            "steps_per_s": round(rate, 1),
            **share(rate, before, after),
            **workers(metrics),
            **megabytes(outcome),
        }

    def _limit(self) -> float | None:
        """Return what this machine allows, in steps/s; None (not known) with a replay buffer."""
        if preset(self.preset)[0].replay.capacity:
            return None
        return float(process.bench(self.preset, BENCH_SECONDS)["limit_steps_per_s"])

    def time(self, cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
        """Look for the first checkpoint of the timed run that plays well enough."""
        trained = self.train_cell(cell.seed)
        line = finished(Ledger(LEDGER).of(trained))
        if line is None or not (RUNS / trained.name).is_dir():
            raise LookupError(f"{trained.name} must be measured first, on this machine")
        return time_of(cell, RUNS / trained.name, line, log, self.solved)


def time_of(
    cell: Cell, run: Path, trained: Line, log: Path, solved: float, best: float = 21.0
) -> dict[str, Any]:
    """Return when a run's first good checkpoint was saved, and what was found about each.

    Args:
        cell: the cell that looks for it.
        run: the run's folder.
        trained: the line of the run, with the seconds of its checkpoints.
        log: folder for the evaluations.
        solved: mean score of fresh games that is looked for.
        best: the highest score of a game (Pong: 21).
    """
    seconds, known = trained["result"]["checkpoints"], played_since(trained, cell)
    found, evaluated = find_solved(cell.seed, run, seconds, log, solved, known, best)
    return {
        "solved": found is not None,
        "threshold": solved,
        "seconds_to_solved": evaluated[found]["seconds"] if found is not None else None,
        "steps_to_solved": evaluated[found]["steps"] if found is not None else None,
        "evaluated": evaluated,
    }


def find_solved(
    seed: int,
    run: Path,
    seconds: dict[str, float],
    log: Path,
    solved: float,
    known: dict[int, list[float]],
    best: float,
) -> tuple[int | None, list[dict[str, Any]]]:
    """Evaluate checkpoints in order until one is confirmed.

    Return its index (None if there is none) and what was found about each. A checkpoint whose first
    games are so bad that winning all others could not save it is not played to the end; its
    "games" says so. Scores in ``known``, by the evaluation's seed, are not played again: the same
    checkpoint and seed give the same games.
    """
    from gelada.evaluation.agent import load
    from gelada.evaluation.evaluator import evaluate

    paths = list_checkpoints(run / "checkpoints")
    evaluated: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []

    def mean(index: int, confirm: bool) -> float:
        agent, scores = load(paths[index]), list[float]()
        for part, games in enumerate(PARTS):
            own_seed = evaluation_seed(seed, index, confirm, part)
            if own_seed not in known:
                evaluation = evaluate(agent, "training", games, seed=own_seed)
                if evaluation.interrupted:
                    raise KeyboardInterrupt
                kept.append(evaluation.as_dict())
                known[own_seed] = evaluation.scores
            scores += known[own_seed]
            if not can_reach(solved, scores, EVALUATED_GAMES, best):
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
        return first_confirmed(len(paths), mean, solved), evaluated
    finally:
        text = "".join(json.dumps(one) + "\n" for one in kept)
        (log / "evaluations.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def played_since(trained: Line, cell: Cell) -> dict[int, list[float]]:
    """Return the scores by seed of all evaluations of a run that another cell has on record."""
    known: dict[int, list[float]] = {}
    lines = Ledger(LEDGER).lines()
    for line in lines[lines.index(trained) :]:
        about = (line["event"], line["what"], line["seed"])
        if about == ("finished", cell.what, cell.seed):
            path = LEDGER.parent / line["log"] / "evaluations.jsonl.gz"
            for text in gzip.decompress(path.read_bytes()).decode().splitlines():
                one = json.loads(text)
                known[one["seed"]] = one["scores"]
    return known


def evaluation_seed(seed: int, index: int, confirm: bool, part: int) -> int:
    """Return a seed that no other evaluation uses; those of the command line begin at 1."""
    return 1_000_000 + 10_000 * seed + 10 * index + 5 * confirm + part


def settings(what: str, name: str, **procedure: Any) -> dict[str, Any]:
    """Return everything a result may depend on: the preset, and how it is measured."""
    experiment = chosen(preset(name)[0])
    experiment.pop("seed", None)
    return {"what": what, "round": ROUND, "experiment": experiment, "procedure": procedure}


def chosen(settings: Any) -> dict[str, Any]:
    """Return a dataclass's values that are not its defaults, so that a new switch changes no cell.

    A changed default is a change of the code: raise `ROUND` for it.
    """
    found: dict[str, Any] = {"type": type(settings).__name__}
    for field in dataclasses.fields(settings):
        value, default = getattr(settings, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            found[field.name] = chosen(value) if dataclasses.is_dataclass(value) else value
    return found


def share(rate: float, before: float | None, after: float | None) -> dict[str, float]:
    """Return the share of the mean of two limits that was reached, if they are known."""
    if before is None or after is None:
        return {}
    both = round(rate / ((before + after) / 2), 4)
    return {"limit_before": before, "limit_after": after, "share_of_limit": both}


def workers(metrics: Sequence[Line]) -> dict[str, Any]:
    """Return what the last line of a distributed run's metrics says about its learners."""
    last = metrics[-1]
    if "updates" not in last:
        return {}
    names = (
        *("updates", "gradients_counted", "gradients_dropped", "gradients_partial"),
        *("gradients_outliers", "moved_bytes"),
    )
    return {
        **{name: last[name] for name in names if name in last},
        "bytes_per_update": round(last["moved_bytes"] / max(last["updates"], 1)),
    }


def train_words(name: str, seed: int, run: Path, *more: str) -> list[str]:
    """Return the words after ``gelada`` of a run of a preset that only trains."""
    return ["train", name, "--seed", str(seed), "--out", str(run), "--no-finish", *more]


def train(
    words: Sequence[str],
    run: Path,
    log: Path,
    prefix: str = "",
    program: Sequence[str] = (process.GELADA,),
) -> process.Outcome:
    """Run a training; keep its settings, metrics and output under ``log``, whatever happens."""
    output = log / f"{prefix}output.txt"
    try:
        return process.run(words, output, program)
    finally:
        if output.exists():
            said = output.read_text(encoding="utf-8", errors="replace")
            said = said.replace(str(run.parent), "RUNS")
            said = said.replace(f"{Path(process.GELADA).parent}/", "")  # of this machine only
            output.write_text(said, encoding="utf-8")
        if (run / "metrics.jsonl").exists():
            data = gzip.compress((run / "metrics.jsonl").read_bytes(), mtime=0)
            (log / f"{prefix}metrics.jsonl.gz").write_bytes(data)
        if (run / "config.json").exists():
            shutil.copy(run / "config.json", log / f"{prefix}config.json")


def read_metrics(run: Path) -> list[Line]:
    """Return the lines of a run's metrics."""
    return read_lines(run / "metrics.jsonl")


def megabytes(outcome: process.Outcome) -> dict[str, float]:
    """Return the peaks of memory in megabytes (10**6 bytes)."""
    return {
        "peak_rss_mb": round(outcome.peak_rss / 1e6, 1),
        "peak_pss_mb": round(outcome.peak_pss / 1e6, 1),
    }


def pairs(flags: dict[str, str]) -> list[str]:
    """Return flags and their values as words."""
    return [word for pair in flags.items() for word in pair]
