"""Output that cannot be written costs a picture and never the run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.cli.experiment_flags import resolve
from colobus.cli.train import Train, launched
from colobus.core.errors import ColobusError
from colobus.experiment.presets import preset
from colobus.roles.tracker import Status, TrackerSettings
from colobus.runtime.api import RoleState
from colobus.training.callbacks import Alarms, Callbacks, StopTraining
from colobus.training.run import train
from colobus.training.start import least_steps
from colobus.training.words import how_it_went, how_to_go_on, where_everything_is, why_less
from conftest import catch
from helpers.launching import CATCH, complete
from helpers.launching import colobus as command
from helpers.ray_runs import imported


@pytest.mark.slow
def test_an_error_in_a_callback_ends_it_and_not_the_run(tmp_path: Path) -> None:
    calls: list[int] = []
    later: list[int] = []
    lines: list[str] = []

    def watch(status: Status, _: Sequence[RoleState]) -> None:
        calls.append(status.steps)
        raise KeyError("score")

    def end(status: Status) -> None:
        if calls:
            later.append(status.steps)
        if len(later) == 3:  # looks, after each of which it could have been called again
            raise StopTraining("enough")

    run, told = tmp_path / "run", Callbacks(on_update=end)
    result = train(catch(10_000_000), run, watch=watch, log=lines.append, callbacks=told)
    assert len(calls) == 1
    assert result.status.steps > calls[0]
    assert (result.saved, result.interrupted, result.stopped) == (True, False, "enough")
    said = "the display or callback raised KeyError: 'score'; it is called no more"
    assert lines.count(said) == 1


@pytest.mark.slow
def test_a_callback_may_end_the_run(tmp_path: Path) -> None:
    def watch(status: Status, _: Sequence[RoleState]) -> None:
        if status.version > 1:
            raise ColobusError("enough")

    with pytest.raises(ColobusError, match="enough"):
        train(catch(10_000_000), tmp_path / "run", watch=watch, log=lambda _: None)
    assert complete(tmp_path / "run")


@pytest.mark.processes
@pytest.mark.parametrize("where", ["| true", "> /dev/full", ">&-"])
def test_a_run_goes_on_without_its_stdout(where: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*CATCH, "--out", str(run), "--steps", "4000", "--checkpoint-seconds", "0.2"]
    shell = ["bash", "-o", "pipefail", "-c", f'"$@" {where}', "bash", sys.executable]
    done = subprocess.run(
        [*shell, "-m", "colobus.cli.main", *words], stderr=subprocess.PIPE, text=True, timeout=300
    )
    full = int(where == "> /dev/full")
    assert done.returncode in (0, full)
    assert done.stderr.count("\n") <= full
    assert complete(run)[-1]["steps"] >= 4000


@pytest.mark.processes
def test_a_command_that_only_writes_fails_if_it_cannot() -> None:
    command = [sys.executable, "-m", "colobus.cli.main", "games"]
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


def test_without_ray_no_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(monkeypatch, everywhere=False)  # nothing is open to the network or to other users
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it was not installed
    monkeypatch.delitem(sys.modules, "colobus.runtime.ray.session", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    code, out, err = command("train", "catch", "--on", "ray", "--out", tmp_path / "run")
    assert code == 2
    assert out.startswith("learning catch into ")
    assert "; first it starts Ray on this machine, which takes some seconds\n" in out
    assert "install it with: pip install 'colobus[cluster]'" in err
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_must_be_longer_than_asked_says_so(tmp_path: Path) -> None:
    def learned(name: str, **more: Any) -> tuple[int, list[str]]:
        """Return the steps of a run, and its lines about them."""
        lines: list[str] = []
        run = colobus.train("catch", tmp_path / name, tensorboard=False, log=lines.append, **more)
        return run.steps, [line for line in lines if "--steps" in line]

    short, said = learned("short", steps=10)
    random = "random ones that measure the input (--random-steps 512) and a first batch"
    assert said == [f"--steps 10: the run will have at least {short:,} steps: {random}"]
    assert learned("long", steps=short) == (short, [])
    on, said = learned("on", from_run=tmp_path / "short", steps=10)  # which needs no random steps
    assert said == [f"--steps 10: the run will have at least {on:,} steps: a first batch"]


@pytest.mark.parametrize(
    ("name", "least"),
    [("ALE/Pong-v5", 6_144), ("catch", 1_024), ("gorila-catch", 1_012), ("catch-pair", 1_536)],
)
def test_the_fewest_steps_of_a_run(name: str, least: int) -> None:
    experiment = preset(name)[0]
    assert least_steps(experiment) == least, experiment.shape


def test_no_score_is_called_the_mean_of_no_games() -> None:
    none = how_it_went(Status(steps=6_144, seconds=3.0))
    assert none == "6,144 steps in 0:03; no game was over yet, so there is no score"
    some = Status(steps=9_000, seconds=65.0, games=7, score=-20.5)
    assert how_it_went(some).endswith("1:05; mean score of the last 7 games: -20.50")
    many = Status(steps=9_000, seconds=65.0, games=70, score=1.0)
    assert how_it_went(many).endswith("mean score of the last 50 games: 1.00")
    assert how_it_went(Status(games=1, score=1.0)).endswith("score of the last game: 1.00")


COMMAND = re.compile(r"\b(with|as|again|see):? colobus [a-z]")
"""What introduces a command that can be copied, and its beginning where nobody looked for it."""


@pytest.mark.slow
def test_commands_in_messages_can_be_copied_by_whoever_reads_them() -> None:
    """They begin with `program()`, in all strings but docstrings and the list of commands."""
    copied = []
    for path in sorted(Path(colobus.__file__).parent.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        strings = [node for node in nodes if isinstance(node, ast.Constant)]
        texts = [str(node.value) for node in strings if id(node) not in docstrings]
        copied += [(path.name, text) for text in texts if COMMAND.search(text)]
    assert [name for name, _ in copied] == ["main.py"]
    assert copied[0][1].startswith("usage: colobus COMMAND")


def test_the_command_to_go_on_has_what_a_run_does_not_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it ran, and the stop rule of a later start: neither is in config.json."""
    monkeypatch.setattr("colobus.training.words.program", lambda: "./colobus")
    folder, on = Path("runs/my pong"), "./colobus train --resume 'runs/my pong'"

    def again(*words: str) -> str:
        launch = launched(resolve(Train, "train", words).flags)
        return how_to_go_on(words, False, folder, launch)

    assert again("catch", "--steps", "10") == on
    where = ("--on", "ray", "--address", "10.0.0.1:6379", "--shrink", "--device", "cuda:1")
    said = "--on ray --device cuda:1 --address 10.0.0.1:6379 --shrink"
    assert again("dba3c-pong", *where) == f"{on} {said}"
    later = ["--resume", str(folder), "--steps", "5000", "--no-graphs"]
    assert how_to_go_on(later, True, folder, []) == f"{on} --steps 5000 --no-graphs"
    assert where_everything_is(folder, 100)[-1].endswith(f" {on} --steps 200")
    odd = Path(os.fsdecode(b"it's\ncaf\xe9/run 1"))
    said = how_to_go_on([], False, odd, [])
    assert said == r"./colobus train --resume $'it\047s\012caf\351/run 1'"


@pytest.mark.parametrize(
    ("score", "mean", "error", "told"),
    [
        *((0.96, 0.68, 0.1, True), (0.96, 0.80, 0.1, False), (0.96, 1.0, 0.01, False)),
        *((None, 0.68, 0.1, False), (0.96, 0.68, float("nan"), False)),
    ],
)
def test_an_evaluation_below_the_peak_is_explained(
    score: float | None, mean: float, error: float, told: bool
) -> None:
    said = why_less(score, mean, error)
    assert said.startswith("training ended at 0.96, a mean of its last games") == told
    assert ("; 0.68 is of new games of the agent that was saved" in said) == told
