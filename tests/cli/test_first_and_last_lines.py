"""What is said before a run begins and after it, and that a refusal leaves nothing behind."""

from __future__ import annotations

import ast
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import gelada
from gelada.cli.display import Printer
from gelada.cli.experiment_flags import resolve
from gelada.cli.first_and_last import how_it_went, how_to_go_on, where_everything_is
from gelada.cli.main import run
from gelada.cli.train import Train, launched
from gelada.experiment.presets import preset
from gelada.roles.tracker import Status
from gelada.training.start import least_steps

SOURCE = Path(gelada.__file__).parent


def test_on_ray_without_ray_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it was not installed
    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=False)  # nothing is open to the network
    monkeypatch.setitem(sys.modules, "ray._private.ray_constants", constants)
    tokens = SimpleNamespace(is_token_auth_enabled=lambda: True)  # nor to other users
    name = "ray._private.authentication.authentication_utils"
    monkeypatch.setitem(sys.modules, name, tokens)
    monkeypatch.delitem(sys.modules, "gelada.runtime.ray.session", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder = tmp_path / "run"
    assert run(["train", "catch", "--on", "ray", "--out", str(folder)]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("learning catch into ")
    assert "; first it starts Ray on this machine, which takes some seconds\n" in said.out
    assert "install it with: pip install 'gelada-rl[cluster]'" in said.err
    assert list(tmp_path.iterdir()) == []


def test_while_processes_are_started_it_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def starting(*arguments: Any, **_: object) -> None:
        watch = arguments[4]
        watch(Status(), [])  # as `train` calls it until all processes are there
        raise gelada.GeladaError("that is enough")

    monkeypatch.setattr("gelada.cli.train.train", starting)
    monkeypatch.setattr("gelada.cli.display.LINE_SECONDS", 0.0)
    assert run(["train", "catch", "--on", "ray", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().out
    assert "before the first update · waiting for the processes of the run" in said


def test_a_refusal_after_the_first_line_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise gelada.GeladaError("no games today")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gelada.training.start.open_games", broken)
    for _ in range(2):  # the second one gets the same folder
        assert run(["train", "catch"]) == 2
        assert "learning catch into runs/catch-1: " in capsys.readouterr().out
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_run_that_must_be_longer_than_asked_says_so(tmp_path: Path) -> None:
    lines: list[str] = []
    quiet: dict[str, Any] = {"tensorboard": False, "log": lines.append}
    result = gelada.train("catch", tmp_path / "short", steps=10, **quiet)
    (line,) = (line for line in lines if "--steps" in line)
    assert line == (
        f"--steps 10: the run will have at least {result.steps:,} steps: random ones that measure "
        "the input (--random-steps 512) and a first batch"
    )
    lines.clear()
    longer = gelada.train("catch", tmp_path / "long", steps=result.steps, **quiet)
    assert longer.steps == result.steps
    assert not [line for line in lines if "--steps" in line]


@pytest.mark.parametrize(
    ("name", "least"), [("ALE/Pong-v5", 6_144), ("catch", 1_024), ("gorila-catch", 1_012)]
)
def test_the_fewest_steps_of_a_run(name: str, least: int) -> None:
    experiment = preset(name)[0]
    assert least_steps(experiment) == least, experiment.shape


def test_no_score_is_called_the_mean_of_no_games() -> None:
    assert how_it_went(Status(steps=6_144, seconds=3.0)) == (
        "6,144 steps in 0:03; no game was over yet, so there is no score"
    )
    some = Status(steps=9_000, seconds=65.0, games=7, score=-20.5)
    assert how_it_went(some).endswith("1:05; mean score of the last 7 games: -20.50")
    many = Status(steps=9_000, seconds=65.0, games=70, score=1.0)
    assert how_it_went(many).endswith("mean score of the last 50 games: 1.00")
    assert how_it_went(Status(games=1, score=1.0)).endswith("score of the last game: 1.00")


def test_a_bar_counts_nothing_before_it_knows_of_how_many() -> None:
    file = io.StringIO()
    printer = Printer(console=Console(file=file, force_terminal=True, width=90, height=30))
    with printer.progress("playing 50 games", "games") as report:
        report(0, 50)
        report(20, 50)
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    assert "of 1 games" not in said
    assert "20 of 50 games" in said


def test_the_next_commands_begin_with_what_started_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / ".venv" / "bin" / "gelada"
    own.parent.mkdir(parents=True)
    own.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [".venv/bin/gelada", "train", "pong"])
    lines = where_everything_is(Path("runs/pong-1"), 100)
    assert lines[-1].split(maxsplit=2)[2] == (
        ".venv/bin/gelada train --resume runs/pong-1 --steps 200"
    )


COMMAND = re.compile(r"\b(with|as|again|see):? gelada [a-z]")
"""What introduces a command that can be copied, and its beginning where nobody looked for it."""


@pytest.mark.slow
def test_commands_in_messages_can_be_copied_by_whoever_reads_them() -> None:
    """They begin with `program()`, in all strings but docstrings and the list of commands."""
    copied = []
    for path in sorted(SOURCE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        strings = [node for node in nodes if isinstance(node, ast.Constant)]
        texts = [str(node.value) for node in strings if id(node) not in docstrings]
        copied += [(path.name, text) for text in texts if COMMAND.search(text)]
    assert [name for name, _ in copied] == ["main.py"]
    assert copied[0][1].startswith("usage: gelada COMMAND")


def test_the_command_to_go_on_has_what_the_run_does_not_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it ran, and the stop rule of a later start: neither is in config.json."""
    monkeypatch.setattr("gelada.cli.first_and_last.program", lambda: "gelada")
    folder = Path("runs/my pong")

    def again(*words: str) -> str:
        launch = launched(resolve(Train, "train", words).flags)
        return how_to_go_on(words, False, folder, launch)

    assert again("catch", "--steps", "10") == "gelada train --resume 'runs/my pong'"
    words = ("--on", "ray", "--address", "10.0.0.1:6379", "--shrink", "--device", "cuda:1")
    said = again("dba3c-pong", *words).split("'runs/my pong' ")[1]
    assert said == "--on ray --device cuda:1 --address 10.0.0.1:6379 --shrink"
    later = ["--resume", str(folder), "--steps", "5000", "--no-graphs"]
    assert how_to_go_on(later, True, folder, []) == (
        "gelada train --resume 'runs/my pong' --steps 5000 --no-graphs"
    )
