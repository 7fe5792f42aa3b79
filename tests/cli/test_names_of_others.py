"""Flags and arguments that people know from other libraries are answered with ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.cli.experiment_flags import flag_in_group, resolve
from colobus.cli.flags import flag_of, flags_of
from colobus.cli.main import run
from colobus.cli.main import run as command
from colobus.cli.train import Train
from colobus.experiment.aliases import ALIASES
from colobus.experiment.settings import ALGORITHMS, Experiment, argument, groups_of
from helpers.hostile import make_run


def arguments() -> set[str]:
    """Return the names in Python of all settings with any algorithm."""
    found = {"seed", "deterministic"}
    for algorithm in ALGORITHMS.values():
        groups = groups_of(Experiment(algorithm=algorithm())).items()
        found |= {argument(name, of) for of, group in groups for name in vars(group)}
    return found


def test_all_of_our_names_exist_and_none_of_theirs_does() -> None:
    more = {"out", "episodes"}  # of colobus train and colobus eval
    known = arguments() | more
    for name, ours in ALIASES.items():
        mentioned = {*ours[0].split(), *re.findall(r"\{(\w+)\}", "".join(ours[1:]))}
        assert mentioned <= known, name
        assert name == name.lower()
    assert not ALIASES.keys() & (arguments() - {"game"})  # which has no flag
    flags = {*flags_of(Train, flag_in_group)} - {"--game"}
    assert not {flag_of(name) for name in ALIASES} & flags


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pong --learning-rate 1e-3", "here it is --lr;"),
        ("pong --learning_rate=1e-3", "here it is --lr;"),
        ("pong --num-envs 8", "here it is --games and --actors (each of so many actors plays so"),
        ("pong --n-envs 8", "here it is --games and --actors"),
        ("pong --total-timesteps 1000", "here it is --steps;"),
        ("--env-id Pong-v5", "the game is named first, such as pong"),
        ("--preset vector", "the preset is named first, such as: vector --env Acrobot-v1"),
        ("pong --ent-coef 0.01", "here it is --entropy and --entropy-end;"),
        ("dqn-pong --clip-coef 0.1", "here it is --clip (with another algorithm);"),
        ("pong --buffer-size 9", "here it is --capacity (with DQN);"),
        (
            "pong --n-steps 9",
            "(of a rollout; n-step returns have --n, with A3C and DQN)",
        ),
    ],
)
def test_a_flag_of_another_library_is_answered_with_ours(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [] if words.startswith("--") else [words.split()[0]]
    rest = words.split()[len(first) :]
    assert run(["train", *(first or ["pong"]), *rest]) == 2
    err = capsys.readouterr().err
    assert re.match(r"colobus: unknown flag '--[\w-]+': ", err)
    assert said in err
    assert err.count("\n") == 1


def test_commands_that_train_nothing_do_not_name_what_they_lack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["eval", "x", "--learning-rate", "1"]) == 2
    assert "here it is" not in capsys.readouterr().err
    assert run(["eval", "x", "--n-eval-episodes", "1"]) == 2
    assert "here it is --episodes" in capsys.readouterr().err


def test_arguments_in_python_too() -> None:
    with pytest.raises(
        colobus.ColobusError, match=r"^learning_rate: unknown setting; here it is lr$"
    ):
        colobus.preset("pong", learning_rate=1e-3)
    said = r"^max_grad_norm: unknown setting; here it is gradient_clip$"
    with pytest.raises(colobus.ColobusError, match=said):
        colobus.train("catch", max_grad_norm=0.5)


def test_an_old_flag_works_and_says_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    for old, new, value in (
        ("--no-graphs", "--no-cuda-graphs", False),
        ("--graphs", "--cuda-graphs", True),
    ):
        assert resolve(Train, "train", ["catch", old]).flags.devices.cuda_graphs is value
        assert capsys.readouterr().err == f"colobus: {old} is {new} now\n"
    assert resolve(Train, "train", ["catch", "--cuda-graphs"]).flags.devices.cuda_graphs
    assert capsys.readouterr().err == ""


def test_an_old_argument_works_and_says_its_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given, lines = dict[str, Any](), list[str]()
    monkeypatch.setattr("colobus.training.run.train", lambda *_, **kwargs: given.update(kwargs))
    colobus.train("catch", graphs=False, log=lines.append)
    assert not given["devices"].cuda_graphs
    assert lines == ["graphs: is called cuda_graphs now"]


NAME = "[/b][link=http://example.org]\x1b[2Jred"


def spoil(run: Path, group: str, name: str, value: str) -> None:
    data = json.loads((run / "config.json").read_text())
    place = data[group] if group else data
    place[name] = value
    (run / "config.json").write_text(json.dumps(data))


def test_names_in_a_table_are_printed_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    make_run(run)
    spoil(run, "", "name", NAME)
    assert command(["show", str(run)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "[/b][link=http://example.org]?[2Jred" in "".join(said.out.split("\n"))
    assert "\x1b" not in said.out


def test_an_unknown_game_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    make_run(run)
    spoil(run, "games", "game", "\x1b[2Jponk")
    assert command(["show", str(run)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "config.json: unknown game '" in said.err
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err
