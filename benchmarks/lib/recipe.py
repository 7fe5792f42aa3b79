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

from benchmarks.lib import process
from benchmarks.lib.ledger import Cell, Line
from benchmarks.lib.timed import (
    BENCH_SECONDS,
    evaluation_seed,
    keep_evaluations,
    megabytes,
    pairs,
    played,
    read_metrics,
    steady_rate,
    train,
    train_words,
)
from colobus.core.checkpoint import list_checkpoints, read_about
from colobus.core.types import Version
from colobus.experiment.presets import preset
from colobus.ops.flat import FlatParameters
from colobus.roles.parameters.published import Pulled
from colobus.roles.policy import make_policy
from colobus.training.start import begin, make_network

EQUAL_SPEED_STEPS = 80_000
"""Steps of each run whose speed is compared, free and deterministic in turn."""

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


def limit(cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Measure the machine's limit and the share of it that training reaches."""
    rates = process.bench(cell.preset, 2 * BENCH_SECONDS)
    (log / "bench.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    command = f"colobus bench {cell.preset} --seconds {2 * BENCH_SECONDS:g} --json"
    return {"command": command, **{k: v for k, v in rates.items() if k != "machine"}}


def share_of_limits(_cell: Cell, _scratch: Path, log: Path) -> dict[str, Any]:
    """Measure the share of the machine's limit, all settings in turn."""
    rates: dict[str, list[dict[str, Any]]] = {name: [] for name in LIMITS}
    for _ in range(TURNS):
        for name, words in LIMITS.items():
            rates[name].append(process.bench(words[0], LIMIT_SECONDS, *words[1:]))
    (log / "bench.json").write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    kept = {
        "shares": "share_of_limit",
        "steps_per_s": "achieved_steps_per_s",
        "limit_of_processes": "limit_steps_per_s",
    }
    return {
        "commands": [f"colobus bench {' '.join(words)}" for words in LIMITS.values()],
        **{
            to: {name: [one[of] for one in own] for name, own in rates.items()}
            for to, of in kept.items()
        },
    }


def deterministic_speed(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train free and deterministic in turn, with equal roles and steps; compare the medians."""
    rates: dict[str, list[float]] = {"free": [], "deterministic": []}
    words: list[str] = []
    for turn in range(TURNS):
        for kind in rates:
            run = scratch / f"{kind}-{turn + 1}"
            words = train_words(cell.preset, cell.seed, run, "--steps", str(EQUAL_SPEED_STEPS))
            words += ["--deterministic"] if kind == "deterministic" else []
            train(words, run, log, f"{kind}-{turn + 1}-")
            rates[kind].append(round(steady_rate(read_metrics(run)), 1))
    free, deterministic = (median(rates[kind]) for kind in ("free", "deterministic"))
    return {
        "command": process.clean(words, scratch),
        "free_steps_per_s": rates["free"],
        "deterministic_steps_per_s": rates["deterministic"],
        "ratio": round(deterministic / free, 4),
    }


def memory(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Watch the memory of a whole run: training, evaluation, curve and film."""
    run = scratch / "run"
    words = ["train", cell.preset, "--seed", str(cell.seed), "--out", str(run)]
    words += ["--steps", str(MEMORY_STEPS)]
    outcome = train(words, run, log)
    return {
        "command": process.clean(words, scratch),
        "run_seconds": round(outcome.seconds, 2),
        **megabytes(outcome),
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
                policy.load(Pulled(Version(0, number), vector, (), 0))
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

    And, if asked, with the last one of the first minutes.
    """
    asked, run, early = cell.asked, scratch / "run", cell.asked["early"]
    length = {"--minutes": f"{asked['minutes']:g}", "--steps": "1000000000"}
    if early is not None:
        length["--keep-checkpoints"] = "0"
    words = train_words(asked["game"], cell.seed, run, *asked["flags"], *pairs(length))
    outcome = train(words, run, log)
    metrics, checkpoints = read_metrics(run), list_checkpoints(run / "checkpoints")
    result = {
        "game": asked["game"],
        "command": process.clean(words, scratch),
        **mean_of_games(cell, checkpoints[-1], log),
        "steps": metrics[-1]["steps"],
        "seconds": metrics[-1]["seconds"],
        "run_seconds": round(outcome.seconds, 2),
        **megabytes(outcome),
    }
    if early is not None:
        path, at = within(60 * early, metrics, checkpoints)
        result["early"] = {**at, **mean_of_games(cell, path, log, f"minute-{early:g}-")}
    return result


def mean_of_games(cell: Cell, checkpoint: Path, log: Path, prefix: str = "") -> dict[str, float]:
    """Return the mean of the games of a checkpoint, with its standard error."""
    from colobus.evaluation.agent import load

    own_seed = evaluation_seed(cell.seed, 0, confirm=False, part=0)
    asked = cell.asked
    evaluation = played(load(checkpoint), asked["protocol"], asked["episodes"], own_seed)
    keep_evaluations([evaluation.as_dict()], log, prefix)
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
