"""Measures what a machine with a GPU does, in calls of at most ten minutes each.

    python -m benchmarks.gpu --list                    cells, calls, and how long each may take
    python -m benchmarks.gpu --call speed --out OUT    the cells of a call, one after the other
    python -m benchmarks.gpu --only pong-limit --out OUT
    python -m benchmarks.gpu --call speed --device cpu --smoke --out OUT    a rehearsal
    python -m benchmarks.gpu --call graphs --out OUT   without and with CUDA graphs in turn

Each cell is a ``colobus`` command in a process of its own. What it prints goes to OUT/CELL.json,
and OUT/gpu.jsonl gets a line for each: the command, its exit code, seconds, result and machine. A
cell that is not over at the end of the call is ended. With ``--smoke`` each cell takes some seconds
and has small numbers, so that nothing is wrong with the script when a machine is there for a short
time. Its results say nothing about speed, and a CPU has no graphs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from benchmarks.lib.ledger import Ledger
from benchmarks.run import now
from colobus.core.files import read_lines
from colobus.runtime.system import describe_machine

CALL_SECONDS = 590.0
"""Longest call; a machine may be lent for ten minutes at a time."""

MARGIN = 20.0
"""Seconds that a cell may take longer than planned, for loading and the end."""


class Cell(NamedTuple):
    """One command."""

    name: str
    call: str
    seconds: float  # that it may take
    words: str  # after the command, or with "python" first a command of its own
    smoke: str = ""  # what is added in a rehearsal: the last value of a flag counts


SHARES = ("time_learner_learn", "time_actor_emulate", "time_actor_act")

BENCH = "bench pong --cores all --advantage vtrace --seconds 60 --json"
ATARI = "bench ppo-breakout --torso nature --width 512 --cores all --advantage vtrace --json"
TRAIN = "--cores all --advantage vtrace --out OUT --no-tensorboard --no-finish --json"

SPEED = {
    "pong-limit": f"{BENCH} --device DEVICE",
    "nature-limit": f"{ATARI} --device DEVICE --seconds 60",
    "pong-act-on-cpu": f"{BENCH} --device DEVICE --act-device cpu",
    "pong-no-gpu": BENCH,
    "pong-group-no-gpu": "bench pong --learners 4 --reduce group --actors 3 --seconds 60 --json",
}
GRAPHS = {
    "pong": f"{BENCH} --device DEVICE --seconds 30",
    "breakout": f"{ATARI} --device DEVICE --seconds 30",
}


def cells() -> list[Cell]:
    """Return all cells in the order in which they are worth most."""
    short, moment = "--seconds 6", "--minutes 0.1"
    found = [Cell(name, "speed", 110, words, short) for name, words in SPEED.items()]
    for seed in range(1, 6):
        words = f"train pong {TRAIN} --device DEVICE --until-score 18 --minutes 1.5 --seed {seed}"
        found.append(Cell(f"pong-18-seed-{seed}", "pong", 100, words, moment))
    for turn in (1, 2):
        for game, words in GRAPHS.items():
            for kind, more in (("eager", " --no-cuda-graphs"), ("graphs", "")):
                found.append(Cell(f"{game}-{kind}-{turn}", "graphs", 70, words + more, short))
    words = f"train ppo-breakout {TRAIN} --device DEVICE --until-score 400 --minutes 9"
    found.append(Cell("breakout-400", "breakout", 560, words, moment))
    found.append(Cell("tests", "tests", 300, "python -m pytest -m gpu tests/runtime/test_gpu.py"))
    return found


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a cell failed or was left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--call", choices=sorted({cell.call for cell in cells()}))
    parser.add_argument("--only", choices=[cell.name for cell in cells()])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    flags = parser.parse_args(args)
    if flags.list:
        for cell in cells():
            print(f"{cell.call:<10}{cell.name:<22}{cell.seconds:>5.0f} s  {cell.words}")
        return 0
    if flags.call is None and flags.only is None:
        parser.error("name a --call or a cell with --only; --list shows them")
    flags.out.mkdir(parents=True, exist_ok=True)
    began, failed = time.monotonic(), False
    for cell in cells():
        if flags.only not in (None, cell.name) or flags.call not in (None, cell.call):
            continue
        left = max(CALL_SECONDS - (time.monotonic() - began), 0.0)
        longest = left if flags.smoke else min(cell.seconds + MARGIN, left)  # a rehearsal has time
        line = measure(cell, flags.device, flags.smoke, flags.out, longest)
        failed = failed or line.get("code") != 0
        Ledger(flags.out / "gpu.jsonl").append(line)
        print(json.dumps({k: line[k] for k in line if k != "result"}), flush=True)
    return int(failed)


def command_of(cell: Cell, device: str, smoke: bool, out: Path) -> list[str]:
    """Return the command of a cell."""
    known = {"DEVICE": device, "OUT": str(out / f"run-{cell.name}")}
    words = [known.get(word, word) for word in f"{cell.words} {cell.smoke * smoke}".split()]
    if words[0] == "python":
        return [sys.executable, *words[1:]]
    return [sys.executable, "-m", "colobus.cli.main", *words]


def measure(cell: Cell, device: str, smoke: bool, out: Path, seconds: float) -> dict[str, Any]:
    """Run a cell for at most so long; return what became of it."""
    command, began = command_of(cell, device, smoke, out), time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        code, said, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, errors = 124, "too late"
        said = late.stdout.decode(errors="replace") if late.stdout else ""
    (out / f"{cell.name}.json").write_text(said, encoding="utf-8")
    (out / f"{cell.name}.log").write_text(errors, encoding="utf-8")
    line: dict[str, Any] = {
        "cell": cell.name,
        "time": now(),
        "command": " ".join(command[1:]),
        "code": code,
        "seconds": round(time.monotonic() - began, 1),
        "smoke": smoke,
        "machine": describe_machine(),
    }
    try:
        line["result"] = json.loads(said)
    except ValueError:
        line["said"] = said[-400:] + errors[-400:]
    metrics = out / f"run-{cell.name}" / "metrics.jsonl"
    if metrics.exists():
        line["training"] = training(metrics)
    return line


def training(path: Path) -> dict[str, Any]:
    """Return what a run's metrics.jsonl says of its speed, without the first third of its lines.

    ``steps_per_s`` is that of the rest; shares of the time of roles are means over its lines.
    """
    lines = read_lines(path)
    first, last, rest = lines[len(lines) // 3], lines[-1], lines[len(lines) // 3 + 1 :]
    spent = last["seconds"] - first["seconds"]
    shares = {name: [one[name] for one in rest if name in one] for name in SHARES}
    return {
        "steps": last["steps"],
        "seconds": last["seconds"],
        "first_update_seconds": lines[0]["seconds"],
        "score": last["score"],
        "lag": last["lag_mean"],
        "steps_per_s": round((last["steps"] - first["steps"]) / spent, 1) if spent else None,
        **{name: round(mean(found), 3) for name, found in shares.items() if found},
    }


if __name__ == "__main__":
    sys.exit(main())
