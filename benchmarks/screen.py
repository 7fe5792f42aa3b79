"""Which settings of DQN matter? Six of them at once, in eight combinations.

    python benchmarks/screen.py qbert              train all combinations on a game
    python benchmarks/screen.py qbert --again 6    train one of them with another seed
    python benchmarks/screen.py qbert --again "6, torso pooled"
    python benchmarks/screen.py show               scores, and the effect of each setting

The combinations are the rows of a Hadamard matrix of order 8 (Plackett & Burman 1946): each setting
is off in four and on in four, and of those four every other setting is on in two. So the difference
between the means of the two fours is the effect of one setting, with the others on average, and all
eight runs tell of each. What two settings do only together looks like the effect of a third. The
matrix has room for a seventh setting. None is there, so its effect is chance: it says how large an
effect must be to mean anything.

Then each of `OTHERS` plays too, changes that are no column of the matrix.

No setting costs much time, so budgets are equal steps. A run's result does not depend on the
machine: runs are deterministic, and two may run side by side and beside anything.
results/screen.jsonl has a line for each run with its curve; what is there is not run again. Seeds 1
to 5 are not used: they are for measuring only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from candidates import DQN, Settings, words_of
from gelada.core.files import read_lines, read_metrics
from gelada.runtime.system import describe_machine
from ledger import Line
from process import GELADA
from search import curve
from sections_search import words
from table import markdown
from tried import GAMES, share

FILE = Path(__file__).resolve().parent / "results" / "screen.jsonl"

PLAIN: Settings = DQN | {"values": "histograms"}
"""The best of the search before; what every combination is compared with."""

CHANGES: dict[str, Any] = {
    "lr": 1e-3,
    "capacity": 50_000,
    "munchausen": 0.9,
    "duelling": True,
    "gamma": "0.97 to 0.995",
    "lam": "0.7",
}
"""What each setting is where it is on."""

CHANCE = "nothing (chance)"
"""The name of the seventh column, which nothing depends on."""

Row = tuple[str, ...]

BEST = PLAIN | {name: CHANGES[name] for name in CHANGES if name not in ("lr", "lam")}
"""The best combination, number 6."""

OTHERS: dict[str, Settings] = {
    "munchausen 0.9, gamma 0.97 to 0.995": PLAIN
    | {name: CHANGES[name] for name in ("munchausen", "gamma")},
    "6, torso pooled": BEST | {"frames": "42 pooled"},
    "6, torso pooled, munchausen 0 to 0.9": BEST
    | {"frames": "42 pooled", "munchausen": "0 to 0.9"},
}
"""Other changes: of the settings of the best combination only the two that gained; the best
combination with another torso; and with that torso and a rising weight of Munchausen's term."""

STEPS = 400_000

LATE = 0.75
"""The score of a run is the mean of its scores from this share of its steps on."""

SEED, ANOTHER = 11, 12
"""Of all runs, and of those of `--again`: the best of eight looks better than it is."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["show", *GAMES])
    parser.add_argument("--again", choices=[*map(str, range(len(signs()))), *OTHERS])
    flags = parser.parse_args(args)
    if flags.what != "show":
        play(flags.what, flags.again)
    print("\n".join(shown(lines())))
    return 0


def signs() -> list[dict[str, bool]]:
    """Return which settings are on in each combination; in the first none is."""
    two = np.array([[1, 1], [1, -1]])
    matrix = np.kron(np.kron(two, two), two)[:, 1:]  # its first column is the mean
    names = (*CHANGES, CHANCE)
    return [dict(zip(names, (row < 0).tolist(), strict=True)) for row in matrix]


def combinations() -> list[Settings]:
    """Return the settings of each combination; the first is the plain form."""
    return [PLAIN | {name: CHANGES[name] for name in CHANGES if on[name]} for on in signs()]


def play(game: str, again: str | None = None) -> None:
    """Train what has not played the game yet: all once, or one of them with another seed."""
    seed = SEED if again is None else ANOTHER
    runs: dict[int | str, Settings] = dict(enumerate(combinations())) | OTHERS
    for one, settings in runs.items():
        about = {"kind": "run", "combination": one, "game": game, "seed": seed}
        if again not in (None, str(one)) or any(about.items() <= line.items() for line in lines()):
            continue
        command, metrics, points = train(game, settings, seed)
        last = metrics[-1]
        found = {"score": late(metrics), "steps": last["steps"], "seconds": last["seconds"]}
        save({**about, "settings": settings, "command": command, **found, "curve": points})


def late(metrics: list[Line]) -> float:
    """Return the score of a run with these metrics."""
    first = LATE * metrics[-1]["steps"]
    return round(fmean(line["score"] for line in metrics if line["steps"] >= first), 2)


def train(game: str, settings: Settings, seed: int) -> tuple[str, list[Line], list[Line]]:
    """Train; return the command, all lines of metrics, and those of them that are kept.

    Raises:
        SystemExit: if the training ends with an error.
    """
    family, words = words_of(settings)
    given = [family + game, *words, "--seed", str(seed), "--steps", str(STEPS), "--deterministic"]
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


def effects(values: dict[int, float]) -> dict[str, float]:
    """Return the effect of each setting: the mean of the runs where it is on, less the others'.

    Args:
        values: of each combination.
    """
    rows = signs()
    return {
        name: fmean(values[one] for one, on in enumerate(rows) if on[name])
        - fmean(values[one] for one, on in enumerate(rows) if not on[name])
        for name in rows[0]
    }


def shown(found: list[Line]) -> list[str]:
    """Return the lines of both tables; of games that not all have played, only the scores."""
    effects = markdown(*effects_table(found)) if whole_games(found) else []
    return [*markdown(*runs_table(found)), "", *effects]


def scores_of(found: list[Line], seed: int = SEED) -> dict[tuple[int | str, str], float]:
    """Return the score of each run, by combination or other change, and game."""
    return {
        (line["combination"], line["game"]): line["score"] for line in found if line["seed"] == seed
    }


def whole_games(found: list[Line]) -> list[str]:
    """Return the games that all combinations have played."""
    rows, scores = range(len(signs())), scores_of(found)
    return [game for game in GAMES if all((one, game) in scores for one in rows)]


def runs_table(found: list[Line]) -> tuple[Row, list[Row]]:
    """Return the head and the rows of a table: the scores of each combination and change."""
    scores = scores_of(found)
    games = [game for game in GAMES if any(played == game for _, played in scores)]
    what: dict[int | str, str] = {
        one: ", ".join(named(name) for name in CHANGES if on[name]) or "plain"
        for one, on in enumerate(signs())
    }
    what |= {name: name for name in OTHERS if any(name == one for one, _ in scores)}
    rows = [
        (
            str(one) if isinstance(one, int) else "",
            *(f"{scores[one, game]:,.0f}" if (one, game) in scores else "" for game in games),
            changed,
        )
        for one, changed in what.items()
    ]
    again = scores_of(found, ANOTHER)
    rows += [
        (
            str(one) if isinstance(one, int) else "",
            *(f"{again[one, game]:,.0f}" if (one, game) in again else "" for game in games),
            f"{what[one]}, seed {ANOTHER}",
        )
        for one in dict.fromkeys(number for number, _ in again)
    ]
    return ("", *games, "what is on"), rows


def effects_table(found: list[Line]) -> tuple[Row, list[Row]]:
    """Return the head and the rows of a table: the effect of each setting on a game's share."""
    scores, games, numbers = scores_of(found), whole_games(found), range(len(signs()))
    shares = {game: {n: share(game, scores[n, game]) for n in numbers} for game in games}
    each = {game: effects(own) for game, own in shares.items()}
    mean = {name: fmean(each[game][name] for game in games) for name in signs()[0]}
    rows = [
        (named(name), *(f"{each[game][name]:+.3f}" for game in games), f"**{mean[name]:+.3f}**")
        for name in sorted(mean, key=lambda one: -mean[one])
    ]
    return ("", *games, "mean"), rows


def named(name: str) -> str:
    """Return a setting and what it is where it is on."""
    return words({name: CHANGES[name]}) if name in CHANGES else name


def lines(kind: str = "run") -> list[Line]:
    """Return the lines of the file about runs of `STEPS`, or about a ``long`` one."""
    found = read_lines(FILE) if FILE.exists() else []
    return [line for line in found if line["kind"] == kind]


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
