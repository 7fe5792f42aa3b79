"""The cells for a machine with a GPU: they can be given, fit into a call, and run on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import cells, run
from benchmarks.lib.ledger import Cell
from colobus.cli.experiment_flags import resolve
from colobus.cli.train import Train

PLANS = list(cells.on_gpu())


def test_every_kind_takes_at_most_ten_minutes() -> None:
    kinds: dict[str, float] = {}
    for plan in PLANS:
        words = plan.asked["words"].split()
        seconds = plan.asked.get("seconds") or 60 * float(words[words.index("--minutes") + 1])
        beside = 40.0 if "seconds" in plan.asked else 10.0  # of its start and its end
        kinds[plan.what] = kinds.get(plan.what, 0.0) + len(plan.seeds) * (seconds + beside)
    assert kinds == {"gpu-speed": 500, "gpu-graphs": 560, "gpu-pong": 500, "gpu-breakout": 550}


def test_they_are_measured_only_if_they_are_named() -> None:
    own = [cell for cell in cells.all_cells() if run.asked_for(cell, None)]
    assert not any(cell.what.startswith("gpu") for cell in own)
    assert len({cell.name for cell in own}) == len(own)
    named = [cell for cell in cells.all_cells() if run.asked_for(cell, "gpu")]
    assert len({cell.name for cell in named}) == len(named) == 5 + 8 + 5 + 1


@pytest.mark.slow
def test_what_is_trained_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.cli.experiment_flags.usable_cores", lambda: 16)
    trained = [plan for plan in PLANS if "--minutes" in plan.asked["words"]]
    assert len(trained) == 2
    for plan in trained:
        wanted = resolve(Train, "train", [plan.preset, *plan.asked["words"].split()])
        assert wanted.experiment.shape.emulators == 16
        assert wanted.flags.devices.device == "cuda"


@pytest.mark.long
@pytest.mark.processes
def test_a_rehearsal_on_a_cpu(tmp_path: Path) -> None:
    plan = next(plan for plan in PLANS if plan.what == "gpu-pong")
    words = plan.asked["words"].replace("cuda", "cpu").replace("--minutes 1.5", "--steps 30000")
    cell = Cell(plan.what, 1, {"procedure": {"words": words}}, plan.measure, plan.preset)
    result = cell.measure(cell, tmp_path, tmp_path)
    assert result["steps"] > 0
    assert result["seconds"] >= result["first_update_seconds"] > 0
