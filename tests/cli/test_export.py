"""``gelada export`` as people give it, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gelada.cli.main import run
from helpers.players import write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path / "catch-1")
    return tmp_path / "catch-1"


@pytest.mark.slow
def test_an_onnx_file_is_written_and_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(folder), "--onnx", "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)["onnx"]
    assert found["file"] == str(folder / "export" / "1000.onnx")
    assert Path(found["file"]).stat().st_size > 1000
    assert found["observations"] == 1000
    assert found["difference"] < 1e-4
    assert "ONNX Runtime and torch over 1,000 observations" in said.err


def test_a_folder_for_a_hub_can_be_evaluated_by_its_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = folder.with_name("hub")
    words = ["--hub", str(hub), "--weights", "int8", "--episodes", "8", "--film-seconds", "1"]
    assert run(["export", str(folder), *words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["hub"]
    assert said["folder"] == str(hub)
    assert said["bytes"] == sum(path.stat().st_size for path in hub.iterdir())
    assert run(["eval", str(hub), "--episodes", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == said["evaluation"]["scores"]
    assert list((hub / "eval").glob("*.json"))
    assert run(["record", str(hub), "--seconds", "1"]) == 0
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
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    assert run([str(folder) if word == "RUN" else word for word in words.split()]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"gelada: {REFUSED[words].replace('RUN', str(folder))}")
    assert [path.name for path in folder.parent.iterdir()] == ["catch-1"]
