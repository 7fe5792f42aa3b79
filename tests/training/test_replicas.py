"""Learners that step alike: what they are equal to, how they end, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gelada
from conftest import catch, short_pong, tuned
from gelada.core.checkpoint import newest_checkpoint
from gelada.core.errors import GeladaError, RoleFailed
from gelada.core.types import Version
from gelada.experiment.check import check
from gelada.experiment.settings import Experiment
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.replay.queue import TrajectoryQueue
from gelada.training.run import train
from helpers.outcomes import Outcome, assert_same, inline, place_threads, run_to_the_end, threads
from helpers.unbroken import assert_same_run

QUIET: dict[str, Any] = {"log": lambda _line: None}


def alike(base: Experiment, learners: int, actors: int, **changes: Any) -> Experiment:
    """Return an experiment with so many learners, with a minibatch for the whole batch of each."""
    shape = replace(base.shape, actors=actors, learners=learners, reduce="group")
    whole = actors * shape.games * shape.length
    return replace(base, shape=shape, algorithm=tuned(base, minibatch=whole, **changes))


def joined(base: Experiment, actors: int, **changes: Any) -> Experiment:
    """Return the experiment with one learner of all actors."""
    shape = replace(base.shape, actors=actors)
    whole = actors * shape.games * shape.length
    return replace(base, shape=shape, algorithm=tuned(base, minibatch=whole, **changes))


def pong(rounds: int, players: int) -> Experiment:
    base = short_pong(0, deterministic=True, optimizer=OptimizerSettings(epsilon=1e-3))
    steps = 64 // (2 * players) * 2 * players + rounds * players * 2 * 16
    return replace(base, stop=replace(base.stop, steps=steps))


@pytest.mark.slow
@pytest.mark.parametrize("learners", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("normalise", [True, False])
def test_several_learners_are_one_with_the_joined_batch(learners: int, normalise: bool) -> None:
    base = pong(5, learners)
    changes = {"normalise": normalise, "gradient_clip": 0.5}
    one = inline(joined(base, learners, **changes))
    many = threads(alike(base, learners, 1, **changes))
    assert many.version == one.version == Version(0, 5)
    assert many.status.steps == one.status.steps
    first = inline(joined(pong(1, learners), learners, **changes))
    moved = (one.parameters - first.parameters).abs().max()
    assert moved > 1e-3
    torch.testing.assert_close(many.parameters, one.parameters, rtol=1e-4, atol=2e-3 * moved.item())
    assert many.optimizer["count"] == one.optimizer["count"]
    for name in ("kl", "entropy", "gradient_norm"):
        assert many.status.values[name] == pytest.approx(one.status.values[name], rel=0.1, abs=1e-3)


def replicas_of(roles: Any) -> list[torch.Tensor]:
    """Return the parameters of every learner."""
    learners = [role for name, role in roles.items() if name.startswith("learner")]
    return [learner.client.flat.values for learner in learners]


CATCH = replace(
    catch(512 + 12 * 512, deterministic=True),
    shape=replace(catch(1).shape, actors=1, learners=2, reduce="group", servers=2),
)


@pytest.mark.slow
def test_a_seed_gives_the_same_run_bit_for_bit_and_all_replicas_are_equal() -> None:
    outcomes: list[Outcome] = []
    for _ in range(2):
        lines: list[str] = []
        place = place_threads(CATCH, lines)
        outcomes.append(run_to_the_end(place))
        assert lines == []
        first, second = replicas_of(place.roles)
        assert torch.equal(first, second)
        assert first.data_ptr() != second.data_ptr()
    assert_same(*outcomes)
    assert outcomes[0].version == Version(0, 12)
    assert outcomes[0].status.steps == 512 + 12 * 512
    assert outcomes[0].status.lag == (1.0, 1.0, 1.0)


@pytest.mark.slow
def test_one_learner_alone_is_a_central_run() -> None:
    alone = replace(CATCH, shape=replace(CATCH.shape, learners=1))
    central = replace(CATCH, shape=replace(CATCH.shape, learners=0))
    assert_same(inline(alone), inline(central))


@pytest.mark.slow
def test_a_run_is_resumed_exactly(tmp_path: Path) -> None:
    half = replace(CATCH, stop=replace(CATCH.stop, steps=512 + 6 * 512))
    train(half, tmp_path / "run", **QUIET)
    train(CATCH, tmp_path / "run", resume=True, **QUIET)
    train(CATCH, tmp_path / "whole", **QUIET)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[1].version.number == 12


def test_a_lost_learner_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, calls = TrajectoryQueue.sample, []

    def failing(queue: TrajectoryQueue, patience: float | None = None) -> Any:
        calls.append(queue)
        if len(calls) > 12:
            raise ValueError("the queue is torn")
        return sample(queue, patience)

    monkeypatch.setattr(TrajectoryQueue, "sample", failing)
    with pytest.raises(RoleFailed, match=r"^learner-\d failed at test_replicas\.py"):
        train(CATCH, tmp_path / "run", **QUIET)


@pytest.mark.slow
def test_catch_is_learned_and_an_interrupted_run_is_saved(tmp_path: Path) -> None:
    free = replace(
        catch(1),
        shape=replace(catch(1).shape, actors=1, learners=2, reduce="group"),
        stop=gelada.StopRule(steps=150_000, until_score=0.9),
    )

    def interrupt(status: Any, active: Any) -> None:
        if status.version > 4:
            raise KeyboardInterrupt

    endless = replace(free, stop=gelada.StopRule())
    result = train(endless, tmp_path / "run", watch=interrupt, **QUIET)
    assert result.interrupted
    assert result.saved
    result = train(free, tmp_path / "run", resume=True, **QUIET)
    assert result.score is not None
    assert result.score >= 0.9
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[1].steps == result.steps


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        (
            "pong",
            {"learners": 2},
            r"^--learners 2 with APPO: .* or add --reduce group$",
        ),
        ("pong", {"reduce": "group"}, r"^--reduce group: has an effect only with --learners"),
        (
            "dqn-pong",
            {"learners": 2, "reduce": "group"},
            r"^--learners 2 --reduce group with DQN: not tested",
        ),
        (
            "pong",
            {"learners": 2, "reduce": "group", "replay_proportion": 0.5, "replay_slots": 50},
            r"^--replay-proportion 0\.5 with --reduce group: ",
        ),
        (
            "pong",
            {"learners": 2, "reduce": "group", "replays": 2},
            r"^--replays 2 with --reduce group: each learner has one queue",
        ),
    ],
)
def test_what_a_group_cannot_do_is_refused(name: str, words: dict[str, Any], said: str) -> None:
    with pytest.raises(GeladaError, match=said):
        check(gelada.preset(name, **words))
