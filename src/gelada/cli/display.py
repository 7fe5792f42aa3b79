"""What is seen while a run lasts: a live panel on a terminal, plain lines elsewhere.

It shares the machine with training, so it redraws twice a second and draws little.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from gelada.core.errors import printable
from gelada.core.timing import bounding_stage
from gelada.roles.tracker import WINDOW, Status, StopRule, Workers
from gelada.runtime.api import Active

LEAST_SIZE = (40, 12)
"""Columns and rows of a terminal for a live panel; a smaller one gets plain lines."""

LINE_SECONDS = 10.0
"""Between lines where output is no terminal."""

RECENT = 10.0
"""Seconds that rates are taken over."""

CURVE_ROWS = 5
BLOCKS = " ▁▂▃▄▅▆▇█"

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

    It never fails. What cannot be written, as the terminal is closed or the disk behind it full, is
    lost, and the command goes on.
    """

    def __init__(self, to_stderr: bool = False, console: Console | None = None) -> None:
        self.console = console or Unbroken(stderr=to_stderr, highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        width, height = self.console.size
        self.live = self.live and width >= LEAST_SIZE[0] and height >= LEAST_SIZE[1]

    def line(self, text: str) -> None:
        """Write one line (above a live panel, if there is one)."""
        with survived():
            self.console.print(printable(text), markup=False, soft_wrap=True)

    def table(self, table: RenderableType, soft_wrap: bool | None = None) -> None:
        """Write a table or the like; with ``soft_wrap`` False it is made to fit the width."""
        with survived():
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
    """

    def __init__(self, title: str, stop: StopRule, printer: Printer) -> None:
        self._title, self._stop, self._printer = title, stop, printer
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
        stages = {role.name: dict(role.clock.seconds) for role in active}
        self._loads.append(Load(status.seconds, status.steps, stages))
        while len(self._loads) > 2 and status.seconds - self._loads[1].seconds > RECENT:
            self._loads.popleft()
        if self._live:
            panel = self._panel(status)
            with survived():
                self._live.update(panel, refresh=True)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._printer.line(self.plain(status))

    def plain(self, status: Status) -> str:
        """Return the status in one line."""
        rate = self.rate()
        left = time_left(status, self._stop, rate)
        parts = [
            f"{status.steps:,} steps",
            f"{100 * share_done(status, self._stop):.0f} %",
            f"{rate:,.0f} {unit(status)}/s (bounded by {self.bound()})",
            f"score {number(status.score)}",
            f"best {number(status.best)}",
            *([] if status.evaluated is None else [f"evaluated {number(status.evaluated)}"]),
            f"{status.games:,} games",
            f"lag {status.lag[1]:.1f}",
            *(about_workers(status.workers) if status.workers else []),
        ]
        return ", ".join([*parts, f"{left} left"] if left else parts)

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

    def _panel(self, status: Status) -> Panel:
        rate = self.rate()
        width = max(min(self._printer.console.width, 100) - 6, 20)
        share = share_done(status, self._stop)
        saved = Path(status.last_checkpoint).stem or "none yet"
        left = time_left(status, self._stop, rate)
        bar = Table.grid(expand=True, padding=(0, 1))
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        bar.add_row(
            Bar(1.0, 0.0, share, color="green", bgcolor="grey23"),
            f"{100 * share:.0f} %" + (f" · {left} left" if left else ""),
        )
        goal = "" if self._stop.until_score is None else f" of {self._stop.until_score:g}"
        score = Text.assemble(
            "score ", (number(status.score) + goal, "bold"), f" (mean of {WINDOW} games) · best "
        )
        score.append(number(status.best), "bold green")
        score.append(f" · {status.games:,} games")
        if status.evaluated is not None:
            wanted = self._stop.until_evaluated
            goal = f" of {wanted:g}" if isinstance(wanted, float) else ""
            score.append(f" · evaluated {number(status.evaluated)}{goal}")
        limit = "" if self._stop.steps is None else f" of {self._stop.steps:,}"
        speed = f"{rate:,.0f} {unit(status)}/s"
        rows: list[RenderableType] = [
            bar,
            Text(f"{status.steps:,}{limit} steps · {clock(status.seconds)} · {speed}"),
            score,
            *([Text(" · ".join(about_workers(status.workers)))] if status.workers else []),
            *(Text(row, "cyan") for row in self._curve(status, width)),
            Text(
                f"bounded by {self.bound()} · policy lag {status.lag[1]:.1f} "
                f"(at most {status.lag[2]:.0f}) · checkpoint {saved}",
                "dim",
            ),
        ]
        title = Text(printable(self._title))
        return Panel(Group(*rows), title=title, title_align="left", width=width + 6)

    def _curve(self, status: Status, width: int) -> list[str]:
        """Return the drawing of the curve, for which a terminal needs more than ASCII."""
        ascii_only = self._printer.console.options.ascii_only
        return [] if ascii_only else small_curve(status.curve, width)


@contextmanager
def survived() -> Iterator[None]:
    """Go on after an error of the terminal or file that is written to."""
    with suppress(OSError, ValueError):  # ValueError: the file is closed
        yield


def unit(status: Status) -> str:
    """Return what is counted in a second: steps, or with workers the datapoints of all batches."""
    return "datapoints" if status.workers else "steps"


def about_workers(workers: Workers) -> list[str]:
    """Return how workers are doing, in a few phrases.

    Gradients that no server and that only some servers counted are shares of all so far; queue is
    trajectories in a worker's queue, waiting seconds of a learner before an update.
    """
    traffic = workers.traffic
    gradients = max(traffic.counted + traffic.dropped + traffic.partial, 1)
    return [
        f"{workers.active} of {workers.all} workers active",
        f"dropped {100 * traffic.dropped / gradients:.1f} %",
        f"partial {100 * traffic.partial / gradients:.1f} %",
        f"queue {workers.queue:.1f}",
        f"waiting {workers.waited:.2f} s",
    ]


def share_done(status: Status, stop: StopRule) -> float:
    """Return how near the nearest end of the run is, 0 to 1."""
    shares = [0.0]
    if stop.steps:
        shares.append(status.steps / stop.steps)
    if stop.minutes:
        shares.append(status.seconds / (60 * stop.minutes))
    if stop.until_score is not None and status.score is not None and status.curve:
        low = min(score for _, _, score in status.curve)
        shares.append((status.score - low) / max(stop.until_score - low, 1e-9))
    return min(max(shares), 1.0)


def time_left(status: Status, stop: StopRule, rate: float) -> str:
    """Return the time until the run must end, in words; "" if nothing is known."""
    left = []
    if stop.steps is not None and rate > 0:
        left.append(max(stop.steps - status.steps, 0) / rate)
    if stop.minutes is not None:
        left.append(max(60 * stop.minutes - status.seconds, 0.0))
    if not left:
        return ""
    sooner = stop.until_score is not None or stop.until_evaluated is not None
    return f"{'at most ' if sooner else ''}{clock(min(left))}"


def small_curve(
    curve: Sequence[tuple[int, float, float]], width: int, rows: int = CURVE_ROWS
) -> list[str]:
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
    heights = _columns(curve, columns)
    span = max(high - low, 1e-9)
    eighths = [1 + round((8 * rows - 1) * (h - low) / span) for h in heights]
    lines = []
    for row in reversed(range(rows)):
        label = f"{high:.1f}" if row == rows - 1 else f"{low:.1f}" if row == 0 else ""
        cells = "".join(BLOCKS[min(max(e - 8 * row, 0), 8)] for e in eighths)
        lines.append(f"{label:>{margin}} ┤{cells}")
    return lines


def _columns(curve: Sequence[tuple[int, float, float]], columns: int) -> list[float]:
    """Return the mean score in each of ``columns`` equal stretches of steps."""
    first, last = curve[0][0], curve[-1][0]
    sums, counts = [0.0] * columns, [0] * columns
    for steps, _, score in curve:
        column = min(int(columns * (steps - first) / max(last - first, 1)), columns - 1)
        sums[column] += score
        counts[column] += 1
    heights: list[float] = []
    for total, count in zip(sums, counts, strict=True):
        heights.append(total / count if count else heights[-1])
    return heights


def clock(seconds: float) -> str:
    """Return seconds as 3:05 or 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(score: float | None) -> str:
    """Return a score as text."""
    return "none" if score is None else f"{score:.2f}"
