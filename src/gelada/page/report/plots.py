"""Pictures of a report as SVG: learning curves, other metrics, performance profiles."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from gelada.evaluation.curve import steps_in_words
from gelada.page.curves import SPEED
from gelada.page.folder import RunFolder
from gelada.page.report.public import public_curves

POINTS = 300
"""Points of a line."""

COLOURS = ("#c2410c", "#2563eb", "#15803d", "#9333ea", "#0891b2", "#be185d", "#a16207", "#57534e")

STYLE: Any = {  # matplotlib names each of its keys in its types
    "svg.fonttype": "none",
    "svg.hashsalt": "gelada",
    "text.parse_math": False,  # names may have any letters
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.edgecolor": "#a8a29e",
    "axes.labelcolor": "#57534e",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": "#78716c",
    "ytick.color": "#78716c",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": "#e7e5e4",
    "legend.frameon": False,
}

Groups = Mapping[str, Sequence[RunFolder]]


class Line(NamedTuple):
    """One run's values along an axis."""

    x: list[float]
    y: list[float]


def score_picture(groups: Groups, game: str) -> str:
    """Return the score of a game's runs over steps and over minutes, with the mean of each group.

    Each seed is a thin line. The mean of a group's seeds is drawn as far as all of them came.
    """
    with _figure(1, 2, 3.6) as (_, axes, svg):
        for place, (column, label) in enumerate((("steps", "steps"), ("minutes", "minutes"))):
            for number, runs in enumerate(groups.values()):
                name = list(groups)[number] if place == 0 else None
                _draw_group(axes[place], runs, column, "score", _colour(number), name)
            axes[place].set_xlabel(f"{label} of training")
        axes[0].xaxis.set_major_formatter(steps_in_words)
        axes[0].set_ylabel("score, mean of 50 games")
        _legend(axes[0], len(groups))
        axes[0].set_title(game)
    return svg()


def many_games_picture(games: Mapping[str, Groups], names: Sequence[str]) -> str:
    """Return small pictures of the score over steps, one for each game; colours are by group."""
    rows = -(-len(games) // 3)
    with _figure(rows, 3, 1.9 * rows + 0.4) as (figure, axes, svg):
        for place, (game, groups) in enumerate(games.items()):
            for name, runs in groups.items():
                _draw_group(axes[place], runs, "steps", "score", _colour(names.index(name)), None)
            axes[place].set_title(game)
            axes[place].xaxis.set_major_formatter(steps_in_words)
        for empty in axes[len(games) :]:
            empty.set_visible(False)
        lines = [axes[0].plot([], [], color=_colour(i), label=n)[0] for i, n in enumerate(names)]
        if len(names) > 1:
            figure.legend(handles=lines, loc="outside upper left", ncols=3, fontsize=8.5)
    return svg()


def metrics_picture(groups: Groups, names: Sequence[str]) -> str:
    """Return small pictures of other metrics over steps, one for each name."""
    rows = -(-len(names) // 3)
    with _figure(rows, 3, 2.3 * rows) as (_, axes, svg):
        for place, name in enumerate(names):
            for number, runs in enumerate(groups.values()):
                _draw_group(axes[place], runs, "steps", name, _colour(number), None)
            axes[place].set_title("steps a second" if name == SPEED else name.replace("_", " "))
            axes[place].xaxis.set_major_formatter(steps_in_words)
        for empty in axes[len(names) :]:
            empty.set_visible(False)
    return svg()


def public_picture(groups: Groups, game: str, most_frames: int) -> str:
    """Return the groups' mean scores over frames between the public curves of the game."""
    with _figure(1, 1, 3.8) as (_, axes, svg):
        ends = []
        for curve in public_curves(game):
            points = {f: s for f, s in curve.points.items() if f <= 2 * most_frames}
            axes[0].plot(list(points), list(points.values()), color="#a8a29e", lw=0.9, alpha=0.8)
            if points:
                last = list(points)[-1]
                ends.append((last, points[last], curve.method.partition(": ")[2] or curve.method))
        for number, (name, runs) in enumerate(groups.items()):
            _draw_group(axes[0], runs, "frames", "score", _colour(number), name)
        _name_ends(axes[0], ends)
        axes[0].xaxis.set_major_formatter(steps_in_words)
        axes[0].set_xlabel("frames of training")
        axes[0].set_ylabel("score")
        axes[0].set_title(game)
        _legend(axes[0], len(groups))
    return svg()


def profile_picture(
    levels: Sequence[float],
    profiles: Mapping[str, Sequence[float]],
    bands: Mapping[str, tuple[list[float], list[float]]],
) -> str:
    """Return the performance profiles of all groups, with their intervals where there are any."""
    with _figure(1, 1, 3.4) as (_, axes, svg):
        for number, (name, shares) in enumerate(profiles.items()):
            axes[0].plot(levels, shares, color=_colour(number), lw=1.8, label=name)
            if name in bands:
                axes[0].fill_between(levels, *bands[name], color=_colour(number), alpha=0.15, lw=0)
        axes[0].set_xlabel("human-normalised score (1 is a human's)")
        axes[0].set_ylabel("share of runs above it")
        axes[0].set_ylim(0, 1.02)
        _legend(axes[0], len(profiles), always=True)
    return svg()


def line_of(run: RunFolder, along: str, name: str) -> Line:
    """Return a run's values along ``steps``, ``frames`` or ``minutes``, where it has any."""
    columns = run.curve.columns(("steps", "seconds", name), POINTS)
    places = [i for i, value in enumerate(columns[name]) if value is not None]
    values = np.array([columns[name][i] for i in places], dtype=np.float64)
    base = columns["seconds" if along == "minutes" else "steps"]
    factor = {"minutes": 1 / 60, "frames": run.frame_skip}.get(along, 1)
    x = np.array([base[i] for i in places], dtype=np.float64) * factor
    return Line(x.tolist(), values.tolist())


def mean_line(lines: Sequence[Line]) -> Line:
    """Return the mean of several lines as far as all of them go, interpolated between points."""
    first = max(line.x[0] for line in lines)
    last = min(line.x[-1] for line in lines)
    if last <= first:
        return Line([], [])
    x = np.linspace(first, last, POINTS)
    y = np.mean([np.interp(x, line.x, line.y) for line in lines], axis=0)
    return Line(x.tolist(), y.tolist())


def _draw_group(
    axes: Any, runs: Sequence[RunFolder], along: str, name: str, colour: str, label: str | None
) -> None:
    lines = [line for run in runs if len((line := line_of(run, along, name)).x) > 1]
    if not lines:
        return
    if len(lines) == 1:
        axes.plot(*lines[0], color=colour, lw=1.5, label=label)
        return
    for line in lines:
        axes.plot(*line, color=colour, lw=0.7, alpha=0.45)
    axes.plot(*mean_line(lines), color=colour, lw=2, label=label)


def _name_ends(axes: Any, ends: Sequence[tuple[float, float, str]]) -> None:
    """Write the names of curves at their ends ``(frames, score, name)``; the higher goes first.

    A name that would lie on another is left out.
    """
    low, high = axes.get_ylim()
    apart = 0.04 * (high - low)
    written: list[tuple[float, float]] = []
    for frames, score, name in sorted(ends, key=lambda end: -end[1]):
        if all(frames != f or abs(score - s) >= apart for f, s in written):
            axes.annotate(name, (frames, score), fontsize=6.5, color="#78716c")
            written.append((frames, score))


def _legend(axes: Any, count: int, always: bool = False) -> None:
    if (count > 1 or always) and axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8.5)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


@contextmanager
def _figure(
    rows: int, columns: int, height: float
) -> Iterator[tuple[Any, list[Any], Callable[[], str]]]:
    """Give a figure, its axes in one list, and what returns it as SVG once it is drawn."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = list(np.atleast_1d(figure.subplots(rows, columns)).flat)
        for one in axes:
            one.grid(axis="y", lw=0.8)
            one.set_axisbelow(True)
        data = io.BytesIO()
        yield figure, axes, lambda: _inside(data.getvalue().decode())
        figure.savefig(data, format="svg", transparent=True, metadata={"Date": None})


def _inside(svg: str) -> str:
    """Return an SVG as a part of an HTML file: no prologue, no names that other pictures have.

    What is referred to (clips, markers) is named by its content, and keeps its name.
    """
    return re.sub(r' id="[A-Za-z0-9]+_\d+"', "", svg[svg.index("<svg") :])
