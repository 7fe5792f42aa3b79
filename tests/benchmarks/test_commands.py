"""The commands that benchmarks give can be given; names of flags that changed are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import cells, run
from benchmarks.lib.ledger import NAME
from helpers.launching import printed

BENCHMARKS = Path(run.__file__).parent

OWN = {
    *("--only", "--list", "--seeds", "--most"),  # of run.py
    *("--faults", "--dummy"),  # of lib/faults.py and lib/stubs.py
    *("--quiet", "--disable-pip-version-check"),  # of pip
    *("--algorithm", "--game", "--score"),  # of the scripts of other systems
}


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Return the flags in the help of commands that train, for each family of presets."""
    presets = ("pong", "dba3c-pong", "gorila-pong")
    asked = [(command, name) for command in ("train", "bench", "suite") for name in presets]
    texts = [printed(*words, "--help-all") for words in asked]
    return {flag for text in texts for flag in re.findall(r"--[a-z][\w-]*", text)}


@pytest.mark.slow
def test_every_flag_that_is_given_exists(known: set[str]) -> None:
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


@pytest.mark.slow
def test_old_names_of_flags_are_on_the_page_of_results(known: set[str]) -> None:
    docs = BENCHMARKS.parent / "docs"
    told = " ".join((docs / "results.md").read_text(encoding="utf-8").split())
    tables = "".join(file.read_text(encoding="utf-8") for file in (docs / "results").glob("*.md"))
    commands = re.findall(rf"`({NAME} [^`]+)`", re.sub(r"\s+", " ", tables))
    used = {flag for line in commands for flag in re.findall(r"--[a-z][\w-]*", line)}
    assert len(commands) > 100
    assert {flag for flag in used - known if f"`{flag}` is " not in told} == set()
