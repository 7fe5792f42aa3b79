"""Learning, from end to end: Catch and other environments to a score, Pong for a moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import colobus
from benchmarks.lib.faults import Faults, FaultyGraph
from colobus.algorithms.appo import APPO
from colobus.core.checkpoint import newest_checkpoint
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.films.player import record
from colobus.experiment.presets import PRESETS
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule
from colobus.training.run import train
from conftest import short_pong, tuned
from helpers.learning import QUIET, learn, learn_in_turns
from helpers.outcomes import batches_of, place_inline
from helpers.variants import with_network

pytestmark = pytest.mark.slow

CATCH = PRESETS["catch"]
WAYS: dict[str, dict[str, Any]] = {
    "deterministic, rmsprop, three servers": {
        "deterministic": True,
        "shape": replace(CATCH.shape, servers=3),
        "optimizer": OptimizerSettings(optimizer="rmsprop", decay=0.95),
        "algorithm": tuned(CATCH, lr=5e-4, lr_max=1e-3),
    },
    "deterministic, bfloat16": {
        "deterministic": True,
        "network": replace(CATCH.network, precision="bfloat16"),
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_catch_is_learned(tmp_path: Path, way: str) -> None:
    result = learn(replace(CATCH, **WAYS[way]), tmp_path / "run", log=pytest.fail)
    assert result.status.games > 50
    _, checkpoint, _ = newest_checkpoint(result.folder / "checkpoints")
    assert checkpoint.steps == result.status.steps


WORKERS = PRESETS["dba3c-catch"]
BACKUP = replace(WORKERS.shape, workers=3, quorum=2)
WORKER_WAYS: dict[str, tuple[dict[str, Any], Faults]] = {
    "deterministic, the ratio clipped": (
        {"deterministic": True, "algorithm": tuned(WORKERS, ratio_clip=1.0)},
        Faults(),
    ),
    "a backup and a straggler": ({"shape": BACKUP}, Faults(straggler=0.02)),
}


def test_catch_is_learned_in_workers_without_rounds() -> None:
    shape = replace(WORKERS.shape, workers=3, asynchronous=True)
    learn_in_turns(replace(WORKERS, shape=shape), steps=300_000)


@pytest.mark.parametrize("way", WORKER_WAYS)
def test_catch_is_learned_in_workers(tmp_path: Path, way: str) -> None:
    changes, faults = WORKER_WAYS[way]
    experiment = replace(WORKERS, **changes)
    how: dict[str, Any] = {"log": pytest.fail, "make": FaultyGraph(faults)}
    result = learn(experiment, tmp_path / "run", steps=300_000, **how)
    status, shape = result.status, experiment.shape
    assert status.games > 50
    assert status.workers is not None
    counted, dropped, partial, *_ = status.workers.traffic
    assert status.workers.updates <= counted + dropped + partial + shape.workers
    if faults.straggler:  # whatever it computes comes too late
        assert dropped > 0
    if shape.quorum in (0, shape.workers) and not shape.asynchronous:
        assert (dropped, partial) == (0, 0)
        rounds = status.workers.updates / shape.workers
        assert rounds == pytest.approx(status.version, abs=1)
    _, checkpoint, _ = newest_checkpoint(result.folder / "checkpoints")
    if shape.asynchronous:  # a learner tells the version that it pulled; others go on meanwhile
        assert checkpoint.version.number >= status.version - shape.workers
        assert checkpoint.version.number <= status.workers.updates + shape.workers
    else:
        assert checkpoint.version.number == pytest.approx(status.version, abs=shape.workers)
    assert checkpoint.steps == status.steps


def test_a_short_pong_run_moves_its_numbers() -> None:
    experiment = short_pong(24, deterministic=True, algorithm=APPO(minibatch=32, lr=1e-3))
    experiment = replace(experiment, games=replace(experiment.games, max_frames=400))
    place = place_inline(experiment)
    replay, tracker = place.roles["replay"], place.roles["tracker"]
    batches, entropies, report = batches_of(replay), list[float](), tracker.report

    def note(update: Any) -> bool:
        entropies.append(update.values["entropy"])
        over: bool = report(update)
        return over

    tracker.report = note
    first = place.roles["server-0"].pull().values
    place.run()
    last, status = place.roles["server-0"].pull(), tracker.status()

    assert last.version.number == len(batches) == 24
    assert status.steps == 64 + 24 * 64 == 64 + sum(b.actions.numel() for b in batches)
    over = torch.cat([b.ages[:, 1:] == 0 for b in batches], dim=1)  # [games, steps]
    truncated = torch.cat([b.truncated for b in batches], dim=1)
    assert torch.equal(over, truncated)  # nobody wins or loses in 100 steps
    assert status.games == int(over.sum()) == 12  # 4 games of 384 steps, each cut off at 100 - x
    rewards = torch.cat([b.rewards for b in batches], dim=1).numpy()
    scores = [
        part.sum()
        for game in range(4)
        for part in np.split(rewards[game], np.flatnonzero(over[game]) + 1)[:-1]
    ]
    assert status.score == pytest.approx(np.mean(scores))
    assert min(scores) < 0  # the other side scores
    assert status.best_game == max(scores)

    assert entropies[0] == pytest.approx(np.log(6), abs=0.02)
    assert all(entropy < np.log(6) for entropy in entropies)
    assert entropies[-1] < np.log(6) - 0.01
    assert all(np.isfinite(value) for value in status.values.values())
    assert status.values["explained_variance"] < 1.0
    assert status.values["kl"] > 0.0
    named = place.roles["learner-0"].client.flat.layout
    before, after = named.named(first), named.named(last.values)
    assert all(not torch.equal(before[name], after[name]) for name in before)
    assert last.values.isfinite().all()


@pytest.mark.parametrize("name", ["impala-catch", "appo-catch", "impact-catch"])
def test_the_preset_learns_catch(tmp_path: Path, name: str) -> None:
    experiment = replace(PRESETS[name], deterministic=True)
    result = learn(experiment, tmp_path / "run")
    _, checkpoint, _ = newest_checkpoint(result.folder / "checkpoints")
    target = experiment.algorithm.target_every > 0  # the servers keep it
    saved = any(name.startswith("optimizer/target/") for name in checkpoint.tensors)
    assert saved == target


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
    words: Any = {"tensorboard": False, "log": lambda _line: None}
    result = colobus.train(env, tmp_path / "run", steps=steps, until_score=goal, **words)
    assert result.score is not None
    assert result.score >= goal
    evaluation = colobus.evaluate(result.folder, episodes=20, policy="greedy")
    assert evaluation.mean >= 0.95 * goal


DARK = replace(PRESETS["catch-dark"], tracker=QUIET, deterministic=True, seed=1)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the dark Catch with an LSTM."""
    folder = tmp_path_factory.mktemp("dark") / "run"
    learn(DARK, folder, steps=10**9)
    return folder


def test_a_memory_is_what_the_dark_catch_needs(learned: Path) -> None:
    """As many steps without the LSTM, which sees one frame at a time, are of no use."""
    _, checkpoint, _ = newest_checkpoint(learned / "checkpoints")
    without = with_network(DARK, recurrent="none")
    without = replace(without, stop=StopRule(steps=checkpoint.steps))
    result = train(without, learned.parent / "without")
    assert result.status.best is not None
    assert result.status.best < 0.4


def test_evaluation_and_film_keep_the_memory(learned: Path, tmp_path: Path) -> None:
    agent = load(learned)
    assert evaluate(agent, episodes=100).mean >= 0.6  # without a memory at most -0.6
    film = record(agent, tmp_path / "dark.gif", seconds=30.0, several=True)
    assert film.games >= 20
    assert film.score >= 0.5 * film.games
