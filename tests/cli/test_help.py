"""What help says: whose defaults it shows, and nothing about defaults that say nothing."""

from __future__ import annotations

import pytest

from gelada.cli.main import COMMANDS, run
from helpers.players import write_run


@pytest.mark.parametrize("command", COMMANDS)
def test_no_default_is_none(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert text.startswith(f"usage: gelada {command} ")
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
        assert f"gelada {command} {other or 'breakout'} --help" in text
    assert "(default: None)" not in text


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
