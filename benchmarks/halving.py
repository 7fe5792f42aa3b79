"""Searches one recipe for any game, by successive halving with equal budgets.

    python benchmarks/halving.py             go on with the search until Ctrl-C
    python benchmarks/halving.py --most 8    end after so many runs
    python benchmarks/halving.py show        print where it stands

A round has eight candidates. Each trains every game of `GAMES`, alone on the machine, for the
minutes of the first level of `LEVELS`; the best of them go on to the next level, from their
checkpoints where the seed is the same. The first rounds are those of `ROUNDS`; later ones are
proposed by Optuna, from what all candidates before have reached.

A score is the mean of the last 50 training games. It counts as a share: 0 is random play, 1 the
best public curve at 6 million frames (`gelada.page.report.public`), which is where ten minutes on
two cores come to. A candidate's value is the mean of its games' shares.

results/halving.jsonl has every candidate and every finished run with its curve; lines are only ever
added, and what is missing follows from them. So the search can be stopped anywhere: what was
finished stays, and a run that was broken off goes on from its checkpoint (in benchmarks/runs) or is
trained again. Seeds 1 to 5 are not used: they are for measuring only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import candidates
from candidates import ROUNDS, Settings, words_of
from gelada.core.files import read_lines
from gelada.evaluation.scores import normalised, published
from gelada.page.report.public import public_curves
from gelada.runtime.system import describe_machine
from ledger import RUNS, Line
from process import GELADA
from search import curve
from table import markdown

FILE = Path(__file__).resolve().parent / "results" / "halving.jsonl"

GAMES = ("qbert", "space_invaders", "freeway", "seaquest")
"""Of the six games those in which recipes differ most. The first two weigh most in the
interquartile mean of all six, so they are played first."""

FRAMES = 6_000_000


class Level(NamedTuple):
    """A level of a round."""

    minutes: float  # of training of each game
    seed: int
    candidates: int  # that reach it


LEVELS = (Level(2.5, 11, 8), Level(10.0, 11, 3), Level(10.0, 12, 1))
"""The last level plays the best candidate with another seed: what was chosen for one seed looks
better on it than it is."""

BEFORE = 1
"""The level whose values Optuna learns from, where a candidate has reached it."""


DIVERGED = 4
"""Exit code of a training whose loss diverged."""


class Run(NamedTuple):
    """A run of the search."""

    candidate: int
    game: str
    level: int


class Search:
    """What the file says.

    Args:
        lines: of the file, oldest first.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self.settings: dict[int, Settings] = {}
        self.rounds: list[list[int]] = []  # candidates of each
        self.runs: dict[Run, Line] = {}
        for line in lines:
            if line["kind"] == "candidate":
                number = int(line["candidate"])
                self.settings[number] = line["settings"]
                self.rounds += [[] for _ in range(line["round"] + 1 - len(self.rounds))]
                self.rounds[line["round"]].append(number)
            else:
                run = Run(line["candidate"], line["game"], line["level"])
                self.runs.setdefault(run, line)  # the first result counts

    def value(self, candidate: int, level: int) -> float | None:
        """Return the mean share of a candidate's games at a level; None if one is missing."""
        own = [self.runs.get(Run(candidate, game, level)) for game in GAMES]
        found = [share(line["game"], line["score"]) for line in own if line is not None]
        return fmean(found) if len(found) == len(GAMES) else None

    def reaching(self, level: int) -> list[int]:
        """Return the candidates of the newest round that play at a level, the best ones first.

        It is empty as long as the level before is not finished.
        """
        if level == 0:
            return list(self.rounds[-1]) if self.rounds else []
        values = {one: self.value(one, level - 1) for one in self.reaching(level - 1)}
        known = {one: value for one, value in values.items() if value is not None}
        if not known or len(known) < len(values):
            return []
        return sorted(known, key=lambda one: (-known[one], one))[: LEVELS[level].candidates]

    def missing(self) -> list[Run]:
        """Return the runs of the level that is being played, in their order; [] after a round."""
        for level in range(len(LEVELS)):
            own = self.reaching(level)
            runs = [Run(one, game, level) for game in GAMES for one in own]
            if todo := [run for run in runs if run not in self.runs]:
                return todo
        return []

    def tried(self) -> list[tuple[Settings, dict[int, float]]]:
        """Return the settings of all candidates, with their values by level."""
        found = []
        for number, settings in self.settings.items():
            values = {level: self.value(number, level) for level in range(BEFORE + 1)}
            found.append((settings, {k: v for k, v in values.items() if v is not None}))
        return found


def share(game: str, score: float | None) -> float:
    """Return a score as a share: 0 is random play, 1 the best public curve at 6 M frames.

    A run without a score (its loss diverged, or no game ended) counts as random play.
    """
    low = published(game, "random")
    assert low is not None
    if score is None:
        return 0.0
    best = max(one.points[FRAMES] for one in public_curves(game) if FRAMES in one.points)
    return (score - low) / (best - low)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["search", "show"], default="search")
    parser.add_argument("--most", type=int, help="end after so many runs")
    flags = parser.parse_args(args)
    stopped = False
    if flags.what == "search":
        try:
            search(flags.most)
        except KeyboardInterrupt:
            stopped = True
    print("\n".join(shown(Search(lines()))))
    return 130 if stopped else 0


def search(most: int | None) -> None:
    """Play what is missing, round after round, until ``most`` runs are finished."""
    for number in count(1):
        if most is not None and number > most:
            return
        found = Search(lines())
        todo = found.missing()
        if not todo:
            begin_round(found)
            todo = Search(lines()).missing()
        run = todo[0]
        level = LEVELS[run.level]
        print(
            f"candidate {run.candidate}, {run.game}, {level.minutes:g} minutes, seed {level.seed} "
            f"({len(todo)} runs are missing at this level)",
            flush=True,
        )
        play(run, Search(lines()).settings[run.candidate])


def begin_round(found: Search) -> None:
    """Write down the candidates of the next round."""
    if not found.rounds:  # runs of another search have other settings
        for old in RUNS.glob("halving-*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    many = LEVELS[0].candidates
    first, number = len(found.settings), len(found.rounds)
    new = ROUNDS[number] if number < len(ROUNDS) else candidates.proposed(found.tried(), many)
    append(
        *(
            {"kind": "candidate", "candidate": first + i, "round": number, "settings": settings}
            for i, settings in enumerate(new)
        )
    )


def play(run: Run, settings: Settings) -> None:
    """Train, and write down the score and the curve."""
    level = LEVELS[run.level]
    folder = RUNS / f"halving-{run.candidate}-{run.game}-{level.seed}"
    family, words = words_of(settings)
    given = [family + run.game, "--seed", str(level.seed), *words]
    load = round(os.getloadavg()[0], 2)
    trouble = train(folder, given, level.minutes)
    metrics = read_lines(folder / "metrics.jsonl") if not trouble else []
    last = metrics[-1] if metrics else {"score": None, "steps": 0, "seconds": 0.0}
    append(
        {
            "kind": "run",
            **run._asdict(),
            "seed": level.seed,
            "minutes": level.minutes,
            "command": f"gelada train {' '.join(given)} --minutes {level.minutes:g}",
            "score": last["score"],
            "steps": last["steps"],
            "seconds": last["seconds"],
            "trouble": trouble,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "load": load,
            "machine": describe_machine(),
            "curve": curve(folder / "metrics.jsonl"),
        }
    )


def train(folder: Path, given: list[str], minutes: float) -> str:
    """Train up to so many minutes in all; go on where a run was broken off or at a level before.

    Returns:
        How the loss diverged, or "". Any other failure is no property of a candidate and ends the
        search.
    """
    length = ["--minutes", f"{minutes:g}", "--steps", "1000000000", "--no-finish"]
    if any((folder / "checkpoints").glob("*.safetensors")):
        words = ["--resume", str(folder)]
    else:
        shutil.rmtree(folder, ignore_errors=True)
        words = [*given, "--out", str(folder)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    output = folder.with_suffix(".txt")
    with output.open("wb") as file:
        process = subprocess.Popen(
            [GELADA, "train", *words, *length], stdout=file, stderr=subprocess.STDOUT
        )
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.wait()  # it has got the signal too, and saves
            raise
    said = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    if code in (130, 143):
        raise KeyboardInterrupt
    if code not in (0, DIVERGED):
        raise SystemExit(f"{' '.join(given)}: exit code {code}: {''.join(said)}")
    return "".join(said) if code else ""


def lines() -> list[Line]:
    """Return the lines of the file; a line that was cut off is left out."""
    return read_lines(FILE) if FILE.exists() else []


def append(*new: Line) -> None:
    """Add lines in one write and flush them to the disk."""
    whole = not FILE.exists() or FILE.read_bytes()[-1:] in (b"", b"\n")
    with FILE.open("a", encoding="utf-8") as file:
        file.write(("" if whole else "\n") + "".join(json.dumps(line) + "\n" for line in new))
        file.flush()
        os.fsync(file.fileno())


def shown(found: Search) -> list[str]:
    """Return the lines of a table: the highest level first, and in it the best candidate."""
    rows = []
    for level in reversed(range(len(LEVELS))):
        own = []
        for number in found.settings:
            scores = {g: found.runs[r] for g in GAMES if (r := Run(number, g, level)) in found.runs}
            if scores:
                shares = [share(game, line["score"]) for game, line in scores.items()]
                own.append((len(shares), fmean(shares), number, scores))
        own.sort(key=lambda one: (-one[0], -one[1]))
        rows += [row_of(found, level, *one) for one in own]
    head = ("candidate", "minutes, seed", *GAMES, "value", "IQM", "settings")
    todo = found.missing()
    left = sum(minutes_of(run) for run in todo)
    after = "a new round follows"
    if todo:
        after = f"{len(todo)} runs, about {left:.0f} minutes, until this level is finished"
    return [*markdown(head, rows), "", f"{len(found.runs)} runs are finished; {after}."]


def minutes_of(run: Run) -> float:
    """Return the minutes that a run takes: less than its level's if it goes on with one before."""
    level = LEVELS[run.level]
    before = [one.minutes for one in LEVELS[: run.level] if one.seed == level.seed]
    return level.minutes - max(before, default=0.0)


def row_of(
    found: Search, level: int, games: int, value: float, number: int, scores: dict[str, Line]
) -> list[str]:
    """Return a candidate's row at a level."""
    cells = []
    for game in GAMES:
        score = scores[game]["score"] if game in scores else None
        cells.append("" if game not in scores else "none" if score is None else f"{score:,.1f}")
    whole = games == len(GAMES)
    return [
        str(number),
        f"{LEVELS[level].minutes:g}, {LEVELS[level].seed}",
        *cells,
        f"{value:.3f}" if whole else f"({value:.3f})",
        f"{estimated({game: scores[game]['score'] for game in GAMES}):.3f}" if whole else "",
        ", ".join(f"{name} {setting}" for name, setting in found.settings[number].items()),
    ]


WEIGHTS = {"qbert": 3, "space_invaders": 3, "freeway": 2, "seaquest": 2}
"""How many runs of each game the interquartile mean over six games and three seeds takes, if all of
Boxing are above these and all of Beam Rider below: of 18 runs the middle ten count."""


def estimated(scores: dict[str, float | None]) -> float:
    """Return the interquartile mean of human-normalised scores that the six games would have."""
    total = 0.0
    for game, score in scores.items():
        percent = 0.0 if score is None else normalised(score, game)
        assert percent is not None
        total += WEIGHTS[game] * percent / 100
    return total / sum(WEIGHTS.values())


if __name__ == "__main__":
    sys.exit(main())
