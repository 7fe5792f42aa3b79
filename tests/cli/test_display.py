"""What is shown while a run lasts."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from colobus.cli.display import Curve, Display, Printer, earlier_curve, on_terminal, small_curve
from colobus.core.errors import printable
from colobus.core.timing import Clock, bounding_stage, clock
from colobus.core.types import Traffic
from colobus.report.format import Table as ReportTable
from colobus.roles.tracker import Status, StopRule, WorkersStatus
from colobus.runtime.api import RoleState
from colobus.training.outlook import Outlook, ProgressLine
from colobus.training.words import about_workers, endings, number, progress, time_left, trend


def role(name: str, **seconds: float) -> RoleState:
    spent = {stage.replace("_", " "): s for stage, s in seconds.items()}
    stage = next(reversed(spent), "starting")
    return RoleState(name, stage, False, 0.0, 1, spent, False, False)


def printer(terminal: bool, width: int = 90, height: int = 30) -> tuple[Printer, io.StringIO]:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=terminal, width=width, height=height, soft_wrap=True
    )
    return Printer(console=console), file


def plain(said: str) -> str:
    """Return what a terminal was sent without the codes of colours and the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)


STATUS = Status(
    steps=430_080,
    seconds=252.0,
    version=420,
    games=812,
    score=15.7,
    best=16.02,
    last_checkpoint="00000412.safetensors",
    lag=(1.0, 1.2, 2.0),
)
TRAFFIC = Traffic(counted=900, dropped=75, partial=25, moved=10**9)
WORKERS = WorkersStatus(active=3, all=4, traffic=TRAFFIC, updates=1001, queue=1.25, waited=0.126)
OF_WORKERS = replace(STATUS, workers=WORKERS, evaluated=17.28)
ROLES = [
    role("learner-0", learn=50.0, wait_for_experience=10.0),
    role("actor-0", act=20.0, emulate=30.0),
]
CURVE = [(374_000 + 1000 * i, 220.0 + 0.6 * i, i - 21.0) for i in range(37)]
MILLION = StopRule(steps=1_000_000)


def shown_at(
    width: int, height: int, view: Status, stop: StopRule = MILLION, earlier: Curve = CURVE
) -> list[str]:
    """Return the lines of the panel at a size, without codes."""
    to, file = printer(terminal=True, width=width, height=height)
    with Display("pong · runs/pong-1", stop, to, earlier) as shown:
        shown.watch(Status(steps=411_000, seconds=242.0), [])
        shown.watch(view, ROLES)
    return ("╭" + plain(file.getvalue()).split("╭")[-1]).rstrip().splitlines()


def test_a_table_that_is_no_terminals_cuts_no_name() -> None:
    name = "dba3c-breakout-" + 100 * "1"
    for terminal in (True, False):
        written, file = printer(terminal)
        written.table(on_terminal(ReportTable(("run", "game"), ((name, "pong"),))), soft_wrap=False)
        assert (name in file.getvalue()) is not terminal


def test_the_stage_that_bounds_the_speed() -> None:
    learner = {"learn": 4.0, "report": 0.1, "wait for experience": 5.0}
    actor = {"act": 1.0, "emulate": 4.0}
    for other, bound in (
        ({"act": 3.0, "emulate": 2.0, "wait for parameters": 9.0}, "emulate"),
        ({"act": 6.0, "emulate": 2.0}, "act"),
    ):
        assert bounding_stage({"learner-0": learner, "actor-0": other, "actor-1": actor}) == bound
    assert bounding_stage({"learner-0": {"learn": 5.0, "wait for experience": 4.0}}) == "learn"
    assert bounding_stage({}) == "starting"


def test_time_of_a_stage_inside_of_another_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("colobus.core.timing.now", lambda: float(next(seconds)))
    clock = Clock()
    with clock("learn"):  # from 1 on
        for _ in range(2):
            with clock("wait for learners"):  # a second each
                pass
    assert clock.seconds == {"wait for learners": 2.0, "learn": 3.0}  # of 1 to 6


def test_only_the_last_seconds_count_for_rate_and_bound() -> None:
    shown = Outlook(StopRule(steps=100_000))
    for second in range(31):
        learned, waited = min(second, 15), max(second - 15, 0)
        shown.see(
            Status(steps=1000 * learned + 200 * waited, seconds=float(second)),
            [
                role("learner-0", learn=learned, wait_for_experience=waited),
                role("actor-0", act=0.1 * second, emulate=0.5 * second),
            ],
        )
    assert shown.rate() == pytest.approx(200.0)
    assert shown.bound() == "emulate"


def test_the_time_in_which_processes_were_started_does_not_count_for_the_rate() -> None:
    """After a resume the first status with a time has that of the run before."""
    shown = Outlook(StopRule(steps=100_000))
    shown.see(Status(steps=50_000), [])
    for second in range(3):
        shown.see(Status(steps=50_000 + 700 * second, seconds=500.0 + second), ROLES)
    assert shown.rate() == pytest.approx(700.0)


def test_the_speed_after_a_restore_is_that_since_then() -> None:
    shown = Outlook(StopRule(steps=100_000))
    for second in range(9):
        restored = 4000 if second >= 6 else 0
        shown.see(Status(steps=1000 * second - restored, seconds=1.0 + second), ROLES)
        assert shown.rate() == pytest.approx(1000.0 if second not in (0, 6) else 0.0)


def test_the_curve_has_the_height_of_its_scores() -> None:
    curve = [(1000 * i, 1.0 * i, float(i)) for i in range(100)]
    lines = small_curve(curve, width=30, rows=4)
    assert len(lines) == 4
    assert {len(line) for line in lines} == {30}
    assert lines[0].startswith("99.0 ┤")
    assert lines[-1].startswith(" 0.0 ┤")
    cells = [line[6:] for line in lines]
    filled = ["".join(row[x] for row in cells).count("█") for x in range(24)]
    assert filled == sorted(filled)
    assert (filled[0], filled[-1]) == (0, 3)  # the last column's top cell is a mean below 99
    assert cells[-1][0] == "▂"  # the mean of the first scores is a little above the lowest
    assert cells[0][-1] in "▆▇"


def test_the_curve_keeps_its_height_where_nothing_was_measured() -> None:
    lines = small_curve([(0, 0.0, 0.0), (1000, 1.0, 1.0)], width=14, rows=1)
    assert lines == ["1.0 ┤▁▁▁▁▁▁▁▁█"]
    assert small_curve([(0, 0.0, 1.0)], width=14) == []
    flat = small_curve([(0, 0.0, 2.0), (1000, 1.0, 2.0)], width=14, rows=1)
    assert flat == ["2.0 ┤▁▁▁▁▁▁▁▁▁"]


def test_the_panel_says_everything_and_fits() -> None:
    lines = shown_at(90, 30, STATUS, StopRule(steps=1_000_000, until_score=18.0))
    for words in (
        "pong · runs/pong-1",
        "of the way to a score of 18 · about 0:0",
        "at most 4:58",
        "430,080 steps · 4:12 · 1,908 steps/s",
        "score 15.70 of 18 (mean of 50 games) · best 16.02 · 812 games",
        "speed limited by learning · learns from games 1.2 updates old (at most 2)",
        "newest checkpoint: 00000412",
        "┤",
    ):
        assert words in "\n".join(lines), words
    assert max(map(len, lines)) <= 90


def test_plain_lines_where_there_is_no_terminal(now: list[float]) -> None:
    to, file = printer(terminal=False)
    with Display("pong", StopRule(steps=1_000_000), to) as shown:
        for second in range(31):
            shown.watch(Status(steps=2000 * second, seconds=float(second)), ROLES)
            now[0] += 1.0
    lines = file.getvalue().splitlines()
    assert len(lines) == 3  # after 2, 12 and 22 seconds
    assert lines[1] == (
        "24,000 steps, 2,000 steps/s, score none, best none, 0 games, before the first update · "
        "learners: waiting for games to learn from · actors: playing, 2 % of 1,000,000 steps, "
        "8:08 left"
    )
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize("where", ["terminal", "notebook", "pipe", "own log"])
def test_the_line_of_a_program_changes_in_place_where_that_is_shown(
    where: str,
    now: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = list[str]()
    monkeypatch.setattr("sys.stdout.isatty", lambda: where in ("terminal", "own log"))
    monkeypatch.setenv("COLUMNS", "40")
    if where == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    line = ProgressLine(StopRule(steps=1_000_000), own.append if where == "own log" else print)
    for second in range(4):
        line.watch(Status(steps=2000 * second, seconds=float(second)), ROLES)
        now[0] += 1.0
    line.log("the end")
    said = capsys.readouterr().out
    if where in ("pipe", "own log"):  # after 2 seconds
        (first, last) = own or said.splitlines()
        assert first.startswith("4,000 steps, 2,000 steps/s, score none")
        assert last == "the end"
        return
    *shown, cleared, end = said.split("\r")[1:]
    assert [one.split(" steps")[0] for one in shown] == ["0", "2,000", "4,000", "6,000"]
    assert (cleared.strip(), end) == ("", "the end\n")
    assert len(cleared) >= len(shown[-1])
    assert all(len(one) <= 39 for one in shown) == (where == "terminal")


def test_workers_in_words() -> None:
    assert about_workers(WORKERS) == [
        "3 of 4 workers active",
        "7.5 % of gradients dropped",
        "2.5 % taken by some servers only",
        "1.2 kept in the replay",
        "0.13 s of waiting in an update",
    ]
    none = about_workers(WORKERS._replace(traffic=Traffic()))
    assert none[1:3] == ["0.0 % of gradients dropped", "0.0 % taken by some servers only"]


def test_the_plain_line_of_workers() -> None:
    shown = Outlook(StopRule(steps=1_000_000))
    shown.see(Status(steps=411_000, seconds=242.0), [])
    shown.see(OF_WORKERS, ROLES)
    assert shown.line(OF_WORKERS) == (
        "430,080 steps, 1,908 datapoints/s, score 15.70, best 16.02, evaluated 17.28, 812 games, "
        "speed limited by learning, learns from games 1.2 updates old (at most 2), "
        "3 of 4 workers active, 7.5 % of gradients dropped, 2.5 % taken by some servers only, "
        "1.2 kept in the replay, 0.13 s of waiting in an update, 43 % of 1,000,000 steps, "
        "4:58 left"
    )


def test_progress_counts_on_a_terminal_and_is_a_line_now_and_then_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to, file = printer(terminal=True)
    with to.progress("playing", "games") as report:
        report(0, 50)
        report(20, 50)
    said = plain(file.getvalue())
    assert "of 1 games" not in said  # nothing before it knows of how many
    assert "20 of 50 games" in said
    to, file = printer(terminal=False)
    seconds = {"monotonic.side_effect": [0.0, 9.9, 10.0, 10.0, 19.0, 35.0, 35.0]}
    monkeypatch.setattr("colobus.cli.display.time", Mock(**seconds))
    with to.progress("playing", "games") as report:
        for done in (1, 20, 30, 40):
            report(done, 50)
    assert file.getvalue() == "playing …\nplaying: 20 of 50 games\nplaying: 40 of 50 games\n"


@pytest.mark.parametrize(("width", "height"), [(40, 12), (60, 16), (80, 24), (120, 30), (200, 50)])
def test_the_panel_fits_any_terminal(width: int, height: int) -> None:
    stop = StopRule(steps=1_000_000, until_score=18.0, until_evaluated=300.0)
    lines = shown_at(width, height, OF_WORKERS, stop=stop)
    assert {len(line) for line in lines} == {width}
    assert len(lines) < height
    text = " ".join(" ".join(line.strip("│ ") for line in lines).split())
    for words in ("1,908 datapoints/s", "score 15.70 of 18", "812 games", "17.28 of 300"):
        assert words in text, words
    assert ("3 of 4 workers active" in text) == (height > 12)
    assert ("newest checkpoint:" in text) == (height > 12)  # the least important line


def test_a_wide_terminal_has_the_curve_beside_the_figures_and_losses() -> None:
    status = replace(STATUS, values={"policy_loss": -0.0123, "value_loss": 0.5, "entropy": 1.25})
    lines = shown_at(160, 40, status)
    (both,) = (line for line in lines if "1,908 steps/s" in line)
    assert "15.7 ┤" in both  # the highest score of the curve
    text = "\n".join(lines)
    assert "policy loss -0.0123" in text
    assert "entropy 1.25" in text
    assert max(line.count("█") for line in lines if "┤" in line) > 30
    assert "policy loss" not in "\n".join(shown_at(80, 40, status))


def test_after_a_resume_the_old_curve_is_there(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"steps": 1000 * i, "seconds": 0.5 * i, "games": i, "score": -20.0 + i} for i in range(31)
    ]
    rows.append({"steps": 31_000, "seconds": 15.5, "games": 31, "score": None})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    earlier = earlier_curve(tmp_path)
    assert earlier[0] == (0, 0.0, -20.0)
    assert len(earlier) == 31
    shown = Outlook(StopRule(), [*earlier])
    shown.see(Status(steps=25_000), [])  # of the checkpoint
    new = [(25_000, 12.5, 5.0), (25_500, 13.0, 6.0), (26_000, 13.5, 7.0)]
    for steps, seconds, score in new:
        shown.see(Status(steps=steps, seconds=seconds, score=score), [])
    assert shown.curve == [*(point for point in earlier if point[0] < 25_000), *new]
    status = Status(steps=26_000, seconds=13.5, score=7.0, version=5)
    lines = shown_at(80, 24, status, earlier=earlier)
    assert any("-20.0 ┤" in line for line in lines)
    assert earlier_curve(tmp_path / "nothing") == []


def test_points_of_a_long_run_are_further_from_one_another() -> None:
    shown = Outlook(StopRule())
    for second in range(1, 20_001):
        shown.see(Status(steps=10 * second, seconds=float(second), score=1.0), [])
        assert shown.curve[-1] == (10 * second, float(second), 1.0)
    seconds = [second for _, second, _ in shown.curve]
    assert seconds[:200] == [float(second) for second in range(1, 201)]
    assert all(0 < b - a <= b / 500 + 1 for a, b in itertools.pairwise(seconds))
    assert 2000 < len(seconds) < 3000


def test_before_the_first_update_it_says_what_is_waited_for() -> None:
    to, file = printer(terminal=True)
    begun = [role("learner-0"), role("actor-0", start_games=1.0), role("actor-1", emulate=1.0)]
    with Display("t", StopRule(), to) as shown:
        shown.watch(Status(), begun)
    said = "before the first update · learners: starting · actors: starting games or playing"
    assert said in file.getvalue()
    assert "speed limited" not in file.getvalue()
    with Display("t", StopRule(), to) as shown:
        shown.watch(Status(), [])  # as on Ray while they start
    assert "before the first update · waiting for the processes of the run" in file.getvalue()


RISING = [(100 * s, float(s), -20.0 + 0.1 * s) for s in range(201)]
"""A score that rises by 0.1 a second, from -20 to 0 in 200 seconds."""

FLAT = [(100 * s, float(s), -20.0) for s in range(201)]
SLOW = [(100 * s, float(s), 0.00001 * s) for s in range(201)]
BEGUN, OVER = [(250, 60.0, 0.0)], [(2000, 0.0, 0.0)]


@pytest.mark.parametrize(
    ("curve", "stop", "done", "left"),
    [
        (BEGUN, StopRule(steps=1000), "25 % of 1,000 steps", "0:07 left"),
        (BEGUN, StopRule(minutes=2), "50 % of 2 minutes", "1:00 left"),
        ([(0, 30.0, 0.0)], StopRule(minutes=1), "50 % of 1 minute", "0:30 left"),
        # the sooner of two certain ones
        (BEGUN, StopRule(steps=1000, minutes=2), "25 % of 1,000 steps", "0:07 left"),
        (  # a score that rises comes sooner than the steps
            RISING,
            StopRule(steps=100_000, until_score=10.05),
            "67 % of the way to a score of 10.05",
            "about 1:40 left, at most 13:20",
        ),
        (  # or later
            RISING,
            StopRule(steps=25_000, until_score=10.0),
            "80 % of 25,000 steps",
            "at most 0:50 left",
        ),
        (  # one that does not rise is not waited for
            FLAT,
            StopRule(steps=100_000, until_score=10.0),
            "20 % of 100,000 steps",
            "at most 13:20 left",
        ),
        (FLAT, StopRule(until_score=10.0), "0 % of the way to a score of 10", ""),
        (SLOW, StopRule(until_score=10.0), "0 % of the way to a score of 10", ""),
        ([(5, 0.0, 1.0)], StopRule(until_score=10.0), "0 % of the way to a score of 10", ""),
        (OVER, StopRule(steps=1000), "100 % of 1,000 steps", "0:00 left"),
        (OVER, StopRule(), "", ""),
    ],
)
def test_the_rule_that_comes_first(curve: Curve, stop: StopRule, done: str, left: str) -> None:
    steps, seconds, score = curve[-1]
    games = 50 if len(curve) > 1 else 0  # of fewer there is no score that counts
    status = Status(steps=steps, seconds=seconds, games=games, score=score)
    found = endings(status, stop, 100.0, scores=[(second, mean) for _, second, mean in curve])
    assert progress(found) == done
    assert time_left(found) == left


def test_evaluations_have_a_trend_of_their_own() -> None:
    stop = StopRule(steps=100_000, until_evaluated=20.05)
    status = Status(steps=20_000, seconds=200.0, evaluated=10.0)
    one = endings(status, stop, 100.0, [(200.0, 10.0)])
    assert progress(one) == "20 % of 100,000 steps"
    assert time_left(one) == "at most 13:20 left"
    two = endings(status, stop, 100.0, [(150.0, 5.0), (200.0, 10.0)])
    assert progress(two) == "33 % of the way to an evaluated score of 20.05"
    assert time_left(two) == "about 1:40 left, at most 13:20"


def test_the_trend_is_that_of_late() -> None:
    points = [(float(s), max(0.0, s - 60.0)) for s in range(91)]  # flat for a minute
    assert trend(points) == pytest.approx(1.0)
    assert trend(points[:50]) == 0.0
    assert trend(points[:1]) == 0.0
    assert trend([(5.0, 1.0), (5.0, 2.0)]) == 0.0


def test_nothing_is_said_of_a_run_that_stands_still() -> None:
    found = endings(Status(steps=250), StopRule(steps=1000, until_score=5.0), rate=0.0)
    assert (progress(found), time_left(found)) == ("25 % of 1,000 steps", "")


def test_scores_and_times_as_text() -> None:
    assert [number(s) for s in (None, 1.0, -20.456)] == ["none", "1.00", "-20.46"]
    assert [clock(s) for s in (0, 65.9, 3600, 7384)] == ["0:00", "1:05", "1:00:00", "2:03:04"]


def show_some(display: Display) -> None:
    with display:
        for step in range(3):
            status = Status(steps=step, seconds=float(step), score=0.5)
            display.watch(status, [role("learner-0", learn=1.0)])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_a_terminal_that_speaks_little_gets_a_panel_without_the_curve(encoding: str) -> None:
    raw = io.BytesIO()
    to, _ = printer(terminal=True)
    to.console.file = file = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    show_some(Display("pong · runs/pong-1", StopRule(steps=9), to))
    to.line("score 0.5 ± 0.1 → runs/größe")
    file.flush()
    said = plain(raw.getvalue().decode(encoding))
    assert "score 0.5" in said
    assert ("┤" in said) == (encoding == "utf-8")


@pytest.mark.parametrize(("width", "height"), [(1, 1), (39, 50), (200, 3)])
def test_a_tiny_terminal_gets_plain_lines(width: int, height: int) -> None:
    to, file = printer(terminal=True, width=width, height=height)
    assert not to.live
    show_some(Display("pong", StopRule(), to))
    to.line("a line")
    assert "a line" in file.getvalue()


NAMES = ["runs/[red]", "a[/b]", "[[", "x\x1b[2Jy", "\udcff", "$x_{", "x" * 200]


def test_no_word_becomes_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("env.py:100: ValueError", "my_games:snake: seen", "--resume runs/lr:a:b"):
        Printer().line(line)
        assert capsys.readouterr().out == f"{line}\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_may_have_any_name(name: str) -> None:
    to, file = printer(terminal=True, width=120)
    show_some(Display(f"pong · {name}", StopRule(), to))
    to.line(f"into {name}")
    with to.progress(f"playing {name}", "games") as report:
        report(1, 2)
    said = file.getvalue().encode(errors="replace").decode()
    assert "\x1b[2J" not in said
    assert f"into {printable(name)}" in plain(said)


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), OSError(28, "No space left"), ValueError("closed")]
)
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_that_is_gone_changes_nothing(
    error: Exception, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, file = printer(terminal)
    monkeypatch.setattr(file, "write", Mock(side_effect=error))
    show_some(Display("pong", StopRule(), to))
    to.line("a line")


def test_an_error_in_the_display_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Mock(side_effect=ZeroDivisionError("a bug"))
    monkeypatch.setattr("colobus.cli.display.small_curve", broken)
    to, file = printer(terminal=True)
    show_some(Display("pong", StopRule(), to))
    assert file.getvalue().count("the display failed: ZeroDivisionError: a bug") == 1
