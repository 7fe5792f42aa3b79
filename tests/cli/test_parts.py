"""``gelada show`` names the parts that are on, and the presets of the published systems."""

from __future__ import annotations

import json
import re

import pytest

from gelada.algorithms.appo import APPO
from gelada.cli.main import run
from gelada.cli.show import parts_of
from gelada.experiment.presets import NOTES, PRESETS, preset

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
