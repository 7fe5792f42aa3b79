"""Learning from an experience store, from end to end: Catch in every shape, and real Pong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from colobus.experiment.presets import PRESETS
from colobus.roles.tracker import StopRule
from colobus.training.run import train
from conftest import reshaped, tuned
from helpers import ray_runs
from helpers.outcomes import NO_EVENTS, learn, learn_in_turns
from helpers.variants import with_network

pytestmark = pytest.mark.slow

CATCH = PRESETS["gorila-catch"]
CENTRED = reshaped(CATCH, workers=0, asynchronous=False, actors=2)
PRIORITIZED = replace(CATCH.replay, prioritized=True)
FEW = replace(CATCH.replay, windows=16, samples_per_insert=0.5)
LAMBDA = tuned(CATCH, returns="q_lambda", target_every=0)
BOTH = tuned(CATCH, double=True, duelling=True, explore="ladder")
PREDICTS = with_network(CENTRED, autoencoder="predict")
WAYS = {
    "one learner, prioritized": replace(CENTRED, replay=PRIORITIZED, algorithm=BOTH),
    "one learner, lambda, predict": replace(PREDICTS, replay=FEW, algorithm=LAMBDA),
}


@pytest.mark.parametrize("way", WAYS)
def test_catch_is_learned(tmp_path: Path, way: str) -> None:
    learn(replace(WAYS[way], deterministic=True), tmp_path / "run")


SEVERAL = {
    "asynchronous workers": CATCH,
    "synchronous, prioritized": replace(reshaped(CATCH, asynchronous=False), replay=PRIORITIZED),
    "shared replays": reshaped(CATCH, workers=0, learners=2, actors=2, replays=2),
}


@pytest.mark.parametrize("way", SEVERAL)
def test_catch_is_learned_by_several(way: str) -> None:
    status = learn_in_turns(SEVERAL[way])
    assert status.workers is not None
    assert status.workers.all == 2


def test_catch_is_learned_though_outliers_are_dropped() -> None:
    learn_in_turns(replace(CENTRED, algorithm=tuned(CATCH, outlier=2.0)))


@pytest.mark.cluster
def test_catch_is_learned_on_ray(tmp_path: Path) -> None:
    run = ray_runs.train(tmp_path, "gorila-catch", "--workers", 2, *ray_runs.PATIENT)
    code, out, _ = run.end()
    assert code == 0
    assert json.loads(out)["best"] >= 0.9
    assert run.events("lost") == []


def test_real_pong_is_played_and_learned_from_for_a_moment(tmp_path: Path) -> None:
    experiment = reshaped(PRESETS["apex-pong"], random_steps=512)
    memory = replace(experiment.replay, capacity=4_000, minimum=1_000, samples_per_insert=0.5)
    experiment = replace(experiment, replay=memory, stop=StopRule(steps=5_000), tracker=NO_EVENTS)
    status = train(experiment, tmp_path / "run", log=lambda _: None).status
    assert status.steps >= 5_000
    assert status.version >= 10  # 0.5 windows for each of 3,488 steps, 128 a batch
    assert {"td_error", "q", "value_loss"} <= set(status.values)
