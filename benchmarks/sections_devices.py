"""The sections of docs/results.md about a GPU, loaders, and learners that step alike.

One from the ledger is on the page once something of it was measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledger import median_of
from loaders import GAMES, KINDS
from lookup import Results
from page import Row, Section
from replicas import SCORES, kinds
from table import listed

GPU_LINES = Path(__file__).parent / "results" / "gpu.jsonl"
"""Lines of `gpu.py`, on a machine that was lent for fifteen minutes."""

GIVEN = ("actors", "games", "emulators", "length")
"""Flags of a training that its row names."""

GPU = "Pong on a GPU"
LOADERS = "A loader on a CPU"
REPLICAS = "Two learners in step"
DETERMINISTIC = "Two learners in step, deterministic"


def sections(results: Results) -> list[Section]:
    """Return the sections from the ledger that have a row."""
    every = (loaders(results), replicas(results), deterministic(results))
    return [one for one in every if one.rows]


def on_a_gpu() -> Section:
    """Return the section about trainings on a GPU, from the file of `gpu.py`."""
    lines = [json.loads(text) for text in GPU_LINES.read_text(encoding="utf-8").splitlines()]
    trained = [line for line in lines if "training" in line]
    rows = [Row(_shown(line)) for line in trained]
    where = trained[0]["machine"]
    about = f"{where['gpu']}, {where['cores']} cores of a {where['processor']}"
    versions = f"Python {where['python']}, torch {where['torch']}"
    measured = [
        f"`{line['command']}`; commit `{line['machine']['commit']}`; {line['time']}"
        for line in lines
    ]
    limit = next(line["result"] for line in lines if line["cell"] == "pong-2x16-limit")
    profile = next(line["result"] for line in lines if line["cell"].endswith("profile"))
    learner = profile["threads"]["learner-0"]
    lost = next(line["printed"] for line in lines if "printed" in line)
    tests = next(line["said"] for line in lines if line["cell"] == "tests")
    return Section(
        GPU,
        f"Short trainings in the order in which they were played; {about}, {versions}. Seconds are "
        "from the start of the process's training to its first line of metrics: loading the games, "
        "mostly. Speed and shares are those after the first third of the lines. The learner is "
        "free for the rest of its time: it waits for experience.",
        ("", "graphs", "first line after", "steps/s", "learner learns", "actors emulate", "score"),
        tuple(rows),
        remarks=(
            "Each was measured once, on seed 11, the last one on seed 1. The machine was there for "
            "fifteen minutes. Seven other commands were cut off by their time limits while they "
            "loaded more games or wrote a trace, and have no figures. Of one with 2 x 64 games, "
            "rollouts of 128 steps and graphs only the beginning of its last line of metrics is "
            f"left: its experience was {lost['lag_mean']:.0f} versions old, and the score "
            f"{lost['score']:.1f} after {lost['steps']:,} steps and {lost['seconds']:.0f} seconds.",
            f"What the cores can emulate, a process on each: {limit['emulate_steps_per_s']:,.0f} "
            f"steps/s. What the GPU can compute without graphs: {limit['act_samples_per_s']:,.0f} "
            f"acting, {limit['learn_samples_per_s']:,.0f} learning.",
            f"Without graphs and under the profiler, 2 x 64 games: "
            f"{profile['achieved_steps_per_s']:,.0f} steps/s; the learner's forward passes took "
            f"{learner['forward']:.0%} of its time and backward passes {learner['backward']:.0%}.",
            f"The tests that need a GPU, before the change that these runs are of: {tests}.",
        ),
        measured=measured,
    )


def _shown(line: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a training."""
    words, found = line["command"].split(), line["training"]
    given = {name: words[words.index(f"--{name}") + 1] for name in GIVEN}
    label = "{actors} x {games} games, {emulators} emulator threads each, rollouts of {length}"
    score = "-" if found["score"] is None else f"{found['score']:.1f}"
    return (
        label.format(**given),
        "yes" if "--graphs" in words else "no",
        f"{found['first_update_seconds']:.0f} s",
        f"{found['steps_per_s']:,.0f}",
        f"{found['time_learner_learn']:.0%}",
        f"{found['time_actor_emulate']:.0%}",
        f"{score} after {found['steps']:,} steps, {found['seconds']:.0f} s",
    )


def loaders(results: Results) -> Section:
    """Return the section about runs with and without a loader."""
    rows = []
    for game in GAMES:
        for found in results.seeds("loaders-games", game):
            result = found.line["result"]
            cells = (
                game,
                *(listed(result["steps_per_s"][kind], "{:,.0f}") for kind in KINDS),
                listed(result["ratios"], "{:.3f}"),
                *(listed(result["learner_waits"][kind], "{:.3f}") for kind in KINDS),
            )
            rows.append(Row(cells, (found,)))
    return Section(
        LOADERS,
        "Pairs of runs in turn, without and with `--loaders 1`. The learner waits for a batch for "
        "the given share of its time; without a loader it joins the batch in that time, too.",
        ("", "steps/s without", "steps/s with", "ratio", "waits without", "waits with"),
        tuple(rows),
    )


def replicas(results: Results) -> Section:
    """Return the section about two learners with half a batch each."""
    found, rows = results.seeds("replicas"), list[Row]()
    values = [one.line["result"] for one in found]
    for kind in kinds() if found else ():
        cells = (
            kind,
            listed([value["steps_to_solved"][kind] for value in values], "{:,.0f}"),
            listed([value["steps_per_s"][kind] for value in values], "{:,.0f}"),
        )
        rows.append(Row(cells, tuple(found)))
    if found:
        rows.append(Row(("ratio", listed([value["ratio"] for value in values], "{:.2f}"), "")))
    return Section(
        REPLICAS,
        "Pong with the default recipe on threads, and with `--learners 2 --reduce group`, half of "
        "the actors and half of the minibatch for each of the two. A run ends when the mean of its "
        "last 50 training games is 18.",
        ("", "steps to 18", "steps/s"),
        tuple(rows),
    )


def deterministic(results: Results) -> Section:
    """Return the section about the same runs, deterministic, with more seeds."""
    found, rows = results.seeds("replicas-steps"), list[Row]()
    values = [one.line["result"]["steps_to"] for one in found]
    for score in SCORES if found else ():
        by_kind = [[value[kind][f"{score:g}"] for value in values] for kind in kinds()]
        one, two = map(median_of, by_kind)
        ratio = f"{two / one:.2f}" if one and two else "none"
        cells = (f"steps to {score:g}", *(listed(steps, "{:,.0f}") for steps in by_kind), ratio)
        rows.append(Row(cells, tuple(found)))
    return Section(
        DETERMINISTIC,
        "The same with `--deterministic`, until the mean of the last 50 training games is 18 or "
        "for 800,000 steps; the ratio is that of the medians.",
        ("", *kinds(), "ratio"),
        tuple(rows),
    )
