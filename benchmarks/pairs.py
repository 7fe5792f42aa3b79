"""Is the code of today as fast as another commit's? Pairs of runs in turn.

    python -m benchmarks.pairs 7ac8796                 pong and breakout by PPO, three pairs each
    python -m benchmarks.pairs 7ac8796 --pairs 5       more pairs
    python -m benchmarks.pairs 7ac8796 --train breakout --today "--games 16"
                                                       that, and today with these flags more
    python -m benchmarks.pairs 7ac8796 --on-ray        DBA3C on Ray; the rate only
    python -m benchmarks.pairs 7ac8796 --pairs 0       only how long the start of a command takes

A run trains for ``--seconds`` without TensorBoard; its rate is that of the steps after 30 % of the
time, its memory the largest resident set of the process, and its cost the processor time of the
whole process for each step, which other work on the machine changes least. Every other pair begins
with today's code. Then ``colobus --help`` and ``import colobus`` are timed, twenty times each in
turn. One JSON line for each comparison is appended to ``results/pairs.jsonl``; ratios are today's
to the other's, and of times the other's to today's, so above 1 today's code is better (but for
memory). Let nothing else run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.lib.ledger import NAME, RESULTS, Ledger
from benchmarks.lib.timed import steady_rate
from benchmarks.run import now
from benchmarks.same import ROOT, checked_out, commit_of, environment_of, package_of, start_of
from colobus.runs.curves import read_metrics
from colobus.runtime.system import describe_machine

GAMES = ("pong", "breakout")
ON_RAY = ["train", "dba3c-pong", "--on", "ray", "--cpus", "0.5"]
SETTLED = 0.3
"""Share of a run's time that does not count for its rate."""
STARTS = 20

FIGURES = {
    "": ("steps_per_s", "steps/s", 1),
    " memory": ("peak_mb", "MB", 1),
    " processor time": ("processor_ms", "ms/step", -1),
}
"""What is compared of runs (on Ray only the first), its unit, and -1 for ratios turned round."""

Found = TypeVar("Found")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", type=given_commit, help="to compare with")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--train", default="", help="only this, the words behind train")
    parser.add_argument("--today", default="", help="flags more of today's code")
    parser.add_argument("--on-ray", action="store_true")
    flags = parser.parse_args(args)
    alone = "on Ray" if flags.on_ray else f"{flags.train} {flags.today}".strip()
    with checked_out(flags.commit) as other:
        for game in (alone,) if alone else GAMES if flags.pairs else ():
            own = ON_RAY if flags.on_ray else ["train", *(flags.train or f"ppo-{game}").split()]
            train = partial(trained, own, flags.today.split(), flags.seconds)
            found = in_turn(train, (other, ROOT), flags.pairs)
            for more, (name, unit, order) in FIGURES.items():
                if not (more and flags.on_ray):
                    values = [[run[name] for run in pair] for pair in found]
                    save(flags.commit, game + more, unit, values, order)
        starts: dict[str, Callable[[Path], list[str]]] = {
            f"{NAME} --help": lambda tree: [*start_of(tree), "--help"],
            f"import {NAME}": lambda tree: [sys.executable, "-c", f"import {package_of(tree)}"],
        }
        for what, words in () if alone else starts.items():
            times = in_turn(partial(seconds, words), (other, ROOT), STARTS)
            save(flags.commit, what, "s", times, -1)
    return 0


def given_commit(name: str) -> str:
    """Return the name of a commit as it was given, which the lines have."""
    commit_of(name)  # raises if it is none
    return name


def in_turn(
    measure: Callable[[Path], Found], trees: tuple[Path, Path], pairs: int
) -> list[list[Found]]:
    """Measure both trees so often; return the results of each pair in the order of ``trees``.

    Every other pair begins with the second tree: if a processor that was busy is slower, this
    costs both the same.
    """
    found = []
    for number in range(pairs):
        order = trees if number % 2 == 0 else trees[::-1]
        both = {tree: measure(tree) for tree in order}
        found.append([both[tree] for tree in trees])
    return found


def trained(
    own: Sequence[str], today: Sequence[str], for_seconds: float, tree: Path
) -> dict[str, float]:
    """Train for so long; return the rate, the largest resident set and the processor time."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [*start_of(tree), *own, *(today if tree == ROOT else ())]
        words += ["--minutes", str(for_seconds / 60)]
        words += ["--out", str(run), "--no-finish", "--no-tensorboard"]
        with (Path(folder) / "output").open("w") as output:
            process = subprocess.Popen(
                words, env=environment_of(tree), stdout=output, stderr=output
            )
            _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, (Path(folder) / "output").read_text()
        lines = read_metrics(run)
    return {
        "steps_per_s": round(steady_rate(lines, SETTLED * for_seconds), 1),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6, 1),
        "processor_ms": round(1000 * (usage.ru_utime + usage.ru_stime) / lines[-1]["steps"], 4),
    }


def seconds(words: Callable[[Path], Sequence[str]], tree: Path) -> float:
    """Return how long a command takes with the source in ``tree``."""
    command, where = words(tree), environment_of(tree)  # reads the tree's pyproject.toml
    began = time.perf_counter()
    subprocess.run(command, env=where, stdout=subprocess.DEVNULL, check=True)
    return round(time.perf_counter() - began, 4)


def ratios(pairs: Sequence[Sequence[float]], order: int = 1) -> list[float]:
    """Return today's of each pair divided by the other's; with order -1 the other way round."""
    return [round((now / before) ** order, 4) for before, now in pairs]


def save(commit: str, what: str, unit: str, pairs: list[list[float]], order: int) -> None:
    """Append a line, and print its median ratio."""
    found = ratios(pairs, order)
    line = {
        "time": now(),
        "other": commit,
        "what": what,
        "unit": unit,
        "pairs": pairs,
        "ratios": found,
        "order": "alternating",
        "median_ratio": median(found),
        "machine": describe_machine(),
    }
    Ledger(RESULTS / "pairs.jsonl").append(line)
    print(f"{what:<34}{line['median_ratio']:.3f}  {pairs}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
