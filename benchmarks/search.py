"""Trains one candidate of the recipe's search and writes down its curve.

    python benchmarks/search.py breakout lives --seed 11 --steps 1500000 -- --life-loss-ends
    python benchmarks/search.py show                one line a run: scores at a few steps
    python benchmarks/search.py grid appo-breakout    the draws of ladder.py with a preset

Runs are deterministic, so steps do not depend on what else the machine does and two may run side by
side (with an experience store they are not, and samples per insert keep their balance). Seeds 1 to
5 are refused: they are for measuring only. Ctrl-C keeps the curve so far. The curves are in
results/recipe-search.jsonl. A grid leaves out what is there, so it can be stopped and begun again.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cells import SEEDS
from gelada.core.files import read_lines
from gelada.experiment.presets import preset
from gelada.runtime.system import describe_machine
from ladder import DRAWS, FIRST_SEED, TRY_SEEDS
from process import GELADA

FILE = Path(__file__).resolve().parent / "results" / "recipe-search.jsonl"

POINTS = 40
"""Lines of a curve that are kept."""

KEPT = ("steps", "seconds", "score", "kl", "learning_rate", "entropy", "explained_variance")

SHOWN = (100_000, 200_000, 300_000, 500_000, 750_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000)


def main(args: Sequence[str] | None = None) -> int:
    flags, more = parse(sys.argv[1:] if args is None else args)
    if flags.game == "show":
        show()
        return 0
    if flags.game == "grid":
        return grid(flags.name, flags.steps)
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        words = ["train", flags.game, "--seed", str(flags.seed), "--steps", str(flags.steps)]
        words += [
            *([] if stores(flags.game) else ["--deterministic"]),
            "--no-finish",
            "--out",
            str(run),
            "--checkpoint-seconds",
            "1e6",
        ]
        began = time.monotonic()
        log = FILE.parent / "logs" / f"search-{flags.name}-{flags.game}-{flags.seed}.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [GELADA, *words, *more], stdout=output, stderr=subprocess.STDOUT
            )
            try:
                code = process.wait()
            except KeyboardInterrupt:
                code = process.wait()  # it has got the signal too
        line = {
            "name": flags.name,
            "game": flags.game,
            "seed": flags.seed,
            "changed": more,
            "code": code,
            "seconds": round(time.monotonic() - began),
            "commit": describe_machine()["commit"],
            "score_is": "mean of the last 50 training games",
            "curve": curve(run / "metrics.jsonl"),
        }
    if code == 0:
        log.unlink()  # it says nothing that the curve does not
    with FILE.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(line) + "\n")
    return code


def parse(args: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return our flags and the words after -- for `gelada train`."""
    words = list(args)
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game", help="or: show, grid")
    parser.add_argument("name", nargs="?", default="base", help="of the candidate, or the preset")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--steps", type=int, default=1_500_000)
    flags = parser.parse_args(words[:cut])
    if flags.seed in SEEDS:
        parser.error(f"--seed {flags.seed}: seeds {SEEDS} are for measuring only")
    return flags, words[cut + 1 :]


def grid(name: str, steps: int) -> int:
    """Train a preset with each of the ladder's draws that is missing; return the first failure."""
    for number, draw in enumerate(DRAWS):
        seed, candidate = FIRST_SEED + number % TRY_SEEDS, f"grid-{number}"
        about = {"name": candidate, "game": name, "seed": seed}
        done = read_lines(FILE)
        if any(line.get("code") == 0 and about.items() <= line.items() for line in done):
            continue
        words = [name, candidate, "--seed", str(seed), "--steps", str(steps)]
        if code := main([*words, "--", *draw]):
            return code
    return 0


def stores(name: str) -> bool:
    """Say whether a preset learns from a replay buffer (such runs are never deterministic)."""
    return bool(preset(name)[0].replay.capacity)


def curve(metrics: Path) -> list[dict[str, Any]]:
    """Return about `POINTS` lines of a run's metrics, the last one among them."""
    if not metrics.exists():
        return []
    lines = read_lines(metrics)
    apart = max(len(lines) // POINTS, 1)
    return [
        {
            name: float(f"{line[name]:.4g}") if isinstance(line[name], float) else line[name]
            for name in KEPT
            if name in line
        }
        for line in lines[::-1][::apart][::-1]
    ]


def show() -> None:
    """Print one line a run: the score at the first kept point from each of `SHOWN` on."""
    for text in FILE.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        points = [point for point in line["curve"] if point.get("score") is not None]
        scores = []
        for steps in SHOWN:
            after = [point for point in points if point["steps"] >= steps]
            if after:
                scores.append(f"{steps / 1e6:g}M {after[0]['score']:.1f}")
        end = points[-1] if points else {}
        print(
            f"{line['name']:<12} {line['game']:<14} seed {line['seed']}  {'  '.join(scores)}  "
            f"end {end.get('steps', 0) / 1e6:.2f}M {end.get('score', 0):.1f}  "
            f"{line['seconds']} s  {' '.join(line['changed'])}"
        )


if __name__ == "__main__":
    sys.exit(main())
