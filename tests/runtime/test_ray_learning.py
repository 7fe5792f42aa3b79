"""Catch is learned on Ray by runs that are not deterministic: two agents, and several parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import pytest

from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from helpers.ray_runs import Run, train

pytestmark = pytest.mark.cluster

ENOUGH = ("--until-score", 0.85, "--steps", 400_000)


def learned(run: Run) -> dict[str, Any]:
    """Wait for the end of a run, which has to end by its score; return its last metrics."""
    try:
        code, out, log = run.end()
    finally:
        run.kill()
    assert code == 0, log
    summary = json.loads(out)
    assert summary["best"] >= 0.85, log  # at random -0.6
    assert summary["steps"] < 400_000
    assert evaluate(load(run.path), episodes=200).mean >= 0.5
    return run.metrics()[-1]


def test_two_agents_learn_on_ray(tmp_path: Path) -> None:
    learned(train(tmp_path, "catch-pair", "--policies", "separate", *ENOUGH))


def test_the_parts_of_appo_learn_on_ray_without_a_common_pace(tmp_path: Path) -> None:
    shape = ("--actors", 4, "--games", 4, "--batch", 512, "--replays", 2)
    parts = ("--autoencoder", "latent", "--buffer-order", "random")
    last = learned(train(tmp_path, "appo-catch", *shape, *parts, *ENOUGH))
    assert {"kl_term", "kl_coefficient", "reconstruction_loss"} <= last.keys()
    picture = cv2.imread(str(tmp_path / "run" / "reconstruction.png"))
    assert picture is not None
    assert picture.std() > 1.0
