"""Pictures of a report as SVG: learning curves, other metrics, performance profiles.

``data/public_curves.csv`` has a row for each method and game, and a column for each number of
frames, from 1 M to 200 M; a blank means that the curve does not reach so far.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from colobus.core.errors import ColobusError, printable
from colobus.core.files import write_whole
from colobus.evaluation.scores import rows_of
from colobus.report.results import KEPT, seconds_of
from colobus.roles.tracker import WINDOW
from colobus.runs.folder import CURVE, METRICS
from colobus.runs.read import RunFolder


def draw_curve(folder: Path) -> Path:
    """Plot a run's mean score over steps and over minutes to its ``curve.png``; return the path.

    Raises:
        ColobusError: if the run has no metrics.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    run = RunFolder(folder, folder.name, KEPT)
    try:
        run.curve.read()
    except FileNotFoundError:
        raise ColobusError(f"{folder}: no {METRICS}, so there is no curve to draw") from None
    except OSError as error:
        raise ColobusError(f"{folder / METRICS} cannot be read: {error.strerror}") from None
    run.refresh()
    apart = ConstrainedLayoutEngine(wspace=0.04)  # else the numbers of both axes touch
    figure = Figure(figsize=(11, 4.5), dpi=120, layout=apart)
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    for axes, along in ((by_steps, "steps"), (by_time, "minutes")):
        axes.plot(*line_of(run, along, "score", 2 * KEPT), color="tab:blue", linewidth=1.6)
        axes.grid(alpha=0.3)
    newest = {one.protocol: one for one in run.evaluations}
    for number, (protocol, last) in enumerate(newest.items(), 1):
        own = [one for one in run.evaluations if one.protocol == protocol]
        heights = [one.mean for one in own], [1.96 * (one.error or 0.0) for one in own]
        style: dict[str, Any] = {"fmt": "o", "color": f"C{number}", "capsize": 4, "zorder": 3}
        label = f"{_plain(protocol)}: {last.mean:.2f} (mean of {last.played})"
        minutes = [(seconds_of(run.curve.rows, one) or 0.0) / 60 for one in own]
        by_steps.errorbar([one.steps for one in own], *heights, label=label, **style)
        by_time.errorbar(minutes, *heights, **style)
    by_steps.set_xlabel("environment steps")
    by_steps.set_ylabel("score (raw return)")
    by_steps.xaxis.set_major_formatter(steps_in_words)
    by_time.set_xlabel("minutes of training")
    by_steps.set_xlim(left=0)
    by_time.set_xlim(left=0)
    if run.evaluations:
        by_steps.legend(title="newest evaluation; bars: 95 % intervals", loc="best")
    name = _plain(run.game).replace("_", " ").capitalize() or folder.name
    figure.suptitle(f"{name}: training games, raw returns, mean of the last {WINDOW}")
    data = io.BytesIO()
    figure.savefig(data, format="png")
    write_whole(folder / CURVE, data.getvalue())
    return folder / CURVE


def steps_in_words(steps: float, _position: int) -> str:
    """Return a tick label such as 250 k or 1.5 M."""
    if steps >= 1_000_000:
        return f"{steps / 1_000_000:g} M"
    return f"{steps / 1000:g} k" if steps >= 1000 else f"{steps:g}"


def _plain(text: object) -> str:
    """Return a text of a file as the plot shows it; a dollar would begin a formula."""
    return printable(str(text)).replace("$", r"\$")


SOURCES = {
    "Dopamine": "Castro et al. 2018, arXiv:1812.06110: the curves that Dopamine publishes",
    "DreamerV3": "Hafner et al. 2023, arXiv:2301.04104: the curves published with its code",
    "MR.Q": "Fujimoto et al. 2025, arXiv:2501.16142: the curves published with its code",
}
"""Where curves come from, by the first word of a method's name."""

REMARK = (
    "These curves are means over runs, of games with sticky actions 0.25 in most cases, which make "
    "games harder."
)


class PublicCurve(NamedTuple):
    """One method's curve of a game."""

    method: str  # source: name
    runs: int
    points: dict[int, float]  # mean score by frames


@cache
def _all_curves() -> dict[str, list[PublicCurve]]:
    curves: dict[str, list[PublicCurve]] = {}
    for row in rows_of("public_curves.csv"):
        method, game, runs = row.pop("method"), row.pop("game"), int(row.pop("runs"))
        points = {
            int(column.removesuffix("M")) * 1_000_000: float(cell)
            for column, cell in row.items()
            if cell
        }
        curves.setdefault(game, []).append(PublicCurve(method, runs, points))
    return curves


def public_curves(game: str) -> list[PublicCurve]:
    """Return the public curves of a game, by ale-py's name; [] if there are none."""
    return _all_curves().get(game, [])


POINTS = 300
"""Points of a line."""

COLOURS = ("#c2410c", "#2563eb", "#15803d", "#9333ea", "#0891b2", "#be185d", "#a16207", "#57534e")

Groups = Mapping[str, Sequence[RunFolder]]


class Line(NamedTuple):
    """One run's values along an axis."""

    x: list[float]
    y: list[float]


def score_picture(groups: Groups, game: str, dashed: Collection[Path] = ()) -> str:
    """Return the score of a game's runs over steps and over minutes, with the mean of each group.

    Each seed is a thin line, dashed for the runs in ``dashed``. The mean of a group's seeds is
    drawn as far as all of them came.
    """
    with _figure(1, 2, 3.6) as (_, axes, svg):
        for one, along in zip(axes, ("steps", "minutes"), strict=True):
            _draw_groups(one, groups, along, "score", dashed)
            one.set_xlabel(f"{along} of training")
        axes[0].set_ylabel("score, mean of 50 games")
        _legend(axes[0], len(groups))
        axes[0].set_title(game)
    return svg()


def small_pictures(
    small: Sequence[tuple[str, Groups, str]],
    height: float,
    legend: bool = False,
    dashed: Collection[Path] = (),
) -> str:
    """Return small pictures over steps, three in a row.

    Args:
        small: for each a title, its runs by group (all have the same groups), and the metric.
        height: of a row, in inches.
        legend: whether it says which group is which.
        dashed: runs whose lines are dashed.
    """
    rows = -(-len(small) // 3)
    with _figure(rows, 3, height * rows + 0.4 * legend) as (figure, axes, svg):
        for one, (title, groups, metric) in zip(axes, small, strict=False):
            _draw_groups(one, groups, "steps", metric, dashed)
            one.set_title(title)
        for empty in axes[len(small) :]:
            empty.set_visible(False)
        if legend and len(small[0][1]) > 1:
            names = enumerate(small[0][1])
            lines = [axes[0].plot([], [], color=_colour(i), label=name)[0] for i, name in names]
            figure.legend(handles=lines, loc="outside upper left", ncols=3, fontsize=8.5)
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
        _draw_groups(axes[0], groups, "frames", "score")
        _name_ends(axes[0], ends)
        axes[0].set_xlabel("frames of training")
        axes[0].set_ylabel("score")
        axes[0].set_title(game)
        _legend(axes[0], len(groups))
    return svg()


def normalised_picture(
    rows: Mapping[str, Mapping[str, float]], names: Sequence[str], groups: Sequence[str]
) -> str:
    """Return bars of human-normalised scores in per cent, and a line at a human's 100 %.

    Args:
        rows: for each game the scores by name.
        names: of all bars of a game, in their order.
        groups: of the report, whose places are their colours; another bar is grey.
    """
    with _figure(1, 1, 1.0 + 0.2 * len(rows) * (len(names) + 0.7)) as (_, axes, svg):
        high = 0.8 / len(names)
        for number, name in enumerate(names):
            own = [(place, row[name]) for place, row in enumerate(rows.values()) if name in row]
            colour = _colour(groups.index(name)) if name in groups else "#a8a29e"
            ys = [place + (number + 0.5) * high - 0.4 for place, _ in own]
            bars = axes[0].barh(ys, [v for _, v in own], high, color=colour, label=name)
            axes[0].bar_label(bars, [f"{v:,.0f} %" for _, v in own], padding=3, fontsize=7)
        axes[0].axvline(100, color="#44403c", lw=1, ls="--", label="a human")
        axes[0].axvline(0, color="#44403c", lw=0.8)
        axes[0].set_yticks(range(len(rows)), list(rows))
        axes[0].invert_yaxis()
        if max((v for row in rows.values() for v in row.values()), default=0.0) > 1000:
            axes[0].set_xscale("symlog", linthresh=100)
            axes[0].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes[0].margins(x=0.1)
        axes[0].set_xlabel("human-normalised score, per cent (random play is 0)")
        _legend(axes[0], len(names), always=True)
    return svg()


def passed_picture(
    panels: Mapping[str, Mapping[str, Sequence[float]]], names: Sequence[str], games: int
) -> str:
    """Return how many games have reached a level after so many minutes, a panel for each level.

    ``panels`` has for each level the minutes at which games reached it, by group.
    """
    with _figure(1, len(panels), 3.0) as (_, axes, svg):
        every = [m for panel in panels.values() for minutes in panel.values() for m in minutes]
        for one, (level, panel) in zip(axes, panels.items(), strict=True):
            for number, name in enumerate(names):
                minutes = panel.get(name, [])
                x = [0.0, *sorted(minutes), 1.05 * max(every, default=1.0)]
                y = [*range(len(minutes) + 1), len(minutes)]
                one.step(x, y, where="post", color=_colour(number), lw=1.8, label=name)
            one.set_ylim(0, games + 0.5)
            one.set_xlabel("minutes of training")
            one.set_title(f"games above {level}")
        _legend(axes[0], 2, always=True)
    return svg()


def profile_picture(
    levels: Sequence[float],
    profiles: Mapping[str, Sequence[float]],
    bands: Mapping[str, tuple[list[float], list[float]]],
) -> str:
    """Return the performance profiles of all groups, with their intervals where there are any.

    A group without a profile has an empty one, so that all have their colours.
    """
    with _figure(1, 1, 3.4) as (_, axes, svg):
        for number, (name, shares) in enumerate(profiles.items()):
            if shares:
                axes[0].plot(levels, shares, color=_colour(number), lw=1.8, label=name)
            if name in bands:
                axes[0].fill_between(levels, *bands[name], color=_colour(number), alpha=0.15, lw=0)
        axes[0].set_xlabel("human-normalised score (1 is a human's)")
        axes[0].set_ylabel("share of runs above it")
        axes[0].set_ylim(0, 1.02)
        _legend(axes[0], len(profiles), always=True)
    return svg()


def line_of(run: RunFolder, along: str, name: str, most: int = POINTS) -> Line:
    """Return a run's values along ``steps``, ``frames`` or ``minutes``, where it has any."""
    columns = run.curve.columns(("steps", "seconds", name), most)
    base = columns["seconds" if along == "minutes" else "steps"]
    factor = {"minutes": 1 / 60, "frames": run.frame_skip}.get(along, 1.0)
    both = zip(base, columns[name], strict=True)
    points = [(x * factor, y) for x, y in both if x is not None and y is not None]
    return Line([x for x, _ in points], [y for _, y in points])


def mean_line(lines: Sequence[Line]) -> Line:
    """Return the mean of several lines as far as all of them go, interpolated between points."""
    first = max(line.x[0] for line in lines)
    last = min(line.x[-1] for line in lines)
    if last <= first:
        return Line([], [])
    x = np.linspace(first, last, POINTS)
    y = np.mean([np.interp(x, line.x, line.y) for line in lines], axis=0)
    return Line(x.tolist(), y.tolist())


def _draw_groups(
    axes: Any, groups: Groups, along: str, metric: str, dashed: Collection[Path] = ()
) -> None:
    """Draw a line for each run, and the mean of each group; its place decides its colour."""
    if along != "minutes":
        axes.xaxis.set_major_formatter(steps_in_words)
    for number, (label, runs) in enumerate(groups.items()):
        colour = _colour(number)
        found = [(line, run) for run in runs if len((line := line_of(run, along, metric)).x) > 1]
        thin = {"lw": 1.5, "label": label} if len(found) == 1 else {"lw": 0.7, "alpha": 0.45}
        styles = ["--" if run.path in dashed else "-" for _, run in found]
        for (line, _), style in zip(found, styles, strict=True):
            axes.plot(*line, color=colour, ls=style, **thin)
        if len(found) > 1:
            mean, style = mean_line([line for line, _ in found]), min(styles, key=len)
            axes.plot(*mean, color=colour, ls=style, lw=2, label=label)


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
    from matplotlib.figure import Figure

    style = resources.files("colobus.report") / "report.mplstyle"  # names may have any letters
    with resources.as_file(style) as file, matplotlib.rc_context(fname=file):
        figure = Figure(figsize=(10, height), layout="constrained")
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
