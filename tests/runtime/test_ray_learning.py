"""Catch is learned on Ray by a run that is not deterministic."""

from __future__ import annotations

import json

import pytest

from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from helpers.ray_runs import PATIENT, Begin

pytestmark = pytest.mark.cluster


def test_two_agents_learn_on_ray(begin: Begin) -> None:
    """The run has to end by its score."""
    ends = ("--until-score", 0.85, "--steps", 400_000)
    run = begin("catch-pair", "--policies", "separate", *ends, *PATIENT)
    code, out, log = run.end()
    assert code == 0, log
    summary = json.loads(out)
    assert summary["best"] >= 0.85, log  # at random -0.6
    assert summary["steps"] < 400_000
    assert evaluate(load(run.path), episodes=200).mean >= 0.5
