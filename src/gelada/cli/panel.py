"""The panel that a terminal shows while a run lasts, and when the run will end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gelada.core.errors import printable
from gelada.core.timing import clock
from gelada.roles.tracker import WINDOW, Status, StopRule, WorkersStatus
from gelada.runtime.api import Active

Points = Sequence[tuple[float, float]]
"""(seconds, score), oldest first."""

LATELY = 1 / 3
"""Share of the time so far over which the trend of a score is taken …"""

LEAST_SECONDS = 20.0
"""… but at least so many seconds."""

LONGEST = 100 * 3600.0
"""A score that would be reached later than in so many seconds is not in sight."""


class Ending(NamedTuple):
    """How near one stop rule is."""

    what: str  # completes "43 % of …"
    share: float  # 0 to 1
    left: float | None  # seconds until it holds; None: there is no telling
    sure: bool  # the rule is one of steps or time, which come for certain


def endings(status: Status, stop: StopRule, rate: float, evaluations: Points = ()) -> list[Ending]:
    """Return how near each rule of a run is, the one that is expected first before the others.

    A score is expected where its trend of late leads to.

    Args:
        status: of the run.
        stop: its rules.
        rate: steps per second.
        evaluations: means of the evaluator, by the seconds when they were told.
    """
    found = []
    if stop.steps is not None:
        left = max(stop.steps - status.steps, 0) / rate if rate > 0 else None
        share = min(status.steps / stop.steps, 1.0)
        found.append(Ending(f"{stop.steps:,} steps", share, left, True))
    if stop.minutes is not None:
        end = 60 * stop.minutes
        left = max(end - status.seconds, 0.0)
        what = f"{stop.minutes:g} minute{'s' * (stop.minutes != 1)}"
        found.append(Ending(what, min(status.seconds / end, 1.0), left, True))
    if stop.until_score is not None:
        points = [(seconds, score) for _, seconds, score in status.curve]
        found.append(_of_score("a score of", points, stop.until_score))
    if isinstance(stop.until_evaluated, float | int):
        found.append(_of_score("an evaluated score of", evaluations, stop.until_evaluated))
    return sorted(found, key=lambda one: (one.left is None, one.left or 0.0, not one.sure))


def _of_score(what: str, points: Points, goal: float) -> Ending:
    """Return how near a score is to its goal, and when it will be there if it goes on like that."""
    what = f"the way to {what} {goal:g}"
    if not points:
        return Ending(what, 0.0, None, False)
    now, low = points[-1][1], min(score for _, score in points)
    share = min(max((now - low) / (goal - low), 0.0), 1.0) if goal > low else 1.0
    slope = trend(points)
    left = max(goal - now, 0.0) / slope if slope > 0 else None
    return Ending(what, share, left if left is not None and left < LONGEST else None, False)


def trend(points: Points) -> float:
    """Return the rise of a score in a second of late; 0 if there are too few points."""
    last = points[-1][0]
    since = last - max(LATELY * last, LEAST_SECONDS)
    recent = [point for point in points if point[0] >= since]
    half = len(recent) // 2
    if half < 1:
        return 0.0
    (t1, early), (t2, late) = (_middle(part) for part in (recent[:half], recent[half:]))
    return (late - early) / (t2 - t1) if t2 > t1 else 0.0


def _middle(points: Points) -> tuple[float, float]:
    """Return the means of time and score."""
    count = len(points)
    return sum(t for t, _ in points) / count, sum(score for _, score in points) / count


def progress(found: Sequence[Ending]) -> str:
    """Return how much is done by the rule that will end the run; "" without rules."""
    return f"{100 * found[0].share:.0f} % of {found[0].what}" if found else ""


def time_left(found: Sequence[Ending]) -> str:
    """Return the time until the run ends in words, such as "about 1:10 left, at most 4:58"."""
    if not found or found[0].left is None:
        return ""
    first = found[0]
    longest = min((one.left for one in found if one.sure and one.left is not None), default=None)
    if first.sure:
        sooner = any(not one.sure for one in found)
        return f"{'at most ' if sooner else ''}{clock(first.left)} left"
    most = "" if longest is None else f", at most {clock(longest)}"
    return f"about {clock(first.left)} left{most}"


Curve = Sequence[tuple[int, float, float]]
"""(steps, seconds, score), oldest first."""

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

PARTS = {
    "emulate": "the games themselves",
    "act": "choosing actions",
    "learn": "learning",
    "starting": "starting up",
}
"""Stages that can bound the speed, in words."""

DOING = {
    "emulate": "playing",
    "act": "playing",
    "load parameters": "playing",
    "start games": "starting games",
    "wait for experience": "waiting for games to learn from",
    "wait for parameters": "waiting for parameters",
    "wait for room": "waiting for the learner",
    "wait for the disk": "waiting for the disk",
    "learn": "learning a first batch",
}
"""What a role does in a stage."""


class View(NamedTuple):
    """Everything that the panel shows."""

    title: str
    status: Status
    stop: StopRule
    rate: float  # steps per second
    bound: str  # stage that bounds the speed
    ends: Sequence[Ending]
    curve: Curve
    doing: str  # what is waited for; "" once something was learned


def draw(view: View, width: int, height: int) -> Panel:
    """Return the panel for a terminal of so many columns and rows."""
    width = min(width, WIDEST)
    inner = width - 4
    rows = _bar(view, inner)
    room = height - 3 - len(rows)  # the frame, and the line of the cursor
    figures = [Text.assemble(*line, no_wrap=False, overflow="fold") for line in _figures(view)]
    if inner >= BESIDE:
        figures += [Text(line, "dim") for line in _losses(view.status.values)]
        figures = _that_fit(figures, FIGURES, room)
        high = min(max(_lines(figures, FIGURES), 5), MOST_ROWS, room)
        curve = small_curve(view.curve, inner - FIGURES - 3, high)
        beside = Table.grid(padding=(0, 3))
        beside.add_column(width=FIGURES)
        beside.add_column()
        beside.add_row(Group(*figures), Text("\n".join(curve), "cyan", no_wrap=True))
        rows.append(beside)
    else:
        figures = _that_fit(figures, inner, room)
        high = min(room - _lines(figures, inner), 5 if height < 30 else 8)
        curve = small_curve(view.curve, inner, high) if high > 2 else []
        rows += [*figures[:2], *(Text(row, "cyan", no_wrap=True) for row in curve), *figures[2:]]
    title = Text(printable(view.title))
    return Panel(Group(*rows), title=title, title_align="left", width=width)


def _that_fit(figures: Sequence[Text], width: int, room: int) -> list[Text]:
    """Return the first of the figures that fit into so many lines."""
    count = len(figures)
    while count > 2 and _lines(figures[:count], width) > room:
        count -= 1
    return list(figures[:count])


def _lines(figures: Sequence[Text], width: int) -> int:
    """Return how many lines figures take."""
    return sum(len(wrap(line.plain, width)) for line in figures)


def _bar(view: View, width: int) -> list[RenderableType]:
    """Return lines with the bar of the rule that will end the run, and the time until then."""
    said = " · ".join(filter(None, (progress(view.ends), time_left(view.ends))))
    share = view.ends[0].share if view.ends else 0.0
    bar = Bar(1.0, 0.0, share, color="green", bgcolor="grey23")
    if not view.ends:
        return [Text("until Ctrl-C")]
    if len(said) + SHORTEST > width:
        return [bar, *map(Text, wrap(said, width))]
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(bar, Text(said))
    return [grid]


def _figures(view: View) -> list[list[str | tuple[str, str]]]:
    """Return the lines of figures, each in parts with or without a style."""
    status, stop = view.status, view.stop
    speed = f"{view.rate:,.0f} {unit(status)}/s"
    goal = "" if stop.until_score is None else f" of {stop.until_score:g}"
    score: list[str | tuple[str, str]] = ["score ", (f"{number(status.score)}{goal}", "bold")]
    score += [f" (mean of {WINDOW} games) · best ", (number(status.best), "bold green")]
    score.append(f" · {status.games:,} games")
    if status.evaluated is not None:
        wanted = stop.until_evaluated
        goal = f" of {wanted:g}" if isinstance(wanted, float | int) else ""
        score.append(f" · evaluated {number(status.evaluated)}{goal}")
    saved = Path(status.last_checkpoint).stem
    lines: list[list[str | tuple[str, str]]] = [
        [f"{status.steps:,} steps · {clock(status.seconds)} · {speed}"],
        score,
    ]
    if view.doing:
        lines.append([(view.doing, "yellow")])
    else:
        lines.append([(f"{speed_limit(view.bound)} · {age_of_experience(status)}", "dim")])
    if status.workers:
        lines.append([" · ".join(about_workers(status.workers))])
    lines.append([(f"newest checkpoint: {saved or 'none yet'}", "dim")])
    return lines


def _losses(values: dict[str, float]) -> list[str]:
    """Return what the algorithm reports, two values a line."""
    names = sorted(values, key=lambda name: (name not in MAIN, name))
    said = [f"{name.replace('_', ' ')} {values[name]:.3g}" for name in names]
    pairs = [said[i : i + 2] for i in range(0, len(said), 2)]
    half = FIGURES // 2
    return ["".join(f"{one[: half - 1]:<{half}}" for one in pair).rstrip() for pair in pairs[:4]]


def speed_limit(bound: str) -> str:
    """Return what bounds the speed as a phrase."""
    return f"speed limited by {PARTS.get(bound, bound)}"


def age_of_experience(status: Status) -> str:
    """Return as a phrase how old the parameters are by which the newest batch was played."""
    _, mean, most = status.lag
    return f"learns from games {mean:.1f} updates old (at most {most:.0f})"


def waited_for(status: Status, active: Sequence[Active]) -> str:
    """Return what the roles do before anything was learned; "" afterwards."""
    if status.version:
        return ""
    if not active:
        return "before the first update · waiting for the processes of the run"
    doing: dict[str, dict[str, None]] = {}
    for role in active:
        kind = role.name.partition("-")[0]
        stage = role.clock.stage
        doing.setdefault(kind, {})[DOING.get(stage, stage)] = None
    said = (f"{kind}s: {' or '.join(stages)}" for kind, stages in doing.items())
    return f"before the first update · {' · '.join(said)}"


def unit(status: Status) -> str:
    """Return what is counted in a second: steps, or with workers the datapoints of all batches."""
    return "datapoints" if status.workers else "steps"


def about_workers(workers: WorkersStatus) -> list[str]:
    """Return how workers are doing, in a few phrases.

    Shares are of all gradients so far. A trajectory is queued until the worker's learner takes it;
    a learner waits for its own actors, and for the gradients of others.
    """
    traffic = workers.traffic
    gradients = max(traffic.counted + traffic.dropped + traffic.partial, 1)
    return [
        f"{workers.active} of {workers.all} workers active",
        f"{100 * traffic.dropped / gradients:.1f} % of gradients dropped",
        f"{100 * traffic.partial / gradients:.1f} % taken by some servers only",
        f"{workers.queue:.1f} trajectories queued",
        f"{workers.waited:.2f} s of waiting in an update",
    ]


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
    heights = _columns(curve, columns)
    span = max(high - low, 1e-9)
    eighths = [1 + round((8 * rows - 1) * (h - low) / span) for h in heights]
    lines = []
    for row in reversed(range(rows)):
        label = f"{high:.1f}" if row == rows - 1 else f"{low:.1f}" if row == 0 else ""
        cells = "".join(BLOCKS[min(max(e - 8 * row, 0), 8)] for e in eighths)
        lines.append(f"{label:>{margin}} ┤{cells}")
    return lines


def _columns(curve: Curve, columns: int) -> list[float]:
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


def number(score: float | None) -> str:
    """Return a score as text."""
    return "none" if score is None else f"{score:.2f}"
