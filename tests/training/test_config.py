"""``config.json``: what is written is read again as it was."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gelada.algorithms.a3c import A3C
from gelada.algorithms.appo import APPO
from gelada.core.errors import GeladaError
from gelada.experiment.presets import PRESETS
from gelada.experiment.settings import Experiment
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.tracker import StopRule
from gelada.runs.config import Config, read_config, write_config


def written(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    config = Config(name, PRESETS[name], 4, {"precision": "float32"})
    write_config(tmp_path, config)
    again = read_config(tmp_path)
    assert again == config
    assert type(again.experiment.algorithm) is type(PRESETS[name].algorithm)


@pytest.mark.parametrize(
    ("algorithm", "name"), [(APPO(gamma=0.5, epochs=7), "appo"), (A3C(n=3, lr_end=0.1), "a3c")]
)
def test_the_algorithm_is_written_with_its_name(
    algorithm: APPO | A3C, name: str, tmp_path: Path
) -> None:
    experiment = replace(PRESETS["catch"], algorithm=algorithm)
    write_config(tmp_path, Config("catch", experiment, 3, {}))
    assert written(tmp_path)["algorithm"] == {"name": name, **asdict(algorithm)}
    assert read_config(tmp_path).experiment.algorithm == algorithm


def test_every_setting_is_kept(tmp_path: Path) -> None:
    base = PRESETS["dba3c-breakout-paper"]
    experiment = replace(
        base,
        shape=replace(base.shape, asynchronous=True, quorum=0, max_staleness=7),
        optimizer=OptimizerSettings("adadelta", decay=0.5),
        stop=StopRule(steps=5, minutes=0.25, until_score=-1.0, until_evaluated=2.5),
        sidecars=replace(base.sidecars, record_length=3.5),
        seed=9,
        deterministic=True,
    )
    write_config(tmp_path, Config("x", experiment, 18, {"faults": "link=10MB"}))
    data = written(tmp_path)
    groups = set(vars(Experiment()))
    assert groups <= set(data)
    assert data["shape"]["max_staleness"] == 7
    assert data["sidecars"] == {"evaluator": True, "recorder": True, "record_length": 3.5}
    assert read_config(tmp_path) == Config("x", experiment, 18, {"faults": "link=10MB"})


def older(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was written before there were workers."""
    del data["algorithm"]["name"]
    del data["sidecars"]
    for group, new in {
        "games": ("colour",),
        "network": ("hidden", "conv_init", "fc_init", "pad_channels"),
        "shape": (
            "workers",
            "quorum",
            "asynchronous",
            "max_staleness",
            "batch",
            "keep_every",
        ),
        "stop": ("until_evaluated",),
    }.items():
        for name in new:
            del data[group][name]
    return data


def test_an_older_config_is_appo_without_workers(tmp_path: Path) -> None:
    base = PRESETS["pong"]
    experiment = replace(base, algorithm=APPO(lr=0.003, clip=0.1), seed=4)
    config = Config("pong", experiment, 6, {"precision": "bfloat16"})
    write_config(tmp_path, config)
    (tmp_path / "config.json").write_text(json.dumps(older(written(tmp_path))), encoding="utf-8")
    assert read_config(tmp_path) == config


def spoil(data: dict[str, Any], group: str, name: str, value: object) -> dict[str, Any]:
    return data | {group: data[group] | {name: value}}


@pytest.mark.parametrize(
    ("group", "name", "value", "said"),
    [
        ("algorithm", "name", "sac", "sac"),
        ("algorithm", "n", 5, "algorithm.n: unknown"),  # A3C's, and this is APPO
        ("shape", "bundels", 2, "shape.bundels: unknown"),
    ],
)
def test_what_is_not_known_is_one_line(
    group: str, name: str, value: object, said: str, tmp_path: Path
) -> None:
    write_config(tmp_path, Config("pong", PRESETS["pong"], 6, {}))
    data = spoil(written(tmp_path), group, name, value)
    (tmp_path / "config.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(GeladaError) as raised:
        read_config(tmp_path)
    line = str(raised.value)
    assert line.startswith(f"{tmp_path}/config.json cannot be read: ")
    assert said in line
    assert "\n" not in line


def test_a_folder_without_one_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(GeladaError, match=r"is no run: it has no config\.json"):
        read_config(tmp_path)
