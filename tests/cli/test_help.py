"""What help says: whose defaults it shows, and nothing about defaults that say nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colobus.cli.main import COMMANDS
from colobus.cli.show import parts_of
from colobus.envs.make import known_games
from colobus.experiment.presets import FAMILIES, PRESETS, preset
from helpers.launching import printed, told
from helpers.players import write_run


def in_a_line(said: str) -> str:
    """Return what a panel says, without its frame."""
    return " ".join(said.replace("│", " ").split())


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["--help", "--help-all"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_no_default_is_none(
    command: str, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed(command, ask)
    assert max(map(len, shown.splitlines())) <= 80
    text = in_a_line(shown)
    assert text.startswith(f"usage: colobus {command} ")
    for empty in ("(default: None)", "(default: )", "(default: '')"):
        assert empty not in text


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "show", "bench"])
def test_help_names_the_preset_of_its_defaults(command: str) -> None:
    for words, name, other in (([], "pong", "breakout"), (["dqn-breakout"], "dqn-breakout", "")):
        text = in_a_line(printed(command, *words, "--help"))
        assert f"The defaults are those of {name}; with another game or preset there are" in text
        assert f"colobus {command} {other or 'breakout'} --help" in text
    assert "(default: None)" not in text


@pytest.mark.parametrize("words", [["train", "pong"], ["show", "dqn-pong"], ["bench"]])
def test_help_is_short_and_help_all_has_everything(words: list[str]) -> None:
    short, everything = (
        re.findall(r"^\W{2}(?:-h, )?(--[a-z][\w-]*)", printed(*words, ask), re.M)
        for ask in ("--help", "--help-all")
    )
    assert 12 <= len(short) <= 25
    assert {"--help", "--steps", "--lr", "--seed", "--actors"} < {*short} < {*everything}
    assert len(everything) > 90


OWN = {
    "plan": "--nodes --link --costs --changes",
    "slurm": "--nodes --time --partition --account --gpus-per-node --file --submit --out",
    "bench": "--seconds --profile --costs --on",
    "show": "--nodes",
    "train": "--out --on --resume --seeds",
}


@pytest.mark.parametrize("command", OWN)
def test_help_has_the_flags_that_only_this_command_has(command: str) -> None:
    text = printed(command, "--help")
    assert {*OWN[command].split()} <= {*re.findall(r"--[a-z][\w-]*", text)}
    assert "--host-cores" not in text


@pytest.mark.parametrize("ask", ["--help", "--help-all"])
def test_help_tells_of_no_flag_that_a_job_cannot_have(ask: str) -> None:
    text = printed("slurm", ask)
    found = re.findall(r"^\W{2}(--[a-z][\w-]*)", text, re.M)
    assert "--time" in found
    assert not {"--resume", "--resume-or-start", "--seeds", "--address"} & {*found}
    assert "--on {" not in text


@pytest.mark.slow
def test_help_still_prints_defaults_that_say_something(tmp_path: Path) -> None:
    text = in_a_line(printed("train", "pong", "--help"))
    for said in ("(default: 1000000)", "(default: 18.0)", "(default: 0.002)", "(default: 1)"):
        assert said in text
    write_run(tmp_path)
    text = in_a_line(printed("train", "--resume", tmp_path, "--help"))
    assert "The defaults are those of the run." in text


@pytest.mark.parametrize("words", [["watch", "runs"], ["eval", "x"], ["train", "breakout"]])
def test_help_has_the_words_that_were_given_too(words: list[str]) -> None:
    alone, there = printed(words[0], "--help"), printed(*words, "--help")
    assert "positional arguments" in there
    assert there == alone or words[0] == "train"  # which has the defaults of what is named


def test_every_listed_name_can_be_learned() -> None:
    said = told("games")
    assert list(said) == ["Atari games", "small games", "presets", "families"]
    assert len(said["Atari games"]) > 100
    listed = [name for kind in list(said)[:3] for name in said[kind]]
    assert len(listed) == len(set(listed))
    assert set(listed) == {*known_games(), *PRESETS}
    for name in (*said["Atari games"][:3], *said["small games"], *said["presets"]):
        preset(name)
    for family in said["families"]:
        preset(f"{family}-seaquest")
    assert said["families"] == list(FAMILIES)


def test_the_list_is_for_people_and_can_be_narrowed() -> None:
    text = printed("games")
    assert "space_invaders" in text
    assert "dqn-" in text
    assert "train CartPole-v1" in text
    text = printed("games", "Pong")
    assert "Atari games (1):" in text
    assert "gorila-pong" in text
    assert "seaquest" not in text
    assert "no game or preset contains 'tetris-3'" in printed("games", "tetris-3")


ON = {
    "pong": {"PPO's clipped loss", "several epochs", "adaptive rate"},
    "impala-seaquest": {"V-trace"},
}


@pytest.mark.parametrize("name", ON)
def test_the_parts_that_are_on(name: str) -> None:
    (line,) = re.findall(r"^parts: .*?(?=^parameters: )", printed("show", name), re.M | re.S)
    on, _, off = re.sub(r"\s+", " ", line).strip().partition("; off: ")
    parts = parts_of(preset(name)[0])
    assert set(re.findall(r"(?:parts: |, )(.+?) \(--", on)) == ON[name]
    assert set(off.split(", ")) == {part["name"] for part in parts} - ON[name]
    assert "--advantage" in {part["flag"].split()[0] for part in parts}


def test_another_algorithm_has_none_of_them() -> None:
    assert "parts: " not in printed("show", "dqn-pong")
    assert told("show", "dqn-pong")["parts"] == []


def test_every_part_of_appo_can_be_switched_on_and_off() -> None:
    every = {part["name"] for part in parts_of(PRESETS["pong"])}
    states = {(part["name"], part["on"]) for name in PRESETS for part in parts_of(PRESETS[name])}
    assert {name for name, on in states if on} == every
    assert {name for name, on in states if not on} == every
