"""What help says: whose defaults it shows, and nothing about defaults that say nothing."""

from __future__ import annotations

import json
import re

import pytest

from colobus.algorithms.appo import APPO
from colobus.cli.main import COMMANDS, run
from colobus.cli.show import parts_of
from colobus.envs.make import known_games
from colobus.experiment.presets import FAMILIES, NOTES, PRESETS, preset
from helpers.players import write_run


@pytest.mark.parametrize("ask", ["--help", "--help-all"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_no_default_is_none(
    command: str, ask: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([command, ask]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    text = " ".join(shown.replace("│", " ").split())
    assert text.startswith(f"usage: colobus {command} ")
    for empty in ("(default: None)", "(default: )", "(default: '')"):
        assert empty not in text


@pytest.mark.parametrize("command", ["train", "show", "bench"])
def test_help_names_the_preset_of_its_defaults(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, name, other in (([], "pong", "breakout"), (["dqn-breakout"], "dqn-breakout", "")):
        assert run([command, *words, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert f"The defaults are those of {name}; with another game or preset there are" in text
        assert f"colobus {command} {other or 'breakout'} --help" in text
    assert "(default: None)" not in text


@pytest.mark.parametrize("words", [["train", "pong"], ["show", "dqn-pong"], ["bench"]])
def test_help_is_short_and_help_all_has_everything(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for ask in ("--help", "--help-all"):
        assert run([*words, ask]) == 0
        shown.append(re.findall(r"^\W{2}(?:-h, )?(--[a-z][\w-]*)", capsys.readouterr().out, re.M))
    short, everything = shown
    assert 12 <= len(short) <= 25
    assert {"--help", "--steps", "--lr", "--seed", "--actors"} < {*short} < {*everything}
    assert len(everything) > 90


@pytest.mark.slow
def test_help_still_prints_defaults_that_say_something(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert run(["train", "pong", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for said in ("(default: 1000000)", "(default: 18.0)", "(default: 0.002)", "(default: 1)"):
        assert said in text
    folder = tmp_path_factory.mktemp("run")
    write_run(folder)
    assert run(["train", "--resume", str(folder), "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "The defaults are those of the run." in text


@pytest.mark.parametrize("words", [["watch", "runs"], ["eval", "x"], ["train", "breakout"]])
def test_help_has_the_words_that_were_given_too(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([words[0], "--help"]) == 0
    alone = capsys.readouterr().out
    assert run([*words, "--help"]) == 0
    there = capsys.readouterr().out
    assert "positional arguments" in there
    assert there == alone or words[0] == "train"  # which has the defaults of what is named


def test_every_listed_name_can_be_learned(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["games", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
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


def test_the_list_is_for_people_and_can_be_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["games"]) == 0
    text = capsys.readouterr().out
    assert "space_invaders" in text
    assert "dqn-" in text
    assert "train CartPole-v1" in text
    assert run(["games", "Pong"]) == 0
    text = capsys.readouterr().out
    assert "Atari games (1):" in text
    assert "gorila-pong" in text
    assert "seaquest" not in text
    assert run(["games", "tetris-3"]) == 0
    assert "no game or preset contains 'tetris-3'" in capsys.readouterr().out


ON = {
    "pong": {"PPO's clipped loss", "several epochs", "adaptive rate"},
    "impala-seaquest": {"V-trace"},
    "impala-paper": {"V-trace"},
}


@pytest.mark.parametrize("name", ON)
def test_the_parts_that_are_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", name]) == 0
    (line,) = re.findall(r"^parts: .*?(?=^parameters: )", capsys.readouterr().out, re.M | re.S)
    on, _, off = re.sub(r"\s+", " ", line).strip().partition("; off: ")
    parts = parts_of(preset(name)[0])
    assert set(re.findall(r"(?:parts: |, )(.+?) \(--", on)) == ON[name]
    assert set(off.split(", ")) == {part.name for part in parts} - ON[name]
    assert "--advantage" in {part.flag.split()[0] for part in parts}


def test_another_algorithm_has_none_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "dqn-pong"]) == 0
    assert "parts: " not in capsys.readouterr().out
    assert run(["show", "dqn-pong", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == []


def test_every_part_of_appo_can_be_switched_on_and_off() -> None:
    every = {part.name for part in parts_of(PRESETS["pong"])}
    states = {(part.name, part.on) for name in PRESETS for part in parts_of(PRESETS[name])}
    assert {name for name, on in states if on} == every
    assert {name for name, on in states if not on} == every


@pytest.mark.parametrize("name", ["impala-paper", "rldm-paper"])
def test_a_published_system_says_what_differs(name: str) -> None:
    notes = " ".join(NOTES[name])
    assert "published: " in notes
    assert notes.count("differs: ") >= 3
    assert isinstance(PRESETS[name].algorithm, APPO)
