"""The commands that benchmarks give can be given; names of flags that changed are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import cells, run
from benchmarks.lib.ledger import NAME
from helpers.launching import flags_of

BENCHMARKS = Path(run.__file__).parent

OWN = {
    *("--only", "--list", "--seeds", "--most"),  # of run.py
    *("--faults", "--dummy"),  # of lib/faults.py and lib/stubs.py
    *("--quiet", "--disable-pip-version-check"),  # of pip
    *("--algorithm", "--game", "--score"),  # of the scripts of other systems
}


def flags_in(text: str, before: str = "") -> set[str]:
    return set(re.findall(rf"{before}(--[a-z][\w-]*)", text))


@pytest.mark.slow
def test_every_flag_that_is_given_exists_and_old_names_are_on_the_page_of_results() -> None:
    known = flags_of("train") | flags_of("bench") | flags_of("suite")
    files = [BENCHMARKS / "cells.py", *(BENCHMARKS / "lib").glob("*.py")]
    files.append(BENCHMARKS / "peers" / "matches.py")
    given = {file.name: flags_in(file.read_text(encoding="utf-8"), '"') for file in files}
    assert {name: wrong for name, flags in given.items() if (wrong := flags - known - OWN)} == {}
    assert flags_in(" ".join(plan.asked["words"] for plan in cells.on_gpu())) <= known

    docs = BENCHMARKS.parent / "docs"
    told = " ".join((docs / "results.md").read_text(encoding="utf-8").split())
    tables = "".join(file.read_text(encoding="utf-8") for file in (docs / "results").glob("*.md"))
    commands = re.findall(rf"`({NAME} [^`]+)`", re.sub(r"\s+", " ", tables))
    assert len(commands) > 100
    old = flags_in(" ".join(commands)) - known
    assert {flag for flag in old if f"`{flag}` is " not in told} == set()
