"""Searches one recipe for any game, by successive halving with equal budgets.

    python benchmarks/halving.py             go on with the search until Ctrl-C
    python benchmarks/halving.py --most 8    end after so many runs
    python benchmarks/halving.py show        print where it stands

A round has eight candidates. Each trains every game of `GAMES`, alone on the machine, for the
minutes of the first level of `LEVELS`; the best of them go on to the next level, from their
checkpoints where the seed is the same. The first rounds have the candidates of `ROUNDS`; all others
are proposed by Optuna, from what the candidates before have reached.

results/halving.jsonl has every candidate and every finished run with its curve; lines are only ever
added, and what is missing follows from them. So the search can be stopped anywhere: what was
finished stays, and a run that was broken off goes on from its checkpoint (in benchmarks/runs) or is
trained again. Seeds 1 to 5 are not used: they are for measuring only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import candidates
from candidates import ROUNDS, Settings, words_of
from gelada.core.files import read_lines
from gelada.runtime.system import describe_machine
from ledger import RUNS
from process import GELADA
from search import curve
from sections_search import HEAD, rows
from table import markdown
from tried import LEVELS, Run, Search, append, lines, minutes_of

DIVERGED = 4
"""Exit code of a training whose loss diverged."""


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
    """Write down the candidates of the next round: those of `ROUNDS`, filled up by Optuna."""
    if not found.rounds:  # runs of another search have other settings
        for old in RUNS.glob("halving-*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    first, number = len(found.settings), len(found.rounds)
    new = list(ROUNDS[number]) if number < len(ROUNDS) else []
    if more := LEVELS[0].candidates - len(new):
        tried: list[tuple[Settings, dict[int, float]]] = [(settings, {}) for settings in new]
        new += candidates.proposed([*found.tried(), *tried], more)
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


def shown(found: Search) -> list[str]:
    """Return the lines of a table of all runs, and what is next."""
    todo = found.missing()
    after = "a new round follows"
    if todo:
        left = sum(minutes_of(run) for run in todo)
        after = f"{len(todo)} runs, about {left:.0f} minutes, until this level is finished"
    table = markdown(HEAD, rows(found))
    return [*table, "", f"{len(found.runs)} runs are finished; {after}."]


if __name__ == "__main__":
    sys.exit(main())
