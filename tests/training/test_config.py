"""``config.json``: what is written is read again as it was."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colobus.algorithms.a3c import A3C
from colobus.algorithms.appo import APPO
from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import ColobusError
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, Sidecars
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule
from colobus.runs.config import FORMAT, Config, of_format_1, read_config, write_config
from helpers.launching import printed, told

CHANGED = replace(
    PRESETS["dba3c-breakout-paper"],
    shape=replace(PRESETS["dba3c-breakout-paper"].shape, asynchronous=True, max_staleness=7),
    optimizer=OptimizerSettings("adadelta", decay=0.5),
    stop=StopRule(steps=5, minutes=0.25, until_score=-1.0, until_evaluated=2.5),
    sidecars=Sidecars(record_length=3.5),
    seed=9,
    deterministic=True,
)


@pytest.mark.parametrize(("name", "experiment"), [*PRESETS.items(), ("changed", CHANGED)])
def test_every_preset_is_read_as_it_was_written(
    name: str, experiment: Experiment, tmp_path: Path
) -> None:
    config = Config(name, experiment, 4, {"precision": "float32", "faults": "link=10MB"})
    write_config(tmp_path, config)
    again = read_config(tmp_path)
    assert again == config
    assert type(again.experiment.algorithm) is type(experiment.algorithm)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm": {"name": "sac"}}, "sac"),
        ({"algorithm": {"n": 5}}, "algorithm.n: unknown"),  # A3C's, and this is APPO
        ({"shape": {"bundels": 2}}, "shape.bundels: unknown"),
        (
            {"format": FORMAT + 1, "about": {"colobus": "9.9.9"}},
            r"it is of format 3; read it with colobus 9\.9\.9$",
        ),
    ],
)
def test_what_is_not_known_is_one_line(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_config(tmp_path, Config("pong", PRESETS["pong"], 6, {}))
    data = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    for group, value in changes.items():
        data[group] = data[group] | value if isinstance(value, dict) else value
    (tmp_path / "config.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ColobusError, match=said) as raised:
        read_config(tmp_path)
    line = str(raised.value)
    assert line.startswith(f"{tmp_path}/config.json cannot be read: ")
    assert "\n" not in line


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


def test_an_older_config_is_appo_and_has_defaults(old_run: Path) -> None:
    """There was no other algorithm, and no evaluator, before there were workers."""
    wanted = read_config(old_run)
    data = json.loads((old_run / "config.json").read_text(encoding="utf-8"))
    del data["algorithm"]["name"], data["beside"]
    (old_run / "config.json").write_text(json.dumps(data), encoding="utf-8")
    assert read_config(old_run) == wanted


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


def test_a_run_is_evaluated_filmed_and_resumed(old_run: Path, tmp_path: Path) -> None:
    assert told("eval", old_run, "--episodes", 5)["episodes"] == 5
    printed("record", old_run, "--seconds", 1, "--out", tmp_path / "a.gif")
    before = newest_checkpoint(old_run / "checkpoints")[1]
    assert before.version.incarnation == 0
    printed("train", "--resume", old_run, "--steps", 7000, "--no-finish")
    after = newest_checkpoint(old_run / "checkpoints")[1]
    assert after.version.incarnation == 1
    assert after.steps >= 7000 > before.steps
