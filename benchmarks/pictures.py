"""Draws the pictures of the results' pages from the ledger: `benchmarks.render pictures`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.cells import SIX
from benchmarks.lib.cluster import DELAYS
from benchmarks.lib.ledger import MEAN_300, Ledger, Line, Results, metrics_of
from benchmarks.peers.counting import MARKS
from benchmarks.tables.games import BEFORE, TEN, of
from benchmarks.tables.presets import ALGORITHMS, SEEDS
from benchmarks.tables.speed import PLAYED, PLAYERS, played
from colobus.report.plots import public_curves

MODES = {"dba3c": "synchronous", "dba3c-async": "asynchronous"}
"""Of DBA3C: the first part of the names of their cells, and what they are."""

MINUTES = [mark // 60 for mark in MARKS]

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"


def draw_all() -> None:
    """Draw every picture; the figures must be in the ledger."""
    results = Results(Ledger().lines())
    drawings: dict[str, Callable[[Figure, Results], None]] = {
        "algorithms.png": partial(draw_solved, ALGORITHMS),
        "beside.png": draw_beside,
        "breakout.png": draw_breakout,
        "dba3c-delay.png": draw_delays,
        "dba3c-pong.png": partial(draw_solved, MODES),
        "six-games.png": draw_six,
    }
    for name, draw in drawings.items():
        figure = Figure(figsize=(9, 4.2), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, results)
        figure.savefig(PICTURES / name)
        print(name)


def draw_solved(names: Mapping[str, str], figure: Figure, results: Results) -> None:
    """Draw how soon each of some plays Pong at 18, in steps and in seconds, seeds 1 and 2."""
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    for place, (what, name) in enumerate(names.items()):
        for one in results.seeds(f"{what}-time"):
            seed, about = one.line["seed"], one.line["result"]
            if seed not in SEEDS or not about["solved"]:
                continue
            for axes, key, scale in ((by_steps, "steps", 1000), (by_time, "seconds", 1)):
                points = [(e[key] / scale, e["mean"]) for e in about["evaluated"]]
                label = name.replace("`", "") if (axes, seed) == (by_time, SEEDS[0]) else None
                axes.plot(
                    *zip(*points, strict=True), color=f"C{place}", alpha=1 / seed, label=label
                )
                axes.plot(about[f"{key}_to_solved"] / scale, 18, "o", color=f"C{place}")
    finish(by_steps, "thousand steps", "score (evaluated checkpoints)")
    finish(by_time, "seconds", "", "Pong, a dot where 18 is confirmed")


def draw_breakout(figure: Figure, results: Results) -> None:
    """Draw the score of Breakout's long run against minutes, and the evaluations."""
    axes, played = figure.subplots(), results.one("breakout-score")
    assert played is not None
    assert played.trained is not None
    steps, seconds, scores = columns(played.trained)
    minutes = [second / 60 for second in seconds]
    axes.plot(minutes, scores, label="the last 50 training games")
    looked = results.seeds("breakout-time", MEAN_300)
    evaluated = [one for found in looked for one in found.line["result"]["evaluated"]]
    evaluated += played.line["result"]["minutes"].values()
    at, means, errors = (
        [one[name] for one in evaluated] for name in ("seconds", "mean", "standard_error")
    )
    label = "50 fresh games of a checkpoint"
    axes.errorbar([n / 60 for n in at], means, errors, fmt="o", capsize=4, label=label)
    finish(axes, "minutes", "score", "Breakout, mean of")
    functions = along(minutes, [n / 1e6 for n in steps])
    axes.secondary_xaxis("top", functions=functions).set_xlabel("million steps")


def draw_delays(figure: Figure, results: Results) -> None:
    """Draw DBA3C's score of training games against steps for each delay: median and range."""
    axes = figure.subplots()
    for place, delay in enumerate(DELAYS):
        told = [one.line["result"] for one in results.seeds("dba3c-delay", str(delay))]
        at = np.arange(50_000, min(one["steps"][-1] for one in told), 10_000)
        every = []
        for one in told:
            known = [
                pair for pair in zip(one["steps"], one["score"], strict=True) if None not in pair
            ]
            steps, scores = np.array(known).T
            every.append(np.interp(at, steps, scores))
        axes.plot(at / 1000, np.median(every, axis=0), color=f"C{place}", label=str(delay))
        axes.fill_between(
            at / 1000, np.min(every, axis=0), np.max(every, axis=0), color=f"C{place}", alpha=0.1
        )
    finish(axes, "thousand steps", "median and range of three seeds", "updates old")


def draw_six(figure: Figure, results: Results) -> None:
    """Draw the score of each game against frames and minutes, all seeds, with public curves.

    Seed 1 has its whole hour.
    """
    figure.set_size_inches(9, 7)
    for number, game in enumerate(SIX, 1):
        axes, most = figure.add_subplot(3, 2, number), 0.0
        for one in of(results, BEFORE, TEN, game):
            seed, (steps, seconds, scores) = one.line["seed"], columns(one.line)
            frames = [4 * n / 1e6 for n in steps]
            most = max(most, *frames)
            axes.plot(frames, scores, label=f"seed {seed}", color=f"C{seed - 1}", zorder=3)
            if seed == 1:
                functions = along(frames, [second / 60 for second in seconds])
                above = axes.secondary_xaxis("top", functions=functions)
                above.set_xticks(np.arange(0, 61, 10))  # there are none after its end
                above.set_xlabel("minutes of seed 1", fontsize=8)
        for curve in public_curves(game):
            points = [(n / 1e6, score) for n, score in curve.points.items() if n <= 1.4e6 * most]
            if points:
                axes.plot(*zip(*points, strict=True), color="tab:grey", alpha=0.35, linewidth=0.8)
        finish(axes, "million frames", game)


def draw_beside(figure: Figure, results: Results) -> None:
    """Draw what networks of ours and of others score against their minutes, a line a run."""
    for axes, game in zip(figure.subplots(1, len(PLAYED)), PLAYED, strict=True):
        for place, (system, runs) in enumerate(played(results, game).items()):
            for number, own in enumerate(runs.values()):
                minutes = [line["seconds"] / 60 for line in own]
                means, errors = ([x[name] for x in own] for name in ("mean", "standard_error"))
                style = {"fmt": "o-", "capsize": 3, "color": f"C{place}"}
                label = None if number else PLAYERS[system]
                axes.errorbar(minutes, means, errors, label=label, **style)
        axes.set_xscale("log")
        axes.set_xticks(MINUTES, MINUTES)
        axes.minorticks_off()
        finish(axes, "minutes", "mean of 50 full games", game)


def along(
    below: list[float], above: list[float]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions from the axis below to the one above and back, along a run.

    Both begin at 0; beyond the run's end they go on as they were on average.
    """
    below, above = ([0.0, *ends, 2 * ends[-1]] for ends in (below, above))
    return partial(np.interp, xp=below, fp=above), partial(np.interp, xp=above, fp=below)


def columns(line: Line) -> list[list[float]]:
    """Return steps, seconds and scores of a finished line's run, from the first score on."""
    rows = [row for row in metrics_of(line) if row["score"] is not None]
    return [[row[name] for row in rows] for name in ("steps", "seconds", "score")]


def finish(axes: Any, x: str, y: str, title: str | None = None) -> None:
    """Name the axes, add a grid and a legend if there is something to tell apart."""
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    if axes.get_xscale() == "linear":
        axes.set_xlim(left=0)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title=title, fontsize=8)
