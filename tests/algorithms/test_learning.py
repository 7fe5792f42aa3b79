"""Learning, from end to end: Catch and other environments to a score, also from a replay buffer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.experiment.presets import PRESETS
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule
from colobus.training.run import train
from conftest import reshaped, tuned
from helpers import ray_runs
from helpers.outcomes import NO_EVENTS, learn, learn_in_turns
from helpers.variants import with_network

pytestmark = pytest.mark.slow

CATCH = PRESETS["catch"]
WAYS = {
    "rmsprop, three servers": replace(
        CATCH,
        shape=replace(CATCH.shape, servers=3),
        optimizer=OptimizerSettings(optimizer="rmsprop", decay=0.95),
        algorithm=tuned(CATCH, lr=5e-4, lr_max=1e-3),
    ),
    "bfloat16": with_network(CATCH, precision="bfloat16"),
    "learners that step alike": reshaped(CATCH, actors=1, learners=2, reduce="group"),
}


@pytest.mark.parametrize("way", WAYS)
def test_catch_is_learned(tmp_path: Path, way: str) -> None:
    learn(replace(WAYS[way], deterministic=True), tmp_path / "run", log=pytest.fail)


WORKERS = PRESETS["dba3c-catch"]


def test_catch_is_learned_in_workers_without_rounds() -> None:
    shape = replace(WORKERS.shape, workers=3, asynchronous=True)
    learn_in_turns(replace(WORKERS, shape=shape), steps=300_000)


def test_catch_is_learned_in_workers(tmp_path: Path) -> None:
    """With the ratio clipped; in simulated time one of three is always late (`test_virtual`)."""
    clipped = replace(WORKERS, deterministic=True, algorithm=tuned(WORKERS, ratio_clip=1.0))
    status = learn(clipped, tmp_path / "run", steps=300_000, log=pytest.fail).status
    workers = clipped.shape.workers
    assert status.workers is not None
    counted, dropped, partial, *_ = status.workers.traffic
    assert (dropped, partial) == (0, 0)
    assert status.workers.updates <= counted + workers
    assert status.workers.updates / workers == pytest.approx(status.version, abs=1)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        *((f"{name}-catch", 150_000) for name in ("impala", "appo", "impact")),
        ("iqn-catch", 50_000),
        ("catch-dark", 10**9),  # without a memory the mean is at most -0.6
    ],
)
def test_the_preset_learns_catch(tmp_path: Path, name: str, steps: int) -> None:
    learn(replace(PRESETS[name], deterministic=True), tmp_path / "run", steps=steps)


@pytest.mark.parametrize(
    ("env", "goal", "steps"),
    [
        ("CartPole-v1", 475.0, 400_000),
        ("helpers.gym_toys:doors_by_key", 24.0, 60_000),  # a closed door is an error
        ("dqn-helpers.gym_toys:doors_by_info", 23.5, 60_000),
        ("pqn-helpers.gym_toys:doors_in_pictures", 19.0, 60_000),
        ("a3c-helpers.gym_toys:many_doors", 24.0, 60_000),
        ("minigrid:MiniGrid-Empty-5x5-v0", 0.9, 150_000),
    ],
)
def test_an_environment_is_learned(env: str, goal: float, steps: int, tmp_path: Path) -> None:
    words: Any = {"deterministic": True, "tensorboard": False, "log": lambda _line: None}
    result = colobus.train(env, tmp_path / "run", steps=steps, until_score=goal, **words)
    assert result.score is not None
    assert result.score >= goal
    evaluation = colobus.evaluate(result.folder, episodes=20, policy="greedy")
    assert evaluation.mean >= 0.95 * goal


GORILA = PRESETS["gorila-catch"]
CENTRED = reshaped(GORILA, workers=0, asynchronous=False, actors=2)
PRIORITIZED = replace(GORILA.replay, prioritized=True)
FEW = replace(GORILA.replay, windows=16, samples_per_insert=0.5)
LAMBDA = tuned(GORILA, returns="q_lambda", target_every=0)
BOTH = tuned(GORILA, double=True, duelling=True, explore="ladder")
PREDICTS = with_network(CENTRED, autoencoder="predict")
GORILA_WAYS = {
    "one learner, prioritized": replace(CENTRED, replay=PRIORITIZED, algorithm=BOTH),
    "one learner, lambda, predict": replace(PREDICTS, replay=FEW, algorithm=LAMBDA),
}


@pytest.mark.parametrize("way", GORILA_WAYS)
def test_catch_is_learned_from_a_replay_buffer(tmp_path: Path, way: str) -> None:
    learn(replace(GORILA_WAYS[way], deterministic=True), tmp_path / "run")


SEVERAL = {
    "asynchronous workers": GORILA,
    "synchronous, prioritized": replace(reshaped(GORILA, asynchronous=False), replay=PRIORITIZED),
    "shared replays": reshaped(GORILA, workers=0, learners=2, actors=2, replays=2),
}


@pytest.mark.parametrize("way", SEVERAL)
def test_catch_is_learned_by_several(way: str) -> None:
    status = learn_in_turns(SEVERAL[way])
    assert status.workers is not None
    assert status.workers.all == 2


def test_catch_is_learned_though_outliers_are_dropped() -> None:
    learn_in_turns(replace(CENTRED, algorithm=tuned(GORILA, outlier=2.0)))


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
