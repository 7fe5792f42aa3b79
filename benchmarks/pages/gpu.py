"""The section about a GPU, from the lines of `benchmarks.gpu` on a machine that was lent."""

from __future__ import annotations

from typing import Any

from benchmarks.lib.ledger import RESULTS, Ledger, Results
from benchmarks.lib.page import Row, Section

GIVEN = ("actors", "games", "emulators", "length")
"""Flags of a training that its row names."""


def on_a_gpu() -> Section:
    """Return the section about trainings on a GPU, from the file of `gpu.py`."""
    lines = Ledger(RESULTS / "gpu.jsonl").lines()
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
        "Pong on a GPU",
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


def sections(_results: Results) -> list[Section]:
    """Return the sections of the page."""
    return [on_a_gpu()]
