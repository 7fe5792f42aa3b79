"""The cells for a machine with a GPU: they can be given, fit into a call, and run on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu
from colobus.cli.experiment_flags import resolve
from colobus.cli.train import Train


def test_every_call_takes_at_most_ten_minutes() -> None:
    calls: dict[str, float] = {}
    for cell in gpu.cells():
        calls[cell.call] = calls.get(cell.call, 0.0) + cell.seconds
    assert max(calls.values()) <= gpu.CALL_SECONDS <= 600
    assert len({cell.name for cell in gpu.cells()}) == len(gpu.cells())


@pytest.mark.slow
def test_what_is_trained_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.cli.experiment_flags.usable_cores", lambda: 16)
    trained = [cell for cell in gpu.cells() if cell.words.startswith("train")]
    assert len(trained) == 6
    for cell in trained:
        command = gpu.command_of(cell, "cuda", False, tmp_path)
        wanted = resolve(Train, "train", command[4:])
        assert wanted.experiment.shape.emulators == 16
        assert wanted.flags.devices.device == "cuda"


@pytest.mark.long
@pytest.mark.processes
def test_a_rehearsal_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", "pong-18-seed-1", "--device", "cpu", "--smoke", "--out", str(tmp_path)]
    assert gpu.main(words) == 0
    (line,) = map(json.loads, (tmp_path / "gpu.jsonl").read_text().splitlines())
    assert (line["cell"], line["code"], line["smoke"]) == ("pong-18-seed-1", 0, True)
    assert line["result"]["steps"] == line["training"]["steps"] > 0
    assert line["training"]["seconds"] >= line["training"]["first_update_seconds"] > 0
    assert json.loads(capsys.readouterr().out)["command"].count("--minutes 0.1") == 1


def test_what_is_compared_with_graphs_has_none() -> None:
    want = {f"{game}-eager-{turn}" for game in ("pong", "breakout") for turn in (1, 2)}
    assert {cell.name for cell in gpu.cells() if "--no-cuda-graphs" in cell.words} == want


@pytest.mark.processes
def test_a_cell_ends_with_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "CALL_SECONDS", 0.0)
    assert gpu.main(["--only", "breakout-400", "--out", str(tmp_path)]) == 1
    assert json.loads((tmp_path / "gpu.jsonl").read_text())["code"] == 124
