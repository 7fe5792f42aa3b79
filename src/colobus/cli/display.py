"""What is seen while a run lasts: a live panel on a terminal, plain lines elsewhere.

It shares the machine with training, so it redraws twice a second and draws little.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from colobus.core.errors import printable
from colobus.core.timing import clock
from colobus.roles.tracker import WINDOW, Status, StopRule
from colobus.runs.curves import read_metrics
from colobus.runtime.api import RoleState
from colobus.training import words
from colobus.training.outlook import LINE_SECONDS, Outlook

if TYPE_CHECKING:
    from colobus.report.format import Table as ReportTable

LEAST_SIZE = (40, 12)
"""Columns and rows of a terminal for a live panel; a smaller one gets plain lines."""

EARLIER = 1000
"""Points of the curve before a resume."""

BESIDE = 112
"""Columns from which the curve stands beside the figures instead of below them."""

FIGURES = 64
"""Columns of the figures there."""

SHORTEST = 24
"""Columns of the bar, if there is text beside it."""

WIDEST = 220
MOST_ROWS = 12
"""Of the curve."""

BLOCKS = " ▁▂▃▄▅▆▇█"

MAIN = ("entropy", "explained_variance", "kl", "learning_rate", "policy_loss", "value_loss")
"""What algorithms report that comes first."""

Curve = Sequence[tuple[int, float, float]]
"""(steps, seconds, score), oldest first."""

survived = partial(suppress, OSError, ValueError)  # ValueError: the file is closed
"""Goes on after an error of the terminal or file that is written to."""

Report = Callable[[float, float], None]
"""Told how much is done, and of how much."""


class Unbroken(Console):
    """A console that is quiet after its pipe was closed; rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Let what is written from now on go nowhere."""
        self.quiet = True
        with survived():
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Printer:
    """Writes lines for the user: to stdout, or to stderr where stdout is for JSON.

    What cannot be written, as the terminal is closed or the disk behind it full, is lost, and the
    command goes on.

    Args:
        to_stderr: whether stdout is for JSON.
        console: that writes (None: one of its own).
        goes_on: False for a command that does nothing but write: an error of the disk ends it.
    """

    def __init__(
        self, to_stderr: bool = False, console: Console | None = None, goes_on: bool = True
    ) -> None:
        self._writing: Callable[[], Any] = survived if goes_on else nullcontext
        self.console = console or Unbroken(
            stderr=to_stderr, highlight=False, soft_wrap=True, emoji=False
        )
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        width, height = self.console.size
        self.live = self.live and width >= LEAST_SIZE[0] and height >= LEAST_SIZE[1]

    def line(self, text: str) -> None:
        """Write one line (above a live panel, if there is one)."""
        with self._writing():
            self.console.print(printable(text), markup=False, soft_wrap=True)

    def table(self, table: RenderableType, soft_wrap: bool | None = None) -> None:
        """Write a table or the like; with ``soft_wrap`` False it is made to fit a terminal.

        In a file or a pipe it is as wide as it has to be: names that are cut are not found there.
        """
        wide = soft_wrap is False and not self.console.is_terminal
        if wide and isinstance(table, Table):
            options = self.console.options.update(width=10**4)
            least = Measurement.get(self.console, options, table).maximum
            table.width = max(least, self.console.width)
        with self._writing():
            self.console.print(table, soft_wrap=soft_wrap, crop=not wide)

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Report]:
        """Show a bar on a terminal; elsewhere write a line at first and one now and then."""
        if not self.live:
            due = time.monotonic() + LINE_SECONDS

            def say(done: float, total: float) -> None:
                nonlocal due
                if time.monotonic() >= due:
                    due = time.monotonic() + LINE_SECONDS
                    self.line(f"{what}: {done:.0f} of {total:.0f} {unit}")

            self.line(f"{what} …")
            yield say
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(printable(what), total=None, count="")

            def report(done: float, total: float) -> None:
                count = f"{done:.0f} of {total:.0f} {unit}"
                bar.update(task, completed=done, total=total, count=count)

            yield report


@dataclass(eq=False)
class Display:
    """Shows a run's status; give `watch` to `colobus.training.run.train`."""

    title: str  # of the panel
    stop: StopRule  # of the run, for the bar and the time left
    printer: Printer  # where to
    earlier: Curve = ()  # the curve of the run before it was resumed
    then: Callable[[], object] = lambda: None
    """Called after each look; what it raises ends the run."""

    def __post_init__(self) -> None:
        self._outlook = Outlook(self.stop, [*self.earlier])
        self._live: Live | None = None
        self._broken = False

    def __enter__(self) -> Display:
        if self.printer.live:
            with survived():
                self._live = Live(console=self.printer.console, auto_refresh=False)
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            with survived():
                self._live.stop()

    def watch(self, status: Status, roles: Sequence[RoleState]) -> None:
        """Show the status (cheap; called about twice a second). An error costs the picture only."""
        try:
            self._outlook.see(status, roles)
            if self._live:
                panel = self.panel(status, roles)
                with survived():
                    self._live.update(panel, refresh=True)
            elif self._outlook.is_due():
                self.printer.line(self._outlook.line(status, roles))
        except Exception as error:
            if not self._broken:
                self._broken = True
                self.printer.line(f"the display failed: {type(error).__name__}: {error}")
        self.then()

    def panel(self, status: Status, roles: Sequence[RoleState]) -> Panel:
        """Return the panel for a terminal of this size."""
        console = self.printer.console
        width, height = min(console.width, WIDEST), console.height
        inner = width - 4
        rows = self._bar(self._outlook.endings(status), inner)
        room = height - 3 - len(rows)  # the frame, and the line of the cursor
        wide = inner >= BESIDE
        curve = [] if console.options.ascii_only else self._outlook.curve
        figures = self._figures(status, roles)
        if wide:
            figures += [Text(line, "dim") for line in _losses(status.values)]
        lines = [len(one.wrap(console, FIGURES if wide else inner)) for one in figures]
        while len(lines) > 2 and sum(lines) > room:
            lines.pop()
        figures, high = figures[: len(lines)], sum(lines)
        if wide:
            drawn = small_curve(curve, inner - FIGURES - 3, min(max(high, 5), MOST_ROWS, room))
            beside = Table.grid(padding=(0, 3))
            beside.add_column(width=FIGURES)
            beside.add_column()
            beside.add_row(Group(*figures), Text("\n".join(drawn), "cyan", no_wrap=True))
            rows.append(beside)
        else:
            high = min(room - high, 5 if height < 30 else 8)
            drawn = small_curve(curve, inner, high) if high > 2 else []
            rows += [*figures[:2], *(Text(row, "cyan", no_wrap=True) for row in drawn)]
            rows += figures[2:]
        title = Text(printable(self.title))
        return Panel(Group(*rows), title=title, title_align="left", width=width)

    def _bar(self, ends: Sequence[words.Ending], width: int) -> list[RenderableType]:
        """Return lines with the bar of the rule that will end the run, and the time until then."""
        if not ends:
            return [Text("until Ctrl-C")]
        said = Text(" · ".join(filter(None, (words.progress(ends), words.time_left(ends)))))
        bar = Bar(1.0, 0.0, ends[0].share, color="green", bgcolor="grey23")
        if len(said) + SHORTEST > width:
            return [bar, *said.wrap(self.printer.console, width)]
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_row(bar, said)
        return [grid]

    def _figures(self, status: Status, roles: Sequence[RoleState]) -> list[Text]:
        stop = self.stop
        goal = "" if stop.until_score is None else f" of {stop.until_score:.7g}"
        score = Text.assemble(
            "score ",
            (f"{words.number(status.score)}{goal}", "bold"),
            f" (mean of {min(status.games, WINDOW)} games) · best ",
            (words.number(status.best), "bold green"),
            f" · {status.games:,} games",
        )
        if status.evaluated is not None:
            wanted = stop.until_evaluated
            goal = f" of {wanted:.7g}" if isinstance(wanted, float | int) else ""
            score.append(f" · evaluated {words.number(status.evaluated)}{goal}")
        speed = f"{self._outlook.rate():,.0f} {words.unit(status)}/s"
        lines = [Text(f"{status.steps:,} steps · {clock(status.seconds)} · {speed}"), score]
        said = " · ".join(words.doing(status, roles, self._outlook.bound()))
        lines.append(Text(said, "dim" if status.version else "yellow"))
        if status.workers:
            lines.append(Text(" · ".join(words.about_workers(status.workers))))
        saved = Path(status.last_checkpoint).stem or "none yet"
        lines.append(Text(f"newest checkpoint: {saved}", "dim"))
        for line in lines:
            line.no_wrap, line.overflow = False, "fold"
        return lines


def _losses(values: dict[str, float]) -> list[str]:
    """Return what the algorithm reports, two values a line."""
    names = sorted(values, key=lambda name: (name not in MAIN, name))
    said = [f"{name.replace('_', ' ')} {values[name]:.3g}" for name in names]
    pairs = [said[i : i + 2] for i in range(0, len(said), 2)]
    half = FIGURES // 2
    return ["".join(f"{one[: half - 1]:<{half}}" for one in pair).rstrip() for pair in pairs[:4]]


def small_curve(curve: Curve, width: int, rows: int = 5) -> list[str]:
    """Return a drawing of (steps, seconds, score) points in ``rows`` lines of blocks.

    Columns are equal stretches of steps; each is as high as the mean of its scores. An empty
    column is as high as the one before.
    """
    if len(curve) < 2:
        return []
    scores = [score for _, _, score in curve]
    low, high = min(scores), max(scores)
    margin = max(len(f"{low:.1f}"), len(f"{high:.1f}"))
    columns = max(width - margin - 2, 1)
    first, last = curve[0][0], curve[-1][0]
    of_columns: dict[int, list[float]] = {}
    for steps, _, score in curve:
        column = min(int(columns * (steps - first) / max(last - first, 1)), columns - 1)
        of_columns.setdefault(column, []).append(score)
    heights: list[float] = []
    for column in range(columns):
        heights.append(fmean(of_columns[column]) if column in of_columns else heights[-1])
    span = max(high - low, 1e-9)
    eighths = [1 + round((8 * rows - 1) * (h - low) / span) for h in heights]
    lines = []
    for row in reversed(range(rows)):
        label = f"{high:.1f}" if row == rows - 1 else f"{low:.1f}" if row == 0 else ""
        cells = "".join(BLOCKS[min(max(e - 8 * row, 0), 8)] for e in eighths)
        lines.append(f"{label:>{margin}} ┤{cells}")
    return lines


def earlier_curve(folder: Path) -> Curve:
    """Return the curve of a run before it goes on, at most `EARLIER` points; [] of a new one."""
    rows: list[dict[str, float]] = []
    with suppress(OSError):
        rows = read_metrics(folder)
    points = [(int(row["steps"]), row["seconds"], row["score"]) for row in rows if "score" in row]
    return points[:: 1 + len(points) // EARLIER]


def on_terminal(table: ReportTable) -> Table:
    """Return a table as the terminal shows it: nothing in it is markup, or steers."""
    title = Text(printable(table.title), "table.title", justify="left")
    caption = Text(printable(table.caption), "table.caption", justify="left")
    found = Table(box=None, title=title, caption=caption)
    for name, right in table.heads:
        found.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in table.rows:
        found.add_row(*(Text(printable(cell)) for cell in row))
    return found
