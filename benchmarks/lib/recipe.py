"""What is measured for single presets: limits of the machine, memory, determinism, many games."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from benchmarks.lib import process, timed
from benchmarks.lib.ledger import Cell, Line
from colobus.core.checkpoint import list_checkpoints, read_about
from colobus.core.types import Version
from colobus.evaluation.agent import load
from colobus.experiment.presets import preset
from colobus.ops.flat import FlatParameters
from colobus.roles.parameters.published import Pulled
from colobus.roles.policy import make_policy
from colobus.training.start import begin, make_network

MEMORY_STEPS = 200_000
"""Steps of the run whose memory is watched; it ends with evaluation, curve and film."""

TURNS = 3
"""How often runs that are compared take turns."""

NATURE = ("--torso", "nature", "--width", "512", "--size", "84")
LIMITS = {
    "Pong, the recipe": ("pong",),
    "Breakout, the recipe": ("breakout",),
    "Pong, Nature network, 84x84": ("pong", *NATURE),
    "Breakout, Nature network, 84x84": ("ppo-breakout", *NATURE),
}
LIMIT_SECONDS = 60.0

EPISODES = 50

ACT_GAMES = 8
"""Games of an actor whose calls are timed."""


def limit(cell: Cell, _scratch: Path, _log: Path) -> dict[str, Any]:
    """Measure the machine's limit and the share of it that training reaches."""
    seconds, more = cell.asked["seconds"], cell.asked.get("words", "").split()
    command = " ".join(["colobus bench", cell.preset, f"--seconds {seconds:g} --json", *more])
    return {"command": command, **process.bench(cell.preset, seconds, *more)}


def share_of_limits(_cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Measure the share of the machine's limit, all settings in turn."""
    rates: dict[str, list[dict[str, Any]]] = {name: [] for name in LIMITS}
    for _ in range(TURNS):
        for name, words in LIMITS.items():
            rates[name].append(process.bench(words[0], LIMIT_SECONDS, *words[1:]))
    (log / "bench.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")

    def every(key: str) -> dict[str, list[float]]:
        return {name: [one[key] for one in own] for name, own in rates.items()}

    return {
        "commands": [f"colobus bench {' '.join(words)}" for words in LIMITS.values()],
        "shares": every("share_of_limit"),
        "steps_per_s": every("achieved_steps_per_s"),
        "limit_of_processes": every("limit_steps_per_s"),
    }


def whole_run(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train with the flags that are asked for; return what the run came to, and its memory.

    Its speed is that after the first third of the lines of metrics.
    """
    run, flags = scratch / "run", cell.asked.get("words") or f"--steps {cell.asked['steps']}"
    words = ["train", cell.preset, "--seed", str(cell.seed), "--out", str(run), *flags.split()]
    outcome = timed.train(words, run, log)
    metrics = timed.read_metrics(run)
    return {
        "command": process.clean(words, scratch),
        "run_seconds": round(outcome.seconds, 2),
        "first_update_seconds": metrics[0]["seconds"],
        **{name: metrics[-1][name] for name in ("steps", "seconds", "score")},
        "steps_per_s": round(timed.steady_rate(metrics[len(metrics) // 3 :], 0.0), 1),
        **timed.megabytes(outcome),
    }


def act_with(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Time an actor's call for its games on ONNX Runtime beside torch, on one thread.

    Both score the same rollouts in turn, with a new version for each. Returned are medians:
    processor-microseconds of a call, and milliseconds of the first one, which makes a session.
    """
    games, steps, rollouts = ACT_GAMES, 64, 50
    experiment, _ = preset(cell.preset)
    experiment = replace(experiment, network=replace(experiment.network, precision="float32"))
    net, times = make_network(experiment, begin(experiment)), dict[str, list[list[float]]]()
    vector, threads = FlatParameters(net).values, torch.get_num_threads()
    frames = np.random.default_rng(1).integers(
        0, 255, (games, net.stack, *net.mean.shape), np.uint8
    )
    torch.set_num_threads(1)
    with torch.inference_mode():
        forms = {w: make_policy(net, experiment.algorithm, act_with=w) for w in ("torch", "onnx")}
        for policy in forms.values():
            policy.begin(frames, np.full(games, 100), steps)
        for number in range(rollouts):
            for way, policy in forms.items():
                policy.load(Pulled(version := Version(0, number), vector, (version,), 0))
                clock = [time.thread_time()]
                for t in range(steps):
                    policy.evaluate(t, None)
                    clock.append(time.thread_time())
                times.setdefault(way, []).append([b - a for a, b in pairwise(clock)])
    torch.set_num_threads(threads)
    (log / "seconds.json").write_text(json.dumps(times), encoding="utf-8")
    calls = {way: 1e6 * median(fmean(one[1:]) for one in own[1:]) for way, own in times.items()}
    return {
        "preset": cell.preset,
        **{f"{way}_us": round(micros, 1) for way, micros in calls.items()},
        "ratio": round(calls["onnx"] / calls["torch"], 3),
        "session_ms": round(1e3 * median(one[0] for one in times["onnx"][1:]), 2),
    }


def play_after(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train a game for so long, then play full games with the last checkpoint.

    And, if asked, with the last ones of its first minutes.
    """
    asked, run, early = cell.asked, scratch / "run", cell.asked["early"]
    length = ["--minutes", f"{asked['minutes']:g}", "--steps", "1000000000"]
    if early is not None:
        length += ["--keep-checkpoints", "0"]
    words = timed.train_words(asked["game"], cell.seed, run, *asked["flags"], *length)
    outcome = timed.train(words, run, log)
    metrics, checkpoints = timed.read_metrics(run), list_checkpoints(run / "checkpoints")
    result = {
        "game": asked["game"],
        "command": process.clean(words, scratch),
        **mean_of_games(cell, checkpoints[-1], log),
        "steps": metrics[-1]["steps"],
        "seconds": metrics[-1]["seconds"],
        "run_seconds": round(outcome.seconds, 2),
        **timed.megabytes(outcome),
    }
    if early is not None:
        result["early"] = {}
        for minutes in early:
            path, at = within(60 * minutes, metrics, checkpoints)
            found = mean_of_games(cell, path, log, f"minute-{minutes:g}-")
            result["early"][f"{minutes:g}"] = {**at, **found}
    return result


def mean_of_games(cell: Cell, checkpoint: Path, log: Path, prefix: str = "") -> dict[str, float]:
    """Return the mean of the games of a checkpoint, with its standard error."""
    own_seed = timed.evaluation_seed(cell.seed, 0, confirm=False, part=0)
    asked = cell.asked
    evaluation = timed.played(load(checkpoint), asked["protocol"], asked["episodes"], own_seed)
    timed.keep_evaluations([evaluation.as_dict()], log, prefix)
    found = {"score": evaluation.mean, "standard_error": evaluation.standard_error}
    return {name: round(value, 3) for name, value in found.items()}


def within(
    seconds: float, metrics: list[Line], checkpoints: list[Path]
) -> tuple[Path, dict[str, float]]:
    """Return the last checkpoint of a run's first seconds, and the steps and seconds it is from.

    Raises:
        LookupError: if there is none.
    """
    times = {line["steps"]: line["seconds"] for line in metrics}
    for path in reversed(checkpoints):
        steps = read_about(path).steps
        at = next((t for n, t in times.items() if n >= steps), None)
        if at is not None and at <= seconds:
            return path, {"steps": steps, "seconds": at}
    raise LookupError(f"no checkpoint within {seconds:g} seconds")
