"""The rungs of the ladder learn Catch, with the flags that they have there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gelada.cli import main as cli
from ladder import RUNGS

DRAW = ("--lr", "0.003", "--entropy", "0.01", "--entropy-end", "0.005")
"""A point that suits Catch, as tuning would find one."""

ELSEWHERE = {"impala", "impact", "appo", "default", "predict"}
"""`test_appo_presets`, `test_learning` and `test_ladder` have these learn Catch."""


@pytest.mark.parametrize("name", [name for name in RUNGS if name not in ELSEWHERE])
def test_the_rung_learns_catch(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rung = RUNGS[name]
    words = ["train", rung.preset("catch"), *rung.flags, *(DRAW if rung.tuned else ())]
    words += ["--deterministic", "--until-score", "0.9", "--steps", "100000"]
    words += ["--out", str(tmp_path / "run"), "--no-finish", "--no-tensorboard", "--json"]
    assert cli.run(words) == 0, capsys.readouterr().err
    summary = json.loads(capsys.readouterr().out)
    assert summary["score"] >= 0.9  # the mean of the last 50 games; at random -0.6
    assert summary["steps"] < 100_000
