"""Learning from an experience store, from end to end: Catch in every shape, and real Pong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colobus.experiment.presets import PRESETS
from colobus.roles.tracker import StopRule
from colobus.training.run import train
from conftest import tuned
from helpers import ray_runs
from helpers.learning import QUIET, learn, learn_in_turns

pytestmark = pytest.mark.slow

CATCH = PRESETS["gorila-catch"]
CENTRED = replace(CATCH.shape, workers=0, asynchronous=False, actors=2)
APART = replace(CATCH.shape, workers=0, learners=2, actors=2, replays=2)
PRIORITIZED = replace(CATCH.replay, prioritized=True)
LAMBDA = tuned(CATCH, returns="q_lambda", target_every=0)
BOTH = tuned(CATCH, double=True, duelling=True, explore="ladder")
FEW = replace(CATCH.replay, windows=16, samples_per_insert=0.5)
WAYS: dict[str, dict[str, Any]] = {
    "one learner, prioritized": {"shape": CENTRED, "replay": PRIORITIZED, "algorithm": BOTH},
    "one learner, lambda, predict": {
        "shape": CENTRED,
        "replay": FEW,
        "algorithm": LAMBDA,
        "network": replace(CATCH.network, autoencoder="predict"),
    },
    "outliers dropped": {"shape": CENTRED, "algorithm": tuned(CATCH, outlier=2.0)},
}


@pytest.mark.parametrize("way", WAYS)
def test_catch_is_learned(tmp_path: Path, way: str) -> None:
    experiment = replace(CATCH, deterministic="outlier" not in way, **WAYS[way])
    learn(experiment, tmp_path / "run")


SEVERAL: dict[str, dict[str, Any]] = {
    "asynchronous workers": {},
    "synchronous workers, prioritized": {
        "shape": replace(CATCH.shape, asynchronous=False),
        "replay": PRIORITIZED,
    },
    "shared replays": {"shape": APART},
}


@pytest.mark.parametrize("way", SEVERAL)
def test_catch_is_learned_by_several(way: str) -> None:
    status = learn_in_turns(replace(CATCH, **SEVERAL[way]))
    assert status.workers is not None
    assert status.workers.all == 2


@pytest.mark.cluster
def test_catch_is_learned_on_ray(tmp_path: Path) -> None:
    run = ray_runs.train(tmp_path, "gorila-catch", "--workers", 2, *ray_runs.PATIENT)
    code, out, _ = run.end()
    assert code == 0
    assert json.loads(out)["best"] >= 0.9
    assert run.events("lost") == []


def test_real_pong_is_played_and_learned_from_for_a_moment(tmp_path: Path) -> None:
    experiment = PRESETS["apex-pong"]
    memory = replace(experiment.replay, capacity=4_000, minimum=1_000, samples_per_insert=0.5)
    shape = replace(experiment.shape, random_steps=512)
    stop = StopRule(steps=5_000)
    experiment = replace(experiment, replay=memory, shape=shape, stop=stop, tracker=QUIET)
    status = train(experiment, tmp_path / "run", log=lambda _: None).status
    assert status.steps >= 5_000
    assert status.version >= 10  # 0.5 windows for each of 3,488 steps, 128 a batch
    assert {"td_error", "q", "value_loss"} <= set(status.values)
