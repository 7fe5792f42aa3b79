"""What is seen while a run lasts: a live panel on a terminal, plain lines elsewhere.

It shares the machine with training, so it redraws twice a second and draws little.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gelada.cli.panel import (
    Curve,
    View,
    about_workers,
    age_of_experience,
    draw,
    endings,
    number,
    progress,
    speed_limit,
    time_left,
    unit,
    waited_for,
)
from gelada.core.errors import printable
from gelada.core.timing import bounding_stage
from gelada.roles.tracker import Status, StopRule
from gelada.runs.curves import read_metrics
from gelada.runtime.api import Active

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from gelada.report.format import Table

LEAST_SIZE = (40, 12)
"""Columns and rows of a terminal for a live panel; a smaller one gets plain lines."""

LINE_SECONDS = 10.0
"""Between lines where output is no terminal."""

RECENT = 10.0
"""Seconds that rates are taken over."""

EARLIER = 1000
"""Points of the curve before a resume."""

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
        self._writing = survived if goes_on else nullcontext
        self.console = console or Unbroken(stderr=to_stderr, highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        width, height = self.console.size
        self.live = self.live and width >= LEAST_SIZE[0] and height >= LEAST_SIZE[1]

    def line(self, text: str) -> None:
        """Write one line (above a live panel, if there is one)."""
        with self._writing():
            self.console.print(printable(text), markup=False, soft_wrap=True)

    def table(self, table: RenderableType, soft_wrap: bool | None = None) -> None:
        """Write a table or the like; with ``soft_wrap`` False it is made to fit the width."""
        with self._writing():
            self.console.print(table, soft_wrap=soft_wrap)

    @contextmanager
    def progress(self, what: str, unit: str) -> Iterator[Report]:
        """Show a bar on a terminal and nothing but a first line elsewhere."""
        if not self.live:
            self.line(f"{what} …")
            yield lambda _done, _total: None
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


class Load(NamedTuple):
    """Seconds by stage of every active role at a moment."""

    seconds: float
    steps: int
    stages: dict[str, dict[str, float]]


class Display:
    """Shows a run's status; give `watch` to `gelada.training.run.train`.

    Args:
        title: of the panel.
        stop: the run's stop rule, for the bar and the time left.
        printer: where to.
        earlier: the curve of the run before it was resumed.
    """

    def __init__(self, title: str, stop: StopRule, printer: Printer, earlier: Curve = ()) -> None:
        self._title, self._stop, self._printer = title, stop, printer
        self._earlier = earlier
        self._evaluations: list[tuple[float, float]] = []  # seconds, mean
        self._loads: deque[Load] = deque()
        self._live: Live | None = None
        self._broken = False
        self._last_line = time.monotonic()

    def __enter__(self) -> Display:
        if self._printer.live:
            with survived():
                self._live = Live(console=self._printer.console, auto_refresh=False)
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            with survived():
                self._live.stop()

    def watch(self, status: Status, active: Sequence[Active]) -> None:
        """Show the status (cheap; called about twice a second). An error costs the picture only."""
        try:
            self._show(status, active)
        except Exception as error:
            if not self._broken:
                self._broken = True
                self._printer.line(f"the display failed: {type(error).__name__}: {error}")

    def _show(self, status: Status, active: Sequence[Active]) -> None:
        if self._loads and not self._loads[-1].seconds:
            self._loads.clear()  # of a time when processes were started and the clock not told
        stages = {role.name: dict(role.clock.seconds) for role in active}
        self._loads.append(Load(status.seconds, status.steps, stages))
        while len(self._loads) > 2 and status.seconds - self._loads[1].seconds > RECENT:
            self._loads.popleft()
        told = self._evaluations[-1][1] if self._evaluations else None
        if status.evaluated is not None and status.evaluated != told:
            self._evaluations.append((status.seconds, status.evaluated))
        if self._live:
            width, height = self._printer.console.size
            panel = draw(self.view(status, active), width, height)
            with survived():
                self._live.update(panel, refresh=True)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._printer.line(self.plain(status, active))

    def view(self, status: Status, active: Sequence[Active]) -> View:
        """Return everything that the panel shows."""
        rate = self.rate()
        ends = endings(status, self._stop, rate, self._evaluations)
        doing = waited_for(status, active)
        curve = [] if self._printer.console.options.ascii_only else self.curve(status)
        return View(self._title, status, self._stop, rate, self.bound(), ends, curve, doing)

    def curve(self, status: Status) -> Curve:
        """Return the curve of the run, with what it was before the run was resumed."""
        begin = status.curve[0][0] if status.curve else status.steps + 1
        return [*(point for point in self._earlier if point[0] < begin), *status.curve]

    def plain(self, status: Status, active: Sequence[Active] = ()) -> str:
        """Return the status in one line."""
        rate = self.rate()
        ends = endings(status, self._stop, rate, self._evaluations)
        doing = waited_for(status, active)
        parts = [
            f"{status.steps:,} steps",
            f"{rate:,.0f} {unit(status)}/s",
            f"score {number(status.score)}",
            f"best {number(status.best)}",
            *([] if status.evaluated is None else [f"evaluated {number(status.evaluated)}"]),
            f"{status.games:,} games",
            *([doing] if doing else [speed_limit(self.bound()), age_of_experience(status)]),
            *(about_workers(status.workers) if status.workers else []),
            progress(ends),
            time_left(ends),
        ]
        return ", ".join(filter(None, parts))

    def rate(self) -> float:
        """Return steps per second of late."""
        first, last = self._loads[0], self._loads[-1]
        return (last.steps - first.steps) / max(last.seconds - first.seconds, 1e-9)

    def bound(self) -> str:
        """Return the stage that bounds the speed of late."""
        first, last = self._loads[0].stages, self._loads[-1].stages
        return bounding_stage(
            {
                role: {name: s - first.get(role, {}).get(name, 0.0) for name, s in stages.items()}
                for role, stages in last.items()
            }
        )


def earlier_curve(folder: Path) -> Curve:
    """Return the curve of a run that is to be resumed, at most `EARLIER` points of it."""
    rows: list[dict[str, float]] = []
    with suppress(OSError):
        rows = read_metrics(folder)
    points = [(int(row["steps"]), row["seconds"], row["score"]) for row in rows if "score" in row]
    return points[:: 1 + len(points) // EARLIER]


def on_terminal(table: Table) -> RichTable:
    """Return a table of a report as the terminal shows it."""
    from rich.table import Table as RichTable

    found = RichTable(box=None, title=table.title, caption=table.caption)
    found.title_justify = found.caption_justify = "left"
    for name, right in table.heads:
        found.add_column(name, justify="right" if right else "left")
    for row in table.rows:
        found.add_row(*row)
    return found


@contextmanager
def survived() -> Iterator[None]:
    """Go on after an error of the terminal or file that is written to."""
    with suppress(OSError, ValueError):  # ValueError: the file is closed
        yield
