"""Output that cannot be written costs a picture and never the run."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from conftest import catch
from gelada.cli import panel as panel_module
from gelada.cli.display import Display, Printer
from gelada.core.errors import GeladaError, printable
from gelada.roles.tracker import Status, StopRule, TrackerSettings
from gelada.runtime.api import Active
from gelada.training.callbacks import Alarms
from gelada.training.run import train
from helpers.launching import CATCH, complete

CURVE = [(step, float(step), step % 7 / 10) for step in range(0, 900, 10)]


def console_of(file: Any, terminal: bool = True, width: int = 80, height: int = 25) -> Console:
    return Console(file=file, force_terminal=terminal, width=width, height=height, highlight=False)


def plain(said: str) -> str:
    """Return what a terminal was sent without the codes of colours and the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)


def show_some(display: Display) -> None:
    clock = SimpleNamespace(seconds={"learn": 1.0}, stage="learn")
    role = cast("Active", SimpleNamespace(name="learner-0", clock=clock))
    with display:
        for step in range(3):
            display.watch(Status(steps=step, seconds=float(step), score=0.5, curve=CURVE), [role])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_a_terminal_that_speaks_little_gets_a_panel_without_the_curve(encoding: str) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    printer = Printer(console=console_of(file))
    show_some(Display("pong · runs/pong-1", StopRule(steps=9), printer))
    printer.line("score 0.5 ± 0.1 → runs/größe")
    file.flush()
    said = plain(raw.getvalue().decode(encoding))
    assert "score 0.5" in said
    assert ("┤" in said) == (encoding == "utf-8")


@pytest.mark.parametrize(("width", "height"), [(1, 1), (39, 50), (200, 3)])
def test_a_tiny_terminal_gets_plain_lines(width: int, height: int) -> None:
    file = io.StringIO()
    printer = Printer(console=console_of(file, width=width, height=height))
    assert not printer.live
    show_some(Display("pong", StopRule(), printer))
    printer.line("a line")
    assert "a line" in file.getvalue()


@pytest.mark.parametrize("name", ["runs/[red]", "a[/b]", "[[", "x\x1b[2Jy", "\udcff", "$x_{"])
def test_a_folder_may_have_any_name(name: str) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="utf-8", errors="replace")
    printer = Printer(console=console_of(file, width=120))
    show_some(Display(f"pong · {name}", StopRule(), printer))
    printer.line(f"into {name}")
    with printer.progress(f"playing {name}", "games") as report:
        report(1, 2)
    file.flush()
    said = raw.getvalue().decode()
    assert "\x1b[2J" not in said
    assert f"into {printable(name)}" in plain(said).replace("\n", "")


class Broken(io.StringIO):
    """A file that cannot be written to."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, _: str) -> int:
        raise self.error


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), OSError(28, "No space left"), ValueError("closed")]
)
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_that_is_gone_changes_nothing(error: Exception, terminal: bool) -> None:
    printer = Printer(console=console_of(Broken(error), terminal=terminal))
    show_some(Display("pong", StopRule(), printer))
    printer.line("a line")


def test_an_error_in_the_display_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> list[str]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(panel_module, "small_curve", broken)
    file = io.StringIO()
    show_some(Display("pong", StopRule(), Printer(console=console_of(file))))
    assert file.getvalue().count("the display failed: ZeroDivisionError: a bug") == 1


@pytest.mark.slow
def test_an_error_in_a_callback_ends_it_and_not_the_run(tmp_path: Path) -> None:
    calls: list[int] = []
    lines: list[str] = []

    def watch(status: Status, _: Sequence[Active]) -> None:
        calls.append(status.steps)
        raise KeyError("score")

    experiment = replace(catch(0), stop=StopRule(minutes=0.05))  # several looks
    result = train(experiment, tmp_path / "run", watch=watch, log=lines.append)
    assert len(calls) == 1
    assert result.status.steps > calls[0]
    assert (result.saved, result.interrupted) == (True, False)
    said = "the display or callback raised KeyError: 'score'; it is called no more"
    assert lines.count(said) == 1


def test_a_callback_may_end_the_run(tmp_path: Path) -> None:
    def watch(status: Status, _: Sequence[Active]) -> None:
        if status.version > 1:
            raise GeladaError("enough")

    with pytest.raises(GeladaError, match="enough"):
        train(catch(10_000_000), tmp_path / "run", watch=watch, log=lambda _: None)
    assert complete(tmp_path / "run")


def run_into(stdout: Any, folder: Path, shell: str = "") -> tuple[int, str]:
    """Train Catch with stdout going somewhere; return the exit code and stderr."""
    words = [*CATCH, "--out", str(folder), "--steps", "4000", "--checkpoint-seconds", "0.2"]
    command = [sys.executable, "-m", "gelada.cli.main", *words]
    if shell:
        command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
    done = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=300
    )
    return done.returncode, done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("where", ["a closed pipe", "a full disk", "nowhere"])
def test_a_run_goes_on_without_its_stdout(where: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    if where == "a closed pipe":  # as in: gelada train pong | head
        read, write = os.pipe()
        os.close(read)
        code, err = run_into(write, run)
        os.close(write)
        assert (code, err) == (0, "")
    elif where == "a full disk":
        with open("/dev/full", "w") as full:
            code, err = run_into(full, run)
        assert code in (0, 1)
        assert err.count("\n") <= 1
    else:
        code, err = run_into(None, run, shell=">&-")
        assert (code, err) == (0, "")
    assert complete(run)[-1]["steps"] >= 4000


@pytest.mark.processes
@pytest.mark.parametrize("words", [["games"], ["show", "catch"]])
def test_a_command_that_only_writes_fails_if_it_cannot(words: list[str]) -> None:
    command = [sys.executable, "-m", "gelada.cli.main", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_alarms_are_told_once_and_again_after_they_were_over() -> None:
    lines: list[str] = []
    alarms = Alarms(TrackerSettings(checkpoint_seconds=60.0, disk_patience=600.0), lines.append)
    for trouble in ("", "No space left", "No space left", "", "", "Stale file handle"):
        alarms.look(Status(trouble=trouble))
    for unsaved in (100.0, 180.0, 181.0, 500.0, 0.0, 200.0):
        alarms.look(Status(trouble="Stale file handle", unsaved=unsaved))
    alarms.look(Status(trouble="Stale file handle", no_events="RuntimeError: dead"))
    alarms.look(Status(trouble="Stale file handle", no_events="RuntimeError: dead"))
    assert [line.split(":")[0] for line in lines] == [
        "the run's folder cannot be written to",
        "the run's folder can be written to again",
        "the run's folder cannot be written to",
        "the newest checkpoint is 181 s old, and --checkpoint-seconds is 60",
        "the newest checkpoint is 200 s old, and --checkpoint-seconds is 60",
        "no more TensorBoard events",
    ]
    assert "training goes on for 600 s (--disk-patience)" in lines[0]
