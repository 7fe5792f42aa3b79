"""Exact resume: deterministic runs of Pong that are stopped at random, and what it costs.

`exact` trains a preset once without a break, and once more with breaks: the process is killed,
interrupted or terminated at random moments and resumed each time. At the end all tensors of the
newest checkpoint, the counters, the replay buffer, the metrics and the scores of all games have to
be equal bit for bit. On Ray one process of the run is killed each time instead.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import process
from gelada.core.checkpoint import newest_checkpoint
from ledger import Cell
from timed import settings

STICKY = ("--sticky", "0.25", "--no-finish", "--no-tensorboard", "--deterministic")
"""Of every run here."""

OFTEN = "0.3"
"""Seconds between checkpoints."""

PRESETS = {
    "appo": ("pong", ()),
    "a3c": ("dba3c-pong", ("--keep-every", "10")),
    "dqn": ("dqn-pong", ()),
    "pqn": ("pqn-pong", ()),
}

STOPS = 20
"""How often a run is stopped."""

STEPS, RAY_STEPS = 100_000, 200_000
"""Of a run that is stopped."""

KILLS = "kill=any:20s"
"""What happens to the processes of a run on Ray."""

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)

LONGEST = 0.6
"""Seconds between a checkpoint and a stop, at most."""

COST = """
import json, sys, threading, time
from pathlib import Path

import gelada.envs.replayed_process as outside
import gelada.roles.actor as actor
import gelada.roles.learner as learner
import gelada.roles.tracker.tracker as tracker
from gelada.cli.main import run
from gelada.cli.train import process_start

began, spent, first = process_start(), {}, []


def timed(owner, name):
    whole = getattr(owner, name)

    def measured(*args, **kwargs):
        before = time.thread_time()
        try:
            return whole(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + time.thread_time() - before

    setattr(owner, name, measured)


play = outside.OutsideGames.step


def step(self, actions):
    result = play(self, actions)
    first.append(time.monotonic() - began)
    outside.OutsideGames.step = play
    return result


outside.OutsideGames.step = step
timed(actor.Actor, "_hand_over")
timed(learner.Learner, "save")
timed(tracker.Checkpoints, WRITE)
code = run(sys.argv[2:])
seconds = time.monotonic() - began
Path(sys.argv[1]).write_text(json.dumps({"spent": spent, "first": first, "seconds": seconds}))
sys.exit(code)
"""
"""Runs the command line and measures the processor's time of all that makes a checkpoint."""


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    threads = [
        Cell(
            "exact-resume",
            seed,
            settings("exact-resume", PRESETS[name][0], who=name, stops=STOPS, steps=STEPS),
            exact,
        )
        for seed, name in enumerate(PRESETS, 1)
    ]
    ray = [
        Cell(
            "exact-resume-ray",
            seed,
            settings("exact-resume-ray", PRESETS[name][0], who=name, kills=KILLS, steps=RAY_STEPS),
            exact_on_ray,
        )
        for seed, name in enumerate(("appo", "a3c"), 1)
    ]
    cost = settings("checkpoint-cost", "pong", steps=STEPS)
    return [*threads, *ray, Cell("checkpoint-cost", 1, cost, cost_of_a_checkpoint)]


def words_of(name: str, seed: int, run: Path, steps: int, *more: str) -> list[str]:
    """Return the words of a run."""
    preset, own = PRESETS[name]
    words = ["train", preset, *own, *STICKY, "--seed", str(seed), "--steps", str(steps)]
    return [*words, "--checkpoint-seconds", OFTEN, "--out", str(run), *more]


def exact(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train with and without breaks; say whether the two runs are equal."""
    procedure = cell.settings["procedure"]
    name, steps, stops = procedure["who"], procedure["steps"], procedure["stops"]
    whole, broken = scratch / "whole", scratch / "broken"
    words = words_of(name, cell.seed, whole, steps)
    process.run(words, log / "output.txt")
    chance = random.Random(cell.seed)
    done: list[str] = []
    first = words_of(name, cell.seed, broken, steps)
    again = ["train", "--resume", str(broken), "--no-finish"]
    for at in sorted(chance.uniform(0.0, 0.8 * steps) for _ in range(stops)):
        how = chance.choice(SIGNALS)
        if not stopped(again if done else first, broken, how, at, chance, log / "output.txt"):
            break  # it was over before the signal
        done.append(how.name)
    process.run([*again, "--steps", str(steps)], log / "output.txt")
    return {
        "command": process.clean(words, scratch),
        "who": name,
        "stops": len(done),
        "equal": differences_of(broken, whole) == [],
        "different": differences_of(broken, whole)[:5],
        "signals": done,
    }


def stopped(
    words: list[str],
    run: Path,
    how: signal.Signals,
    at: float,
    chance: random.Random,
    output: Path,
) -> bool:
    """Start a run; send it a signal soon after a new checkpoint with so many steps.

    Returns:
        Whether it was still running then.
    """
    before, _ = newest(run)
    with output.open("ab") as file:
        program = subprocess.Popen([process.GELADA, *words], stdout=file, stderr=file)
        while program.poll() is None:
            version, steps = newest(run)
            if version > before and steps >= at:
                break
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, LONGEST))
        over = program.poll() is not None
        program.send_signal(how)
        program.wait(120)
    return not over


def newest(run: Path) -> tuple[int, int]:
    """Return version and steps of the newest complete checkpoint, (-1, 0) without one."""
    found = sorted((run / "checkpoints").glob("[0-9]*.json"))
    while found:
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile, as too old
            about = json.loads(found.pop().read_text())
            return about["version"], about["steps"]
    return -1, 0


def exact_on_ray(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train on Ray without a break, and again while processes are killed."""
    procedure = cell.settings["procedure"]
    name, steps = procedure["who"], procedure["steps"]
    whole, broken = scratch / "whole", scratch / "broken"
    ray = ["--on", "ray", "--cpus", "0.2"]
    process.run(words_of(name, cell.seed, whole, steps, *ray), log / "output.txt")
    words = words_of(name, cell.seed, broken, steps, *ray, "--faults", procedure["kills"])
    process.run(words, log / "output.txt")
    events = [json.loads(line) for line in (broken / "events.jsonl").read_text().splitlines()]
    return {
        "command": process.clean(words, scratch),
        "who": name,
        "stops": sum(event["event"] == "restored" for event in events),
        "equal": differences_of(broken, whole) == [],
        "different": differences_of(broken, whole)[:5],
    }


def differences_of(run: Path, other: Path) -> list[str]:
    """Return what differs between two finished runs."""
    mine, theirs = (newest_checkpoint(each / "checkpoints")[1] for each in (run, other))
    found = [] if mine.version.number == theirs.version.number else ["version"]
    found += [] if mine.steps == theirs.steps else ["steps"]
    if mine.tensors.keys() != theirs.tensors.keys():
        return [*found, "names of tensors"]
    found += [name for name, t in theirs.tensors.items() if not torch.equal(mine.tensors[name], t)]
    counters = [{**each.counters, "seconds": 0.0} for each in (mine, theirs)]
    found += ["counters"] if counters[0] != counters[1] else []
    for file in ("metrics", "episodes"):
        found += [file] if lines_of(run, file) != lines_of(other, file) else []
    for path in sorted((other / "stores").rglob("*.safetensors"))[-1:]:
        same = path.read_bytes() == (run / path.relative_to(other)).read_bytes()
        found += [] if same else ["replay buffer"]
    return found


def lines_of(run: Path, file: str) -> list[dict[str, Any]]:
    """Return the lines of metrics or episodes without what depends on the time."""
    lines = [json.loads(line) for line in (run / f"{file}.jsonl").read_text().splitlines()]
    return [{**line, "seconds": 0.0} for line in lines]


def cost_of_a_checkpoint(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Measure time and size of checkpoints with games in progress, and the time of a resume."""
    steps, run = cell.settings["procedure"]["steps"], scratch / "run"
    script, told = scratch / "cost.py", scratch / "cost.json"
    script.write_text(COST.replace("WRITE", repr("write")))
    words = words_of("appo", cell.seed, run, steps)
    words[words.index("--checkpoint-seconds") + 1] = "10"
    train = [sys.executable, str(script), str(told)]
    process.run(words, log / "output.txt", train)
    unbroken = json.loads(told.read_text())
    path = newest_checkpoint(run / "checkpoints")[0]
    size = path.stat().st_size + path.with_suffix(".json").stat().st_size
    firsts = []
    for i in range(1, 4):
        again = ["train", "--resume", str(run), "--no-finish", "--steps", str(steps + i * 4096)]
        process.run(again, log / "output.txt", train)
        firsts += json.loads(told.read_text())["first"]
    processors = 2
    share = sum(unbroken["spent"].values()) / (unbroken["seconds"] * processors)
    return {
        "command": process.clean(words, scratch),
        "share_of_time": round(share, 5),
        "seconds_spent": {name: round(s, 3) for name, s in unbroken["spent"].items()},
        "megabytes": round(size / 1e6, 3),
        "seconds_to_first_step": round(median(firsts), 2),
        "resumes": [round(each, 2) for each in firsts],
    }
