"""An algorithm named module:Class: trained, shown, resumed, evaluated and filmed by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import colobus
from colobus.cli.experiment_flags import ExperimentFlags, resolve, resolve_again
from colobus.core.errors import ColobusError
from colobus.experiment.presets import PRESETS
from colobus.runs.config import read_config
from helpers.launching import printed, python, refused

MODULE = '''
from dataclasses import dataclass

import colobus


@dataclass(frozen=True)
class Shy(colobus.APPO):
    """Half of the policy's loss."""

    epochs: int = 1
    shyness: float = 0.5
    """How much of the loss is left out."""

    def loss(self, *args, **kwargs):
        loss, terms = super().loss(*args, **kwargs)
        return (1.0 - self.shyness) * loss, terms | {"shy": loss.detach()}


@dataclass(frozen=True)
class Greedy(colobus.APPO):
    actors: int = 1


class Nothing:
    pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the commands run, with the module."""
    (tmp_path / "shy_module.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    return tmp_path


@pytest.mark.processes
def test_every_command_finds_it_by_name(module: Path) -> None:
    folder = module / "run"
    words = ("--steps", 2_000, "--no-tensorboard", "--no-finish", "--shyness", 0.25)
    printed("train", "catch", "--algorithm", "shy_module:Shy", "--out", folder, *words)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))["algorithm"]
    assert (saved["name"], saved["shyness"], saved["epochs"]) == ("shy_module:Shy", 0.25, 1)
    assert '"shy": ' in (folder / "metrics.jsonl").read_text(encoding="utf-8")
    python("-m", "colobus.cli.main", "eval", folder, "--episodes", 2, folder=module)
    printed("train", "--resume", folder, "--steps", 3000, "--no-finish")
    printed("show", folder)
    printed("record", folder, "--out", module / "film.gif", "--seconds", 1)
    result = colobus.train(
        "catch", module / "again", algorithm="shy_module:Shy", steps=600, log=lambda _: None
    )
    colobus.load(result.folder)
    assert type(read_config(result.folder).experiment.algorithm).__name__ == "Shy"


def test_its_settings_are_flags_on_those_of_the_preset(module: Path) -> None:
    words = ["pong", "--algorithm", "shy_module:Shy", "--shyness", "0.1"]
    found = resolve(ExperimentFlags, "train", words).experiment
    algorithm: object = found.algorithm
    assert vars(algorithm) == vars(PRESETS["pong"].algorithm) | {"epochs": 1, "shyness": 0.1}
    other = resolve(ExperimentFlags, "train", ["pqn-pong", *words[1:]]).experiment.algorithm
    assert vars(other) == vars(colobus.APPO()) | {"epochs": 1, "shyness": 0.1}  # no PQN
    given = colobus.preset("pong", algorithm=type(found.algorithm), shyness=0.1)
    assert given.algorithm == found.algorithm
    with pytest.raises(ColobusError, match="--algorithm shy_module:Shy with --resume"):
        resolve_again(ExperimentFlags, "train", words[1:3], found)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shy_module:Nothing", "is no algorithm"),
        ("shy_module:Absent", "module shy_module has no function Absent"),
        ("shy_module:Greedy", "its setting actors has the name of another"),
        ("no_such_module:Shy", "no module named 'no_such_module'"),
        ("subprocess:Popen", "is a function of Python's own"),
        ("dqm", "unknown algorithm 'dqm'; nearest known: dqn"),
    ],
)
def test_what_is_no_algorithm_is_one_line(module: Path, name: str, said: str) -> None:
    assert said in refused("train", "catch", "--algorithm", name)


def test_a_module_in_the_folder_of_a_run_is_not_imported(module: Path) -> None:
    """Whoever made the folder would decide what runs here."""
    folder = module / "theirs"
    folder.mkdir()
    config = json.dumps({"name": "x", "actions": 3, "format": 2, "about": {},
                         "algorithm": {"name": "theirs.trap:Trap"}})  # fmt: skip
    (folder / "config.json").write_text(config, encoding="utf-8")
    (folder / "trap.py").write_text("raise SystemExit('it was run')", encoding="utf-8")
    with pytest.raises(ColobusError, match="lies in the folder of a run or agent"):
        read_config(folder, trust=True)


def test_a_class_of_the_script_is_named_as_one(module: Path) -> None:
    (module / "config.json").write_text(
        '{"name": "x", "actions": 3, "format": 2, "about": {}, '
        '"algorithm": {"name": "__main__:Mine"}}',
        encoding="utf-8",
    )
    with pytest.raises(ColobusError, match="is a function of the script that trained"):
        read_config(module)
