"""The commands that benchmarks give can be given; names of flags that changed are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import cells, run
from benchmarks.lib.ledger import NAME
from colobus.cli import main as cli

BENCHMARKS = Path(run.__file__).parent

OWN = {
    *("--only", "--list", "--seeds", "--most"),  # of run.py
    *("--faults", "--dummy"),  # of lib/faults.py and lib/stubs.py
    *("--quiet", "--disable-pip-version-check"),  # of pip
    *("--algorithm", "--game", "--score"),  # of the scripts of other systems
}


def flags_of(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the flags in a command's help, for each family of presets."""
    found: set[str] = set()
    for subject in ("pong", "dba3c-pong", "gorila-pong"):
        assert cli.run([command, subject, "--help-all"]) == 0
        found |= set(re.findall(r"--[a-z][\w-]*", capsys.readouterr().out))
    return found


@pytest.mark.slow
def test_every_flag_that_is_given_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = set().union(*(flags_of(word, capsys) for word in ("train", "bench", "suite")))
    files = [BENCHMARKS / "cells.py", *(BENCHMARKS / "lib").glob("*.py")]
    files.append(BENCHMARKS / "peers" / "matches.py")
    wrong = {
        f"{file.name}: {flag}"
        for file in files
        for flag in re.findall(r'"(--[a-z][\w-]*)', file.read_text(encoding="utf-8"))
        if flag not in known | OWN
    }
    measured = " ".join(plan.asked["words"] for plan in cells.on_gpu())
    wrong |= set(re.findall(r"--[a-z][\w-]*", measured)) - known
    assert wrong == set()


def test_old_names_of_flags_are_on_the_page_of_results(capsys: pytest.CaptureFixture[str]) -> None:
    known = set().union(*(flags_of(word, capsys) for word in ("train", "bench", "suite")))
    docs = BENCHMARKS.parent / "docs"
    told = " ".join((docs / "results.md").read_text(encoding="utf-8").split())
    tables = "".join(file.read_text(encoding="utf-8") for file in (docs / "results").glob("*.md"))
    commands = re.findall(rf"`({NAME} [^`]+)`", re.sub(r"\s+", " ", tables))
    used = {flag for line in commands for flag in re.findall(r"--[a-z][\w-]*", line)}
    assert len(commands) > 100
    assert {flag for flag in used - known if f"`{flag}` is " not in told} == set()
