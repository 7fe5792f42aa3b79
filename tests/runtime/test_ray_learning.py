"""Catch is learned on Ray by a run that is not deterministic, and what `colobus bench` measures.

Both have a Ray of their own: what is measured is not in a file whose tests share one.
"""

from __future__ import annotations

import json

import pytest

from colobus.cli.throughput import trained
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.runtime.groups import Cluster
from conftest import distributed_catch
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


def test_a_measured_training_begins_when_processes_have_begun() -> None:
    """Before, there are the random steps of a run's start, which take no time."""
    cluster = Cluster(cpus=0.1, silence=60.0)  # nobody is blamed on a slow machine
    counts, waits = trained(distributed_catch(1), 3.0, cluster, None, lambda _: None)
    (began, first), (_, last) = counts[0], counts[-1]
    assert began > 0.0
    assert last > first
    assert "learner_waits" in waits
