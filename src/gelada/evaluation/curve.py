"""The learning curve of a run: reads metrics.jsonl and eval/*.json, writes curve.png."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, NamedTuple

from gelada.core.errors import GeladaError, printable
from gelada.core.files import LARGEST, read_metrics, read_object, write_whole
from gelada.roles.tracker import WINDOW


class Point(NamedTuple):
    """A point of the curve: one line of metrics.jsonl."""

    steps: int
    minutes: float
    score: float  # mean raw return of the last 50 full games


class Mark(NamedTuple):
    """A mark beside the curve: one evaluation."""

    steps: int
    mean: float
    error: float  # standard error of the mean
    label: str


def read_points(folder: Path) -> list[Point]:
    """Return the curve of a run, oldest first.

    Lines that cannot be read or have no score are left out, as well as lines after the checkpoint
    from which a run was resumed (see `read_metrics`).

    Raises:
        GeladaError: if the run has no metrics.
    """
    try:
        rows = read_metrics(folder)
    except FileNotFoundError:
        raise GeladaError(f"{folder}: no metrics.jsonl, so there is no curve to draw") from None
    except OSError as error:
        raise GeladaError(f"{folder}/metrics.jsonl cannot be read: {error.strerror}") from None
    points = []
    for row in rows:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            minutes, score = float(row["seconds"]) / 60, float(row["score"])
            points.append(Point(row["steps"], minutes, score))
    return points


def read_marks(folder: Path) -> list[Mark]:
    """Return the run's evaluations in the order of their steps.

    Interrupted evaluations are left out, as their means are not those of the protocol. Files that
    cannot be read are skipped.
    """
    marks = []
    for path in (folder / "eval").glob("*.json"):
        try:
            row = read_object(path)
            if row.get("interrupted"):
                continue
            label = f"{_plain(row['protocol'])}: {row['mean']:.2f} (mean of "
            label += f"{int(row['episodes'])} games)"
            error = float(row.get("standard_error") or 0.0)
            mark = Mark(int(row["steps"]), float(row["mean"]), error, label)
            if abs(mark.steps) + abs(mark.mean) + abs(mark.error) < LARGEST:
                marks.append(mark)
        except (GeladaError, OSError, LookupError, TypeError, ValueError, OverflowError):
            continue
    return sorted(marks)


def draw_curve(folder: Path) -> Path:
    """Plot the mean score over steps and over minutes to ``curve.png``, and return its path.

    Raises:
        GeladaError: if the run has no metrics.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    points, marks = read_points(folder), read_marks(folder)
    apart = ConstrainedLayoutEngine(wspace=0.04)  # else the numbers of both axes touch
    figure = Figure(figsize=(11, 4.5), dpi=120, layout=apart)
    FigureCanvasAgg(figure)
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    scores = [p.score for p in points]
    by_steps.plot([p.steps for p in points], scores, color="tab:blue", linewidth=1.6)
    by_time.plot([p.minutes for p in points], scores, color="tab:blue", linewidth=1.6)
    for i, mark in enumerate(marks):
        style: dict[str, Any] = {"fmt": "o", "color": f"C{i + 1}", "capsize": 4, "zorder": 3}
        by_steps.errorbar(mark.steps, mark.mean, mark.error, label=mark.label, **style)
        by_time.errorbar(_minutes_at(points, mark.steps), mark.mean, mark.error, **style)
    by_steps.set_xlabel("environment steps")
    by_steps.set_ylabel("score (raw return)")
    by_steps.xaxis.set_major_formatter(steps_in_words)
    by_time.set_xlabel("minutes of training")
    for axes in (by_steps, by_time):
        axes.grid(alpha=0.3)
        axes.set_xlim(left=0)
    if marks:
        by_steps.legend(title="evaluated afterwards", loc="best")
    figure.suptitle(f"{_name(folder)}: training games, raw returns, mean of the last {WINDOW}")
    data = io.BytesIO()
    figure.savefig(data, format="png")
    write_whole(folder / "curve.png", data.getvalue())
    return folder / "curve.png"


def steps_in_words(steps: float, _position: int) -> str:
    """Return a tick label such as 250 k or 1.5 M."""
    if steps >= 1_000_000:
        return f"{steps / 1_000_000:g} M"
    return f"{steps / 1000:g} k" if steps >= 1000 else f"{steps:g}"


def _plain(text: object) -> str:
    """Return a text of a file as the plot shows it; a dollar would begin a formula."""
    return printable(str(text)).replace("$", r"\$")


def _minutes_at(points: list[Point], steps: int) -> float:
    """Return the minutes of the last point with at most ``steps``."""
    return max((p.minutes for p in points if p.steps <= steps), default=0.0)


def _name(folder: Path) -> str:
    """Return the game's name for the title."""
    try:
        config = read_object(folder / "config.json")
        return _plain(config["games"]["game"]).replace("_", " ").capitalize()
    except (GeladaError, OSError, KeyError, TypeError):
        return folder.name
