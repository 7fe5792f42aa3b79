"""Draws the pictures of the results' pages from the ledger: `benchmarks.render pictures`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.cells import SIX
from benchmarks.lib.dba3c import DELAYS, FREE, SERVERS, WORKERS
from benchmarks.lib.ledger import MEAN_300, Ledger, Line, Results, metrics_of
from benchmarks.pages.games import ten_minutes
from benchmarks.pages.pong import ALGORITHMS, SEEDS
from gelada.report.plots import public_curves

ROOT = Path(__file__).resolve().parent.parent
HOUR_SEED, MINUTES = 1, 60
"""Of the runs of an hour in the picture of the six games."""

PICTURES = ROOT / "docs" / "pictures"


def draw_all() -> None:
    """Draw every picture whose figures are there."""
    results = Results(Ledger().lines())
    drawings = {
        "dba3c-delay.png": draw_delays,
        "dba3c-servers.png": draw_servers,
        "dba3c-pong.png": draw_pong,
        "algorithms.png": draw_algorithms,
        "breakout.png": draw_breakout,
        "six-games.png": draw_six,
    }
    for name, draw in drawings.items():
        figure = Figure(figsize=(9, 4.2), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        if draw(figure, results):
            figure.savefig(PICTURES / name)
            print(name)


def draw_delays(figure: Figure, results: Results) -> bool:
    """Draw score against steps, a line for each delay."""
    axes = figure.subplots()
    found = [(d, r) for d in DELAYS if (r := results.one("dba3c-delay", str(d)))]
    for i, (delay, one) in enumerate(found):
        own = one.line["result"]
        colour = (0.1 + 0.8 * i / len(DELAYS), 0.25, 0.75 - 0.6 * i / len(DELAYS))
        points = [(s, y) for s, y in zip(own["steps"], own["score"], strict=True) if y is not None]
        xs, ys = [s / 1000 for s, _ in points], [y for _, y in points]
        axes.plot(xs, ys, color=colour, label=f"{delay} updates")
    finish(axes, "thousand steps", "score (mean of 50 training games)", "delay")
    axes.set_title("Pong: parameters that are exactly so many updates old, equal steps, seed 1")
    return bool(found)


def draw_servers(figure: Figure, results: Results) -> bool:
    """Draw datapoints per second against servers behind limited links, and against workers."""
    left, right = figure.subplots(1, 2)
    one, other = results.one("dba3c-servers"), results.one("dba3c-workers")
    if one is None or other is None:
        return False
    servers, workers = one.line["result"], other.line["result"]
    counts = list(SERVERS)
    rates = [servers["servers"][str(c)]["datapoints_per_s"] for c in counts]
    left.plot(counts, rates, "o-", color="tab:blue", label="20 MB/s a server")
    free = servers["servers"][FREE]["datapoints_per_s"]
    left.axhline(free, color="tab:grey", linestyle="--", label="1 server, no limit")
    left.set_xticks(counts)
    finish(left, "parameter servers", "datapoints/s", "8 workers, 50 ms a gradient")
    many = list(WORKERS)
    reached = [workers["workers"][str(c)]["datapoints_per_s"] for c in many]
    right.plot(many, reached, "o-", color="tab:blue", label="measured")
    ideal = [reached[0] * c for c in many]
    right.plot(many, ideal, "--", color="tab:grey", label="in proportion")
    finish(right, "workers", "datapoints/s", "2 servers, 50 ms a gradient")
    return True


def draw_pong(figure: Figure, results: Results) -> bool:
    """Draw score against seconds of the timed runs, synchronous and asynchronous."""
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    found = False
    for what, name, colour in (
        ("dba3c-train", "synchronous", "tab:blue"),
        ("dba3c-async-train", "asynchronous", "tab:orange"),
    ):
        for one in results.seeds(what):
            found, seed = True, one.line["seed"]
            rows = rows_of(one.line)
            scores = [row["score"] for row in rows]
            style: dict[str, Any] = {"color": colour, "alpha": 1.0 if seed == 1 else 0.55}
            by_steps.plot([r["steps"] / 1000 for r in rows], scores, **style)
            by_time.plot(
                [r["seconds"] for r in rows], scores, label=f"{name}, seed {seed}", **style
            )
    finish(by_steps, "thousand steps", "score (mean of 50 training games)", "")
    finish(by_time, "seconds", "", "dba3c-pong")
    return found


def draw_algorithms(figure: Figure, results: Results) -> bool:
    """Draw how soon each algorithm plays Pong at 18, in steps and in seconds, seeds 1 and 2."""
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    found = False
    for place, (what, name) in enumerate(ALGORITHMS):
        for one in results.seeds(f"{what}-time"):
            seed, about = one.line["seed"], one.line["result"]
            if seed not in SEEDS or not about["solved"]:
                continue
            found = True
            colour = f"C{place}"
            for axes, key, scale in ((by_steps, "steps", 1000), (by_time, "seconds", 1)):
                points = [(e[key] / scale, e["mean"]) for e in about["evaluated"]]
                label = name.replace("`", "") if (axes, seed) == (by_time, SEEDS[0]) else None
                axes.plot(*zip(*points, strict=True), color=colour, alpha=1 / seed, label=label)
                axes.plot(about[f"{key}_to_solved"] / scale, 18, "o", color=colour)
    finish(by_steps, "thousand steps", "score (evaluated checkpoints)", "")
    finish(by_time, "seconds", "", "Pong, a dot where 18 is confirmed")
    return found


def draw_breakout(figure: Figure, results: Results) -> bool:
    """Draw the score of Breakout's long run against minutes, and the evaluations."""
    played = results.one("breakout-score")
    if played is None or played.trained is None:
        return False
    axes = figure.subplots()
    rows = rows_of(played.trained)
    minutes = [row["seconds"] / 60 for row in rows]
    axes.plot(
        minutes,
        [row["score"] for row in rows],
        label="the last 50 training games",
    )
    looked = results.seeds("breakout-time", MEAN_300)
    evaluated = [one for found in looked for one in found.line["result"]["evaluated"]]
    evaluated += played.line["result"]["minutes"].values()
    axes.errorbar(
        [one["seconds"] / 60 for one in evaluated],
        [one["mean"] for one in evaluated],
        [one["standard_error"] for one in evaluated],
        fmt="o",
        capsize=4,
        label="50 fresh games of a checkpoint",
    )
    finish(axes, "minutes", "score", "Breakout, mean of")
    functions = along(minutes, [row["steps"] / 1e6 for row in rows])
    axes.secondary_xaxis("top", functions=functions).set_xlabel("million steps")
    return True


def draw_six(figure: Figure, results: Results) -> bool:
    """Draw the score of each game against frames and minutes, all seeds, with public curves.

    Seed 1 has its whole hour.
    """
    figure.set_size_inches(9, 7)
    found = False
    for number, game in enumerate(SIX, 1):
        axes, most = figure.add_subplot(3, 2, number), 0.0
        for one in ten_minutes(results, game):
            found, rows = True, rows_of(one.line)
            frames = [4 * row["steps"] / 1e6 for row in rows]
            most = max(most, *frames)
            seed = one.line["seed"]
            scores, colour = [row["score"] for row in rows], f"C{seed - 1}"
            axes.plot(frames, scores, label=f"seed {seed}", color=colour, zorder=3)
            if seed == HOUR_SEED:
                functions = along(frames, [row["seconds"] / 60 for row in rows])
                above = axes.secondary_xaxis("top", functions=functions)
                above.set_xticks(np.arange(0, MINUTES + 1, 10))  # there are none after its end
                above.set_xlabel("minutes of seed 1", fontsize=8)
        for curve in public_curves(game):
            points = [(n / 1e6, score) for n, score in curve.points.items() if n <= 1.4e6 * most]
            if points:
                axes.plot(*zip(*points, strict=True), color="tab:grey", alpha=0.35, linewidth=0.8)
        finish(axes, "million frames", game, "")
    return found


def along(
    below: list[float], above: list[float]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions from the axis below to the one above and back, along a run.

    Both begin at 0; beyond the run's end they go on as they were on average.
    """
    below, above = ([0.0, *ends, 2 * ends[-1]] for ends in (below, above))
    return partial(np.interp, xp=below, fp=above), partial(np.interp, xp=above, fp=below)


def rows_of(line: Line) -> list[dict[str, Any]]:
    """Return the metrics of a finished line's run, from the first score on."""
    return [row for row in metrics_of(line) if row["score"] is not None]


def finish(axes: Any, x: str, y: str, title: str) -> None:
    """Name the axes, add a grid and a legend if there is something to tell apart."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.set_xlim(left=0)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title=title or None, fontsize=8)
