"""``colobus export`` as people give it, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import colobus
from colobus.core.checkpoint import write_checkpoint
from colobus.core.types import Version
from colobus.runs.config import read_config
from helpers.launching import colobus as command
from helpers.launching import printed, refused, told
from helpers.players import make_checkpoint, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path / "catch-1")
    return tmp_path / "catch-1"


@pytest.mark.slow
def test_an_onnx_file_is_written_and_compared(folder: Path) -> None:
    code, out, err = command("export", folder, "--onnx", "--json")
    assert code == 0
    found = json.loads(out)["onnx"]
    assert found["file"] == str(folder / "export" / "1000.onnx")
    assert Path(found["file"]).stat().st_size > 1000
    assert found["observations"] == 1000
    assert found["difference"] < 1e-4
    assert "ONNX Runtime and torch over 1,000 observations" in err


def test_a_folder_for_a_hub_is_shown_and_evaluated_by_its_name_or_its_file(folder: Path) -> None:
    hub = folder.with_name("hub")
    words = ("--hub", hub, "--weights", "int8", "--episodes", 8, "--film-seconds", 1)
    said = told("export", folder, *words)["hub"]
    assert said["folder"] == str(hub)
    assert said["bytes"] == sum(path.stat().st_size for path in hub.iterdir())
    for path in (hub, hub / "model.safetensors"):
        assert told("show", path)["checkpoint"]["steps"] == 1_000
        played = told("eval", path, "--episodes", 8)
        assert (played["scores"], played["steps"]) == (said["evaluation"]["scores"], 1_000)
    assert len(list((hub / "eval").glob("*.json"))) == 1
    printed("record", hub, "--seconds", 1)
    assert (hub / "videos" / "1000.mp4").is_file()


REFUSED = {
    "export RUN": "export as what? give --onnx, --hub FOLDER or both",
    "export RUN --hub h --out a.onnx": "--out a.onnx: has an effect only with --onnx",
    "export RUN --onnx --out a.pt": "--out a.pt: must end in .onnx",
    "export RUN --onnx --weights int8": "--weights int8: has an effect only with --hub FOLDER",
    "export RUN --onnx --film-seconds 3": "--film-seconds 3.0: has an effect only with --hub",
    "export RUN --hub h --protocol none --episodes 3": "--episodes 3: --protocol none plays no",
    "export RUN --hub RUN": "RUN: is there already",
    "export nowhere --onnx": "'nowhere' is no run",
    "export zoo:nothing --onnx": "zoo:nothing: ",
    "export RUN --hub h --protocol sticky": "protocol 'sticky' is for Atari games",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_one_line(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    code, _, err = command(*(folder if word == "RUN" else word for word in words.split()))
    assert code == 2
    said = err.splitlines()[-1]
    assert said.startswith(f"colobus: {REFUSED[words].replace('RUN', str(folder))}")
    assert [path.name for path in folder.parent.iterdir()] == ["catch-1"]


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


def test_eval_takes_a_run_and_a_checkpoint_as_load_does(two: tuple[Path, Path]) -> None:
    for path in two:
        said = told("eval", path, "--episodes", 3)
        assert said["steps"] == colobus.load(path).checkpoint.steps
    assert sorted(path.name for path in (two[0] / "eval").iterdir()) == [
        "1000-training-3-sampled-seed1.json",
        "2000-training-3-sampled-seed1.json",
    ]


def test_a_short_evaluation_leaves_the_long_one_alone(two: tuple[Path, Path]) -> None:
    printed("eval", two[0], "--episodes", 50)
    (long,) = (two[0] / "eval").iterdir()
    before = long.read_bytes()
    for words in ([1], [50, "--policy", "greedy"], [50]):
        printed("eval", two[0], "--episodes", *words)
    assert long.read_bytes() == before
    assert len(list((two[0] / "eval").iterdir())) == 3


def test_show_takes_a_run_and_a_checkpoint(two: tuple[Path, Path]) -> None:
    experiment = read_config(two[0]).experiment
    for path, steps in zip(two, (2_000, 1_000), strict=True):
        said = told("show", path)
        assert said["settings"]["network"]["width"] == experiment.network.width
        assert said["checkpoint"]["steps"] == steps
    text = printed("show", two[0])
    assert f"settingsofcatch,{two[0]}" in "".join(text.split())
    assert "checkpoint 00000099: 2,000 steps" in text


def test_record_takes_a_checkpoint_and_films_into_its_run(two: tuple[Path, Path]) -> None:
    printed("record", two[1], "--gif", "--seconds", 1)
    assert [path.name for path in (two[0] / "videos").iterdir()] == ["1000.gif"]


def test_what_is_no_agent_is_one_line(two: tuple[Path, Path]) -> None:
    folder, older = two
    for words, said in (
        (["eval", str(folder.parent)], f"is a folder of runs: name one of them, such as {folder}"),
        (["eval", str(older), "--checkpoint", "7"], "is one already; leave one out"),
        (["eval", str(older.with_stem("8"))], "there is no such checkpoint"),
        (["show", str(older.with_stem("8"))], "there is no such checkpoint"),
        (["show", str(folder), "--lr", "1"], "--lr: a run's settings are fixed; leave it out"),
        (["show", str(folder), "--cores", "4"], "--cores: a run's settings are fixed; leave"),
        (["show", str(folder.parent)], "is a folder of runs: name one of them"),
    ):
        assert said in refused(*words)
