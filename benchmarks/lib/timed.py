"""Trainings that are timed, and the search for the first checkpoint that plays well enough.

A preset is trained alone on the machine; afterwards its checkpoints are evaluated in order. Every
function that is a cell's takes the cell, an empty folder for runs (deleted afterwards) and a folder
for logs (kept as an archive), and returns its result.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.lib import process
from benchmarks.lib.ledger import LEDGER, Cell, Ledger, Line, finished
from colobus.core.checkpoint import list_checkpoints
from colobus.core.files import read_lines
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.protocols import Evaluation
from colobus.experiment.presets import preset

RUNS = Path(__file__).resolve().parent.parent / "runs"
"""Runs of cells that another cell needs; not committed."""

EVALUATED_GAMES = 50
"""Full games of an evaluation, and again of its confirmation (the sum of `PARTS`)."""

PARTS = (8, 8, 16, 18)
"""An evaluation's games; after each part a checkpoint may be given up: see `can_reach`."""

BEST = {"breakout": 864.0}
"""The highest score of a game, of Breakout after both walls; of every other game here Pong's 21."""

BENCH_SECONDS = 18.0
"""Of each measurement of the machine's limit, before and after a timed run."""

SCORED_MINUTES = (30, 45, 60, 75)
"""Of Breakout's training, as far as it goes; the newest checkpoint of each is evaluated."""


def train_timed(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Train alone on the machine, between two measurements of its limit; keep checkpoints.

    With a replay buffer no limit is known.
    """
    run = RUNS / cell.name
    shutil.rmtree(run, ignore_errors=True)
    flags = (word for pair in cell.asked["timed"].items() for word in pair)
    words = train_words(cell.preset, cell.seed, run, *flags)
    words += cell.asked.get("switches", ())
    known = not preset(cell.preset)[0].replay.capacity
    before = limit_of(cell.preset) if known else 0.0
    outcome = train(words, run, log)
    after = limit_of(cell.preset) if known else 0.0
    metrics = read_metrics(run)
    last, rate = metrics[-1], steady_rate(metrics)
    found: dict[str, Any] = {
        "command": process.clean(words, RUNS),
        "checkpoints": {  # seconds from the process's start until each was complete on disk
            path.stem: round(path.with_suffix(".json").stat().st_mtime - outcome.began, 2)
            for path in list_checkpoints(run / "checkpoints")
        },
        "run_seconds": round(outcome.seconds, 2),
        "run_steps": last["steps"],
        "steps_per_s": round(rate, 1),
        **megabytes(outcome),
    }
    if known:
        share = round(rate / ((before + after) / 2), 4)
        found |= {"limit_before": before, "limit_after": after, "share_of_limit": share}
    if "updates" in last:
        found["bytes_per_update"] = round(last["moved_bytes"] / max(last["updates"], 1))
    return found


def limit_of(name: str) -> float:
    """Return what this machine allows, in steps/s."""
    return float(process.bench(name, BENCH_SECONDS)["limit_steps_per_s"])


def trained(cell: Cell) -> tuple[Path, Line]:
    """Return the folder of the run that a ``-time`` or ``-score`` cell evaluates, and its line.

    Raises:
        LookupError: if it was not measured on this machine.
    """
    what = cell.what.rpartition("-")[0] + "-train"
    asked = {name: value for name, value in cell.asked.items() if name != "solved"}
    own = replace(cell, what=what, settings=cell.settings | {"what": what, "procedure": asked})
    line, run = finished(Ledger(LEDGER).of(own)), RUNS / own.name
    if line is None:
        raise LookupError(f"{own.name} must be measured first")
    if not run.is_dir():
        raise LookupError(f"{own.name} was trained on another machine: raise ROUND in cells.py")
    return run, line


def time_to_score(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Return when a run's first good checkpoint was saved, and what was found about each.

    A checkpoint is good if fresh games have the wanted mean, and other fresh games again. One whose
    first games are so bad that winning all others could not save it is not played to the end; its
    "games" says so.
    """
    run, line = trained(cell)
    solved, best = cell.asked["solved"], BEST.get(cell.preset, 21.0)
    evaluated, kept, good = list[Line](), list[Line](), False

    def scores_of(agent: Any, confirm: bool) -> list[float]:
        scores = list[float]()
        for part, games in enumerate(PARTS):
            own_seed = evaluation_seed(cell.seed, len(evaluated), confirm, part)
            evaluation = played(agent, "training", games, own_seed)
            kept.append(evaluation.as_dict())
            scores += evaluation.scores
            if not can_reach(solved, scores, EVALUATED_GAMES, best):
                break
        return scores

    try:
        for path in list_checkpoints(run / "checkpoints"):
            agent = load(path)
            first = scores_of(agent, confirm=False)
            about: Line = {"games": len(first), "steps": agent.checkpoint.steps}
            about |= {"seconds": line["result"]["checkpoints"][path.stem], **mean_of(first)}
            if fmean(first) >= solved:
                again = scores_of(agent, confirm=True)
                about |= {f"confirmed_{name}": value for name, value in mean_of(again).items()}
                good = fmean(again) >= solved
            evaluated.append(about)
            if good:
                break
    finally:
        keep_evaluations(kept, log)
    return {
        "solved": good,
        "threshold": solved,
        "seconds_to_solved": evaluated[-1]["seconds"] if good else None,
        "steps_to_solved": evaluated[-1]["steps"] if good else None,
        "evaluated": evaluated,
    }


def mean_of(scores: Sequence[float]) -> dict[str, float]:
    """Return the mean of games, and its standard error."""
    error = stdev(scores) / len(scores) ** 0.5
    return {"mean": round(fmean(scores), 3), "standard_error": round(error, 3)}


def score_after(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Play 50 fresh full games with the newest checkpoint of each of `SCORED_MINUTES`."""
    run, line = trained(cell)
    seconds, kept = line["result"]["checkpoints"], []
    found: dict[str, Any] = {}
    paths = list(enumerate(list_checkpoints(run / "checkpoints")))
    for minutes in SCORED_MINUTES:
        if minutes > float(cell.asked["timed"]["--minutes"]):
            break
        index, path = [one for one in paths if seconds[one[1].stem] <= 60 * minutes][-1]
        own_seed = evaluation_seed(cell.seed, index, confirm=False, part=0)
        kept.append(played(load(path), "training", EVALUATED_GAMES, own_seed).as_dict())
        names = ("steps", "mean", "standard_error", "median", "human_normalised")
        found[str(minutes)] = {name: kept[-1][name] for name in names}
        found[str(minutes)]["seconds"] = seconds[path.stem]
    keep_evaluations(kept, log)
    return {"minutes": found}


def played(agent: Any, protocol: str, games: int, seed: int) -> Evaluation:
    """Play full games with an agent."""
    evaluation = evaluate(agent, protocol, games, seed=seed)
    if evaluation.interrupted:
        raise KeyboardInterrupt
    return evaluation


def keep_evaluations(evaluations: Sequence[Line], log: Path, prefix: str = "") -> None:
    """Write down all that evaluations found."""
    text = "".join(json.dumps(one) + "\n" for one in evaluations)
    (log / f"{prefix}evaluations.jsonl").write_text(text, encoding="utf-8")


def can_reach(threshold: float, scores: Sequence[float], games: int, best: float = 21.0) -> bool:
    """Say whether the mean of ``games`` could reach the threshold after these scores.

    ``best`` is the highest score of a game (Pong: 21).
    """
    return sum(scores) + best * (games - len(scores)) >= threshold * games


def evaluation_seed(seed: int, index: int, confirm: bool, part: int) -> int:
    """Return a seed that no other evaluation uses; those of the command line begin at 1."""
    return 1_000_000 + 10_000 * seed + 10 * index + 5 * confirm + part


def train_words(name: str, seed: int, run: Path, *more: str) -> list[str]:
    """Return the words of a run of a preset that only trains."""
    return ["train", name, "--seed", str(seed), "--out", str(run), "--no-finish", *more]


def train(words: Sequence[str], run: Path, log: Path, prefix: str = "") -> process.Outcome:
    """Run a training; keep its settings, metrics and output under ``log``, whatever happens."""
    output = log / f"{prefix}output.txt"
    try:
        return process.run(words, output)
    finally:
        if output.exists():
            said = output.read_text(encoding="utf-8", errors="replace")
            said = said.replace(str(run.parent), "RUNS")
            said = said.replace(f"{Path(process.COLOBUS).parent}/", "")  # of this machine only
            output.write_text(said, encoding="utf-8")
        for name in ("metrics.jsonl", "config.json", "events.jsonl"):
            if (run / name).exists():
                shutil.copy(run / name, log / f"{prefix}{name}")


def read_metrics(run: Path) -> list[Line]:
    """Return the lines of a run's metrics."""
    return read_lines(run / "metrics.jsonl")


def steady_rate(metrics: Sequence[Line], after: float = 10.0, name: str = "steps") -> float:
    """Return how much a counter grows a second from the first line after so many seconds on.

    Raises:
        ValueError: if there are not two such lines.
    """
    part = [line for line in metrics if line["seconds"] >= after]
    if len(part) < 2:
        raise ValueError(f"{len(part)} metrics lines after {after:g} s: the run was too short")
    first, last = part[0], part[-1]
    return float((last[name] - first[name]) / (last["seconds"] - first["seconds"]))


def megabytes(outcome: process.Outcome) -> dict[str, float]:
    """Return the peak of memory in megabytes (10**6 bytes)."""
    return {"peak_rss_mb": round(outcome.peak_rss / 1e6, 1)}
