"""An agent is named by its run's folder or by the file of a checkpoint, in every command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import gelada
from gelada.cli.main import run
from gelada.core.checkpoint import write_checkpoint
from gelada.core.types import Version
from gelada.runs.config import read_config
from helpers.players import make_checkpoint, write_run


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A run with two checkpoints, and the file of the older one."""
    folder = tmp_path / "runs" / "catch-1"
    folder.mkdir(parents=True)
    experiment = write_run(folder)
    (older,) = (folder / "checkpoints").glob("*.safetensors")
    newer = make_checkpoint(experiment, 3, steps=2_000)
    write_checkpoint(folder / "checkpoints", newer._replace(version=Version(0, 99)))
    return folder, older


def test_eval_takes_a_run_and_a_checkpoint_as_load_does(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in two:
        assert run(["eval", str(path), "--episodes", "3", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["steps"] == gelada.load(path).checkpoint.steps
    assert sorted(path.name for path in (two[0] / "eval").iterdir()) == [
        "1000-training-3-sampled-seed1.json",
        "2000-training-3-sampled-seed1.json",
    ]


def test_a_short_evaluation_leaves_the_long_one_alone(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", str(two[0]), "--episodes"]
    assert run([*words, "50"]) == 0
    (long,) = (two[0] / "eval").iterdir()
    before = long.read_bytes()
    assert run([*words, "1"]) == 0
    assert run([*words, "50", "--policy", "greedy"]) == 0
    assert run([*words, "50"]) == 0
    assert long.read_bytes() == before
    assert len(list((two[0] / "eval").iterdir())) == 3


def test_show_takes_a_run_and_a_checkpoint(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = read_config(two[0]).experiment
    for path, steps in zip(two, (2_000, 1_000), strict=True):
        assert run(["show", str(path), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["settings"]["network"]["width"] == experiment.network.width
        assert said["checkpoint"]["steps"] == steps
    assert run(["show", str(two[0])]) == 0
    text = capsys.readouterr().out
    assert f"settingsofcatch,{two[0]}" in "".join(text.split())
    assert "checkpoint 00000099: 2,000 steps" in text


def test_record_takes_a_checkpoint_and_films_into_its_run(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["record", str(two[1]), "--gif", "--seconds", "1"]) == 0
    assert [path.name for path in (two[0] / "videos").iterdir()] == ["1000.gif"]


def test_an_exported_agent_is_shown_and_evaluated_by_its_folder_or_its_file(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = tmp_path / "exported"
    exported.mkdir()
    shutil.copy(two[0] / "config.json", exported)
    for suffix in (".safetensors", ".json"):
        shutil.copy(two[1].with_suffix(suffix), exported / f"model{suffix}")
    for path in (exported, exported / "model.safetensors"):
        assert run(["show", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["checkpoint"]["steps"] == 1_000
        assert run(["eval", str(path), "--episodes", "2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["steps"] == 1_000
    assert len(list((exported / "eval").iterdir())) == 1


def test_what_is_no_agent_is_one_line(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, older = two
    for words, said in (
        (["eval", str(folder.parent)], f"is a folder of runs: name one of them, such as {folder}"),
        (["eval", str(older), "--checkpoint", "7"], "is a checkpoint already; leave one out"),
        (["eval", str(older.with_stem("8"))], "there is no such checkpoint"),
        (["show", str(older.with_stem("8"))], "there is no such checkpoint"),
        (["show", str(folder), "--lr", "1"], "--lr: a run's settings are fixed; leave it out"),
        (["show", str(folder), "--cores", "4"], "--cores: a run's settings are fixed; leave"),
        (["show", str(folder.parent)], "is a folder of runs: name one of them"),
    ):
        assert run(words) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert said in captured.err
