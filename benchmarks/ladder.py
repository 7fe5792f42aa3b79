"""The ladder: what each part of APPO adds to IMPALA, with the same tuning for every part.

A *rung* is a preset with some flags. Each is tuned on Pong by the same draws from one grid
(`TRIES`), on seeds 11 and 12: the best mean of the last 50 training games after `TRIED` steps
decides. With the settings found, each rung then plays Pong and Breakout with the seeds of `SEEDS`,
which no try has used. Nothing is tuned on Breakout.

All runs are deterministic and end by steps. So no result depends on the machine or on what else it
does, and two may be measured side by side, with seeds of their own. What a part costs is told in
processor time, which depends least on that. Every try and every run is a cell of its own, so
measuring can stop after any of them:

    python benchmarks/run.py --only ladder              all, the first rungs first
    python benchmarks/run.py --only ladder-tune         only the tries
    python benchmarks/run.py --only ladder --seeds 1    one run of each, once its tries are there

On two cores a try takes one to four minutes, alone; a run on Pong five to fifteen.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import process
from gelada.core.checkpoint import list_checkpoints
from ledger import LEDGER, Cell, Ledger, Line, result_of
from timed import Timed, evaluation_seed, pairs, read_metrics, settings, train, train_words

SEEDS = (1, 2, 3)
"""Of the runs that count; the tries have seeds from `FIRST_SEED` up."""

FIRST_SEED, TRY_SEEDS = 11, 4

TRIED = 250_000
"""Steps of a try."""

RATES = ("0.0005", "0.001", "0.002", "0.004")
ENTROPIES = ("0.005", "0.01")
LENGTHS = ("32", "64", "128")

Draw = tuple[str, ...]
"""Flags of one point of the grid."""


def draws() -> tuple[Draw, ...]:
    """Return points of the grid: two for each learning rate."""
    chance = random.Random(FIRST_SEED)
    others = list(product(ENTROPIES, LENGTHS))
    return tuple(
        ("--lr", rate, "--entropy", entropy, "--entropy-end", entropy, "--length", length)
        for rate in RATES
        for entropy, length in chance.sample(others, 2)
    )


DRAWS = draws()

TRIES = (0, 1, 4, 5)
"""The draws that every rung tries: those with seeds 11 and 12, of learning rates 0.0005 and 0.002
and with an entropy weight of 0.01. Eight were planned. When IMPALA had had all of them (its best is
among these four) and others these four, the rest was left out, because two cores would have taken
too long."""


@dataclass(frozen=True)
class Rung:
    """What is compared."""

    label: str
    family: str  # first word of its preset's name
    flags: tuple[str, ...] = ()
    tuned: bool = True  # else it has the settings of its preset

    def preset(self, game: str) -> str:
        """Return the name of its preset for a game."""
        return f"{self.family}-{game}"


PPO = ("--policy-loss", "clip", "--normalise", "--epochs", "3", "--buffer-batches", "2")
REPLAY = (*PPO, "--replay-proportion", "0.5")

RUNGS = {
    "impala": Rung("IMPALA", "impala"),
    "ppo": Rung("+ PPO's loss, 3 epochs over two rounds", "impala", PPO),
    "replay": Rung("+ one old window for two fresh ones", "impala", REPLAY),
    "predict": Rung("+ autoencoder: `predict`", "impala", (*REPLAY, "--autoencoder", "predict")),
    "auxiliary": Rung(
        "+ autoencoder: `auxiliary`", "impala", (*REPLAY, "--autoencoder", "auxiliary")
    ),
    "latent": Rung("+ autoencoder: `latent`", "impala", (*REPLAY, "--autoencoder", "latent")),
    "impact": Rung("IMPACT", "impact"),
    "appo": Rung("`appo`: replay, target policy, KL term", "appo"),
    "default": Rung("`ppo`, not tuned here", "ppo", tuned=False),
    "lstm": Rung(
        "the same with one frame and an LSTM",
        "ppo",
        ("--stack", "1", "--recurrent", "lstm", "--steps", "1500000"),
        tuned=False,
    ),
}
"""In the order of the tables. The forms of the autoencoder are added one at a time; IMPACT and what
follows stand beside the ladder."""


@dataclass(frozen=True)
class Course:
    """A game that the tuned rungs play."""

    game: str
    flags: dict[str, str]
    solved: float | None = None  # mean score of 50 training games that is looked for
    rungs: tuple[str, ...] = tuple(RUNGS)


PONG = Course("pong", {"--until-score": "18", "--steps": "1000000"}, solved=18.0)
BREAKOUT = Course(
    "breakout",
    {"--steps": "800000"},
    rungs=tuple(name for name in RUNGS if name != "lstm"),
)


@dataclass(frozen=True)
class Ladder:
    """The tries and runs of all rungs."""

    game: str = "pong"  # on which the rungs are tuned
    steps: int = TRIED
    draws: dict[int, Draw] = field(default_factory=lambda: {n: DRAWS[n] for n in TRIES})
    courses: tuple[Course, ...] = (PONG, BREAKOUT)
    rungs: dict[str, Rung] = field(default_factory=lambda: RUNGS)
    seeds: tuple[int, ...] = SEEDS
    episodes: int = 50  # of the evaluation at the end of a run

    def cells(self) -> list[Cell]:
        """Return every cell, in the order in which they are measured.

        What needs no tuning comes first. Then each rung is tuned and measured once, before anything
        is repeated with another seed.
        """
        first, *others = self.courses
        names = sorted(self.rungs, key=lambda name: self.rungs[name].tuned)
        cells: list[Cell] = []
        for name in names:
            tried = self.draws if self.rungs[name].tuned else ()
            cells += [self.try_cell(name, number) for number in tried]
            cells.append(self.run_cell(name, first, self.seeds[0]))
        for seed in self.seeds[1:]:
            cells += [self.run_cell(name, first, seed) for name in names]
        for course, seed in product(others, self.seeds):
            own = (name for name in names if name in course.rungs)
            cells += [self.run_cell(name, course, seed) for name in own]
        return cells

    def try_cell(self, name: str, number: int) -> Cell:
        """Return the cell of one try."""
        seed = FIRST_SEED + number % TRY_SEEDS
        own = {"steps": self.steps, "draw": self.draws[number], "number": number}
        about = self._settings("ladder-tune", name, self.game, own)
        return Cell("ladder-tune", seed, about, self.try_draw)

    def run_cell(self, name: str, course: Course, seed: int) -> Cell:
        """Return the cell of a run that counts."""
        own: dict[str, Any] = {"flags": course.flags, "solved": course.solved}
        own["deterministic"] = True
        own |= {"tried": [self.game, self.steps, *self.draws.values()], "episodes": self.episodes}
        what = f"ladder-{course.game}"
        return Cell(what, seed, self._settings(what, name, course.game, own), self.play)

    def _settings(self, what: str, name: str, game: str, own: dict[str, Any]) -> dict[str, Any]:
        rung = self.rungs[name]
        return settings(what, rung.preset(game), rung=name, game=game, changed=rung.flags, **own)

    def try_draw(self, cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
        """Train with one draw; a run whose loss diverges has no score."""
        asked, run = cell.settings["procedure"], scratch / "run"
        rung = self.rungs[asked["rung"]]
        words = train_words(rung.preset(self.game), cell.seed, run, *rung.flags, *asked["draw"])
        words += ["--steps", str(self.steps), "--deterministic", "--checkpoint-seconds", "1e6"]
        about = {
            "rung": asked["rung"],
            "number": asked["number"],
            "command": process.clean(words, scratch),
        }
        try:
            outcome = train(words, run, log)
        except RuntimeError as error:
            if "diverged" not in str(error):
                raise
            return about | {"score": None, "steps": 0, "diverged": str(error)}
        last = read_metrics(run)[-1]
        found = {"score": last["score"], "steps": last["steps"]}
        return about | found | {"run_seconds": round(outcome.seconds, 2)}

    def best(self, name: str, lines: Iterable[Line]) -> Draw:
        """Return the draw with the highest score, of equal ones that with the fewest steps.

        Raises:
            LookupError: if a try of the rung is missing, or none has a score.
        """
        lines = list(lines)
        found: list[tuple[float, int, int, Draw]] = []
        for number, draw in self.draws.items():
            result = result_of(self.try_cell(name, number), lines)
            if result is None:
                raise LookupError(f"ladder-tune must be measured first: {name}, draw {number}")
            if result["score"] is not None:
                found.append((result["score"], -result["steps"], -number, draw))
        if not found:
            raise LookupError(f"{name}: no try has a score")
        return max(found)[-1]

    def play(self, cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
        """Train with the best draw; evaluate the last checkpoint in fresh full games."""
        asked, run = cell.settings["procedure"], scratch / "run"
        rung, lines = self.rungs[asked["rung"]], Ledger(LEDGER).lines()
        draw = self.best(asked["rung"], lines) if rung.tuned else ()
        flags = (*pairs(asked["flags"]), *rung.flags, *draw, "--deterministic")
        words = train_words(rung.preset(asked["game"]), cell.seed, run, *flags)
        outcome = train(words, run, log)
        metrics = read_metrics(run)
        return {
            "rung": asked["rung"],
            "chosen": list(draw),
            "command": process.clean(words, scratch),
            **reached(metrics, asked["solved"]),
            **evaluated(run, cell.seed, asked["episodes"]),
            "run_steps": metrics[-1]["steps"],
            "run_seconds": round(outcome.seconds, 2),
            "processor_ms": round(1000 * outcome.processor / metrics[-1]["steps"], 4),
        }


LADDER = Ladder()

HEADLINE = Timed(
    "appo-pong",
    "appo",
    {
        "--checkpoint-seconds": "10",
        "--keep-checkpoints": "0",
        "--until-score": "19.5",  # over training games: the checkpoint looked for is earlier
        "--steps": "3000000",
        "--minutes": "8",
        # the best try of `appo`, which `--only ladder-tune` found
        "--lr": "0.002",
        "--entropy": "0.01",
        "--entropy-end": "0.01",
        "--length": "64",
    },
)
"""Row R23 of docs/appo.md: old windows, a target policy and a KL term, timed as other presets."""

HEADLINE_SEEDS = (1, 2)


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    timed = [HEADLINE.train_cell(seed) for seed in HEADLINE_SEEDS]
    timed += [HEADLINE.time_cell(seed) for seed in HEADLINE_SEEDS]
    return [*LADDER.cells(), *timed]


def reached(metrics: list[Line], solved: float | None) -> dict[str, Any]:
    """Return after which steps the training games had that mean; {} if nothing is looked for."""
    if solved is None:
        return {}
    first = next((x for x in metrics if x["score"] is not None and x["score"] >= solved), None)
    return {"steps_to_solved": first and first["steps"]}


def evaluated(run: Path, seed: int, episodes: int) -> dict[str, float]:
    """Return the mean of full games of a run's last checkpoint, with its standard error."""
    from gelada.evaluation.agent import load
    from gelada.evaluation.evaluator import evaluate

    agent = load(list_checkpoints(run / "checkpoints")[-1])
    own_seed = evaluation_seed(seed, 0, confirm=False, part=0)
    evaluation = evaluate(agent, "training", episodes, seed=own_seed)
    if evaluation.interrupted:
        raise KeyboardInterrupt
    return {
        "score": round(evaluation.mean, 3),
        "standard_error": round(evaluation.standard_error, 3),
    }
