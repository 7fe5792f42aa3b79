"""Runs of version 0.1: their settings are read; they are evaluated, filmed and resumed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gelada.algorithms.a3c import A3C
from gelada.algorithms.appo import APPO
from gelada.cli.main import run
from gelada.core.checkpoint import newest_checkpoint
from gelada.core.errors import GeladaError
from gelada.experiment.presets import PRESETS
from gelada.roles.tracker import StopRule
from gelada.runs.config import FORMAT, of_format_1, read_config

DATA = Path(__file__).resolve().parent.parent / "data" / "version-0.1"
"""Folders that version 0.1 wrote with --steps 5000 --seed 3 --no-tensorboard."""


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "catch", tmp_path / "catch"))


@pytest.mark.parametrize("name", ["catch", "pong", "dba3c-catch", "gorila-catch"])
def test_its_settings_are_those_of_todays_preset(name: str) -> None:
    config, preset = read_config(DATA / name), PRESETS[name]
    tracker = replace(preset.tracker, tensorboard=False)
    want = replace(preset, stop=StopRule(steps=5000), tracker=tracker, seed=3)
    if isinstance(want.algorithm, APPO | A3C):  # what version 0.1 always did
        want = replace(want, algorithm=replace(want.algorithm, hold_after=2_000))
    assert config.experiment == want
    assert config.name == name


def test_names_of_0_1_become_todays() -> None:
    old = {
        "shape": {"bundles": 2, "stores": 3, "length": 9},
        "algorithm": {"name": "appo", "passes": 4},
        "memory": {"prioritized": True, "beta": 0.5},
        "beside": {"evaluator": True},
        "seed": 3,
    }
    assert of_format_1(old) == {
        "shape": {"workers": 2, "replays": 3, "length": 9},
        "algorithm": {"name": "appo", "epochs": 4, "hold_after": 2_000},
        "replay": {"prioritized": True, "beta": 0.5, "beta_end": 0.5},
        "sidecars": {"evaluator": True},
        "seed": 3,
    }


def test_a_run_is_evaluated_filmed_and_resumed(
    old_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", str(old_run), "--episodes", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 5
    assert run(["record", str(old_run), "--seconds", "1", "--out", str(tmp_path / "a.gif")]) == 0
    before = newest_checkpoint(old_run / "checkpoints")[1]
    assert before.version.incarnation == 0
    assert run(["train", "--resume", str(old_run), "--steps", "7000", "--no-finish"]) == 0
    after = newest_checkpoint(old_run / "checkpoints")[1]
    assert after.version.incarnation == 1
    assert after.steps >= 7000 > before.steps


def test_a_later_format_names_the_version_that_reads_it(old_run: Path) -> None:
    path = old_run / "config.json"
    data = json.loads(path.read_text())
    data["format"], data["about"]["gelada-rl"] = FORMAT + 1, "9.9.9"
    path.write_text(json.dumps(data))
    with pytest.raises(GeladaError, match=r"it is of format 3; read it with gelada-rl 9\.9\.9$"):
        read_config(old_run)
