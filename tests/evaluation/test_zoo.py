"""The agents of the zoo."""

from __future__ import annotations

import json
import math
import re
import tarfile
from pathlib import Path
from statistics import pstdev
from typing import Any

import pytest

from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.scores import baselines
from colobus.report.statistics import plus_minus
from colobus.runs.folder import CLONE, place_of
from helpers.players import decoded

ZOO = Path(__file__).resolve().parents[2] / "zoo"
NAMES = sorted(path.parent.name for path in ZOO.glob("*/config.json"))
MOST_BYTES, GAMES = 1_000_000, 100
LOGS = CLONE / "benchmarks" / "results" / "logs" / "zoo.tar.xz"


def scores_of(name: str) -> Any:
    return json.loads((ZOO / name / "evaluation.json").read_text(encoding="utf-8"))


def text_of(name: str) -> str:
    return (ZOO / name).read_text(encoding="utf-8")


def test_the_zoo_has_two_agents_and_a_list_of_them() -> None:
    assert CLONE / "zoo" == ZOO
    assert NAMES == ["breakout", "pong"]
    row = r"^\| `zoo:(\w+)` \|.*?\| ([\d.]+) ± ([\d.]+) \|"
    scores = [(scores_of(name)["mean"], scores_of(name)["standard_error"]) for name in NAMES]
    want = [(n, f"{mean:.2f}", f"{e:.2f}") for n, (mean, e) in zip(NAMES, scores, strict=True)]
    assert sorted(re.findall(row, text_of("README.md"), re.MULTILINE)) == want


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_is_small_its_card_has_its_score_and_it_plays_well(name: str) -> None:
    """Far better than random play."""
    folder = place_of(Path(f"zoo:{name}"))
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    saved, card = scores_of(name), text_of(f"{name}/README.md")
    assert saved["episodes"] == len(saved["scores"]) == GAMES
    assert saved["mean"] == pytest.approx(sum(saved["scores"]) / len(saved["scores"]))
    assert f"{saved['mean']:.2f} +/- {pstdev(saved['scores']):.2f}" in card
    assert f"protocol {saved['protocol']}" in card
    assert len(decoded(folder / "replay.mp4")[0]) > 100
    agent = load(f"zoo:{name}")
    assert (agent.games.game, agent.checkpoint.steps) == (name, saved["steps"])
    random, human = baselines(name) or (0.0, math.inf)
    assert evaluate(agent, "training", 1).mean > (random + human) / 2


@pytest.mark.parametrize("name", NAMES)
def test_the_report_has_the_score_of_the_card(name: str) -> None:
    report, saved = text_of(f"{name}/report.md"), scores_of(name)
    assert f" | {plus_minus(saved['mean'], saved['standard_error'])} | " in report
    assert f"noop: {GAMES} games, actions sampled, sticky actions 0," in report
    assert "## Published scores" in report
    assert f"({name}/report.md)" in text_of("README.md")


def test_the_score_before_rounding_is_in_the_logs() -> None:
    with tarfile.open(LOGS) as logs:
        file = logs.extractfile("breakout-float32.json")
        assert file is not None
        log = json.loads(file.read())
    said = " ".join(text_of("README.md").split())
    assert (log["protocol"], log["episodes"], log["seed"]) == ("noop", GAMES, 1)
    assert log["mean"] == pytest.approx(sum(log["scores"]) / GAMES)
    assert log["steps"] == scores_of("breakout")["steps"]
    assert f"{log['mean']:.2f} ± {log['standard_error']:.2f}" in said
