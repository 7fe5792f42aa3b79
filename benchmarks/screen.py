"""Which settings of DQN matter? Seven of them at once, in eight combinations.

    python benchmarks/screen.py speed         how fast each combination trains; alone, 9 minutes
    python benchmarks/screen.py qbert         train all combinations on a game
    python benchmarks/screen.py show          scores, and the effect of each setting

The combinations are the rows of a Hadamard matrix of order 8 (Plackett & Burman 1946): each setting
is off in four and on in four, and of those four every other setting is on in two. So the difference
between the means of the two fours is the effect of one setting, with the others on average, and all
eight runs tell of each. What two settings do only together looks like the effect of a third.

Budgets are equal in time and counted in steps: a combination that trains half as fast as the first
gets half of its steps. `speed` measures that, in turn. So a run's result does not depend on the
machine: runs are deterministic, two may run side by side, and beside anything. results/screen.jsonl
has a line for each speed and each run, with its curve; what is there is not run again. Seeds 1 to 5
are not used: they are for measuring only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from candidates import DQN, Settings, words_of
from gelada.core.files import read_lines, read_metrics
from gelada.runtime.system import describe_machine
from ledger import Line
from process import GELADA
from search import curve
from table import markdown
from tried import GAMES, share

FILE = Path(__file__).resolve().parent / "results" / "screen.jsonl"

PLAIN: Settings = DQN | {"values": "histograms"}
"""The best of the search before; what every combination is compared with."""

CHANGES: dict[str, Any] = {
    "lr": 1e-3,
    "capacity": 50_000,
    "learn": 8,
    "munchausen": 0.9,
    "duelling": True,
    "frames": "60 small",
    "predict": True,
}
"""What each setting is where it is on."""

STEPS = 450_000
"""Of the plain form: 2.5 minutes on a machine that plays 3,000 steps a second."""

SEED = 11
ROUNDS, SECONDS, SETTLED = 2, 30.0, 12.0
"""Of `speed`: runs of each combination, how long each is, and after which time steps count."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["show", "speed", *GAMES])
    what = parser.parse_args(args).what
    if what == "speed":
        measure_speeds()
    elif what != "show":
        play(what)
    print("\n".join(shown(lines())))
    return 0


def combinations() -> list[Settings]:
    """Return the settings of each combination; the first is the plain form."""
    two = np.array([[1, 1], [1, -1]])
    matrix = np.kron(np.kron(two, two), two)[:, 1:]  # its first column is the mean
    return [
        PLAIN
        | {name: on for (name, on), sign in zip(CHANGES.items(), row, strict=True) if sign < 0}
        for row in matrix
    ]


def measure_speeds() -> None:
    """Train each combination for half a minute, all in turn, as often as is missing."""
    for number in range(ROUNDS):
        for one, settings in enumerate(combinations()):
            about = {"kind": "speed", "combination": one, "round": number}
            if any(about.items() <= line.items() for line in lines()):
                continue
            _, metrics, _ = train("qbert", settings, ["--minutes", f"{SECONDS / 60:g}"])
            first = next(line for line in metrics if line["seconds"] >= SETTLED)
            last = metrics[-1]
            rate = (last["steps"] - first["steps"]) / (last["seconds"] - first["seconds"])
            save({**about, "settings": settings, "steps_per_s": round(rate, 1)})


def play(game: str) -> None:
    """Train each combination that has not played the game yet."""
    for one, settings in enumerate(combinations()):
        about = {"kind": "run", "combination": one, "game": game, "seed": SEED}
        if any(about.items() <= line.items() for line in lines()):
            continue
        steps = round(STEPS * pace(lines(), one))
        length = ["--steps", str(steps), "--deterministic"]
        command, metrics, points = train(game, settings, length)
        last = metrics[-1]
        found = {"score": last["score"], "steps": last["steps"], "seconds": last["seconds"]}
        save({**about, "settings": settings, "command": command, **found, "curve": points})


def train(
    game: str, settings: Settings, length: Sequence[str]
) -> tuple[str, list[Line], list[Line]]:
    """Train; return the command, all lines of metrics, and those of them that are kept.

    Raises:
        SystemExit: if the training ends with an error.
    """
    family, words = words_of(settings)
    given = [family + game, "--seed", str(SEED), *words, *length]
    with tempfile.TemporaryDirectory() as scratch:
        run, output = Path(scratch) / "run", Path(scratch) / "output"
        more = ["--no-finish", "--no-tensorboard", "--checkpoint-seconds", "1e6"]
        with output.open("wb") as file:
            code = subprocess.run(
                [GELADA, "train", *given, *more, "--out", str(run)], stdout=file, stderr=file
            ).returncode
        if code:
            raise SystemExit(f"{' '.join(given)}: exit code {code}: {output.read_text()[-500:]}")
        return f"gelada train {' '.join(given)}", read_metrics(run), curve(run / "metrics.jsonl")


def pace(found: Iterable[Line], combination: int) -> float:
    """Return how fast a combination is beside the first, the median over the rounds.

    Raises:
        SystemExit: if no speed has been measured.
    """
    speeds: dict[tuple[int, int], float] = {
        (line["round"], line["combination"]): line["steps_per_s"]
        for line in found
        if line["kind"] == "speed"
    }
    ratios = [
        rate / speeds[number, 0] for (number, one), rate in speeds.items() if one == combination
    ]
    if not ratios:
        raise SystemExit("first: python benchmarks/screen.py speed")
    return median(ratios)


def effects(values: dict[int, float]) -> dict[str, float]:
    """Return the effect of each setting: the mean of the runs where it is on, less the others'.

    Args:
        values: of each combination.
    """
    rows = combinations()
    on = {name: [row[name] == value for row in rows] for name, value in CHANGES.items()}
    return {
        name: fmean(values[one] for one, is_on in enumerate(marks) if is_on)
        - fmean(values[one] for one, is_on in enumerate(marks) if not is_on)
        for name, marks in on.items()
    }


def shown(found: list[Line]) -> list[str]:
    """Return a table of the scores and, of games that all have played, one of the effects."""
    rows = combinations()
    runs = {(line["combination"], line["game"]): line for line in found if line["kind"] == "run"}
    games = [game for game in GAMES if any(played == game for _, played in runs)]
    quick = {line["combination"] for line in found if line["kind"] == "speed"}
    table = [
        (
            str(one),
            *(f"{runs[one, game]['score']:,.0f}" if (one, game) in runs else "" for game in games),
            f"{pace(found, one):.2f}" if one in quick else "",
            ", ".join(f"{n} {row[n]}" for n in CHANGES if row[n] != PLAIN[n]) or "plain",
        )
        for one, row in enumerate(rows)
    ]
    whole = [game for game in games if all((one, game) in runs for one in range(len(rows)))]
    shares = {
        game: {one: share(game, runs[one, game]["score"]) for one in range(len(rows))}
        for game in whole
    }
    each = {game: effects(values) for game, values in shares.items()}
    told = [
        (
            f"{name} {value}",
            *(f"{each[game][name]:+.3f}" for game in whole),
            f"{fmean(each[game][name] for game in whole):+.3f}",
        )
        for name, value in CHANGES.items()
        if whole
    ]
    head = ("effect on the share", *whole, "mean")
    return [
        *markdown(("", *games, "pace", "what is on"), table),
        *(["", *markdown(head, told)] if told else []),
    ]


def lines() -> list[Line]:
    """Return the lines of the file."""
    return read_lines(FILE) if FILE.exists() else []


def save(line: Line) -> None:
    """Append a line; two processes may do so at a time."""
    line |= {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
    }
    with FILE.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
