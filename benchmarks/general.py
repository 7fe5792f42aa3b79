"""What is measured for any game: Breakout for an hour, six games by PPO, shares of the limit."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import process
from games import Games
from gelada.core.checkpoint import list_checkpoints
from ledger import LEDGER, RUNS, Cell, Ledger, Line, finished, steady_rate
from timed import (
    EVALUATED_GAMES,
    evaluation_seed,
    megabytes,
    pairs,
    read_metrics,
    settings,
    time_of,
    train,
    train_words,
)

BREAKOUT = "breakout"
HOUR = {"--minutes": "75", "--checkpoint-seconds": "300", "--keep-checkpoints": "0"}
MINUTES = (30, 45, 60, 75)
"""Of Breakout's training; the newest checkpoint of each is evaluated."""

SOLVED = 300.0
"""Mean score of fresh games of Breakout that is looked for."""

BEST = 864.0
"""The highest score of a game of Breakout: both walls are cleared."""

SIX = Games("general-games", "ppo-breakout")
"""The default of version 0.1."""

NATURE = ("--torso", "nature", "--width", "512", "--size", "84")
LIMITS = {
    "Pong, the recipe": ("pong",),
    "Breakout, the recipe": (BREAKOUT,),
    "Pong, Nature network, 84x84": ("pong", *NATURE),
    "Breakout, Nature network, 84x84": ("ppo-breakout", *NATURE),
}
LIMIT_SECONDS = 60.0
"""Of `gelada bench`."""

ROUNDS = 3


def instead(line: str) -> tuple[str, ...]:
    """Return the words that start gelada after a line of Python."""
    modules = "import sys, gelada.runtime.system"
    main = "from gelada.cli.main import main; sys.exit(main())"
    return (sys.executable, "-c", f"{modules}; {line}; {main}")


AS_IT_IS = "as it is"
PROGRAMS = {
    AS_IT_IS: (process.GELADA,),
    "actors no nicer than learners": instead("gelada.runtime.system.ACTORS = 0"),
    "freed memory goes back to the system": instead("gelada.runtime.system.KEPT = ()"),
}
CHOSEN = {"Pong, the recipe": (), "Pong, Nature network, 84x84": NATURE}
CHOICE_MINUTES = "0.75"


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    return [
        limit_cell(),
        choices_cell(),
        train_cell(),
        score_cell(),
        time_cell(),
        *SIX.cells(),
    ]


def limit_cell() -> Cell:
    """Return the cell of the shares of the machine's limit."""
    shares = settings("general-limit", BREAKOUT, of=LIMITS, seconds=LIMIT_SECONDS, rounds=ROUNDS)
    return Cell("general-limit", 1, shares, share_of_limits)


def choices_cell() -> Cell:
    """Return the cell of what single choices gain in a training."""
    procedure = {"of": CHOSEN, "instead": list(PROGRAMS), "minutes": CHOICE_MINUTES}
    return Cell("choices", 1, settings("choices", "pong", **procedure, rounds=ROUNDS), choices)


def train_cell() -> Cell:
    """Return the cell of Breakout's long run."""
    return Cell("breakout-train", 1, settings("breakout-train", BREAKOUT, timed=HOUR), learn)


def score_cell() -> Cell:
    """Return the cell of its evaluations."""
    return Cell("breakout-score", 1, settings("breakout-score", BREAKOUT, timed=HOUR), score)


def time_cell() -> Cell:
    """Return the cell that looks for its first checkpoint with a mean of `SOLVED`."""
    own = settings("breakout-time", BREAKOUT, timed=HOUR, solved=SOLVED)
    return Cell("breakout-time", 1, own, time)


def learn(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Train alone on the machine, and keep the checkpoints."""
    run = RUNS / cell.name
    shutil.rmtree(run, ignore_errors=True)
    words = train_words(BREAKOUT, cell.seed, run, *pairs(HOUR))
    outcome = train(words, run, log)
    return {
        "command": process.clean(words, RUNS),
        "checkpoints": {
            path.stem: round(path.with_suffix(".json").stat().st_mtime - outcome.began, 2)
            for path in list_checkpoints(run / "checkpoints")
        },
        "run_seconds": round(outcome.seconds, 2),
        **megabytes(outcome),
    }


def trained() -> tuple[Path, Line]:
    """Return the folder of Breakout's long run, and its line."""
    cell = train_cell()
    line = finished(Ledger(LEDGER).of(cell))
    if line is None or not (RUNS / cell.name).is_dir():
        raise LookupError(f"{cell.name} must be measured first, on this machine")
    return RUNS / cell.name, line


def time(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Look for the first checkpoint whose fresh games have a mean of `SOLVED`, twice."""
    run, line = trained()
    return time_of(cell, run, line, log, SOLVED, BEST)


def score(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Play 50 fresh full games with the newest checkpoint of each of `MINUTES`."""
    from gelada.evaluation.agent import load
    from gelada.evaluation.evaluator import evaluate

    run, line = trained()
    seconds, kept = line["result"]["checkpoints"], []
    found: dict[str, Any] = {}
    for minutes in MINUTES:
        paths = list_checkpoints(run / "checkpoints")
        index, path = [(i, p) for i, p in enumerate(paths) if seconds[p.stem] <= 60 * minutes][-1]
        own_seed = evaluation_seed(cell.seed, index, confirm=False, part=0)
        evaluation = evaluate(load(path), "training", EVALUATED_GAMES, seed=own_seed)
        if evaluation.interrupted:
            raise KeyboardInterrupt
        kept.append(evaluation.as_dict())
        names = ("steps", "mean", "standard_error", "median", "human_normalised")
        found[str(minutes)] = {name: kept[-1][name] for name in names}
        found[str(minutes)]["seconds"] = seconds[path.stem]
    text = "".join(json.dumps(one) + "\n" for one in kept)
    (log / "evaluations.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return {"minutes": found}


def share_of_limits(_cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Measure the share of the machine's limit, all settings in turn."""
    rates: dict[str, list[dict[str, Any]]] = {name: [] for name in LIMITS}
    for _ in range(ROUNDS):
        for name, words in LIMITS.items():
            rates[name].append(process.bench(words[0], LIMIT_SECONDS, *words[1:]))
    (log / "bench.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    kept = {
        "shares": "share_of_limit",
        "steps_per_s": "achieved_steps_per_s",
        "limit_of_processes": "limit_steps_per_s",
    }
    return {
        "commands": [f"gelada bench {' '.join(words)}" for words in LIMITS.values()],
        **{
            to: {name: [one[of] for one in own] for name, own in rates.items()}
            for to, of in kept.items()
        },
    }


def choices(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train with and without each choice in turn; compare the medians."""
    rates: dict[str, dict[str, list[float]]] = {of: {} for of in CHOSEN}
    for turn, (place, of), (number, name) in product(
        range(ROUNDS), enumerate(CHOSEN), enumerate(PROGRAMS)
    ):
        kind = f"{place + 1}-{number}-{turn + 1}"
        run = scratch / kind
        words = train_words("pong", cell.seed, run, "--minutes", CHOICE_MINUTES, *CHOSEN[of])
        train(words, run, log, f"{kind}-", PROGRAMS[name])
        rates[of].setdefault(name, []).append(round(steady_rate(read_metrics(run)), 1))
    gains = {
        of: {
            name: round(median(own[AS_IT_IS]) / median(without), 3)
            for name, without in own.items()
            if name != AS_IT_IS
        }
        for of, own in rates.items()
    }
    return {"steps_per_s": rates, "gain": gains}
