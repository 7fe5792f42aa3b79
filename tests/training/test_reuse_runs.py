"""Runs that use experience again, or load it on threads: equal where they must be, they learn, and
mistakes are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colobus.core.errors import RoleFailed
from colobus.core.types import Batch, Version
from colobus.experiment.check import check
from colobus.experiment.memory import buffer_bytes
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, ReuseSettings, Shape
from colobus.roles.replay.minibatch_buffer import Loader
from colobus.training.run import train
from conftest import catch, reshaped, tuned
from helpers.launching import refused, told
from helpers.outcomes import assert_same, batches_of, inline, learn_in_turns, place_inline, threads

CATCH = catch(512 + 10 * 512, deterministic=True)
SEVERAL = replace(CATCH.shape, actors=4, games=4)

REUSED = {
    "old windows": ReuseSettings(replay_proportion=0.5, replay_slots=5),
    "a ring": ReuseSettings(buffer_batches=3),
    "random uses": ReuseSettings(buffer_batches=3, buffer_order="random"),
    "all at once": ReuseSettings(1.5, 6, 4, "random", ramp_up=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", REUSED)
def test_a_seed_gives_the_same_bits_inline_and_on_threads(way: str) -> None:
    experiment = replace(CATCH, reuse=REUSED[way])
    oracle = inline(experiment)
    assert oracle.version == Version(0, 10)  # a version still is one fresh batch of each actor
    assert oracle.status.steps == 512 + 10 * 512
    assert oracle.status.lag == (1.0, 1.0, 1.0)
    assert_same(oracle, threads(experiment))
    assert not torch.equal(oracle.parameters, inline(CATCH).parameters)
    other = inline(replace(experiment, seed=2))
    assert not torch.equal(oracle.parameters, other.parameters)


@pytest.mark.slow
@pytest.mark.parametrize("queues", [2, 4])
def test_several_queues_are_one_queue_bit_for_bit(queues: int) -> None:
    one = replace(CATCH, shape=SEVERAL)
    several = replace(CATCH, shape=replace(SEVERAL, replays=queues))
    assert_same(inline(one), inline(several))
    assert_same(inline(one), threads(several))


def assert_windows_stay_with(batches: list[Batch], whose: Callable[[int, int], int]) -> None:
    """Windows that come again are of the same; ``whose`` tells it by row and number of rows."""
    owner: dict[bytes, int] = {}
    for batch in batches:
        replayed = batch.replayed.tolist()
        for row, old in enumerate(replayed):
            window, of = batch.frames[row].numpy().tobytes(), whose(row, len(replayed))
            assert window in owner or not old
            assert owner.setdefault(window, of) == of
    assert set(owner.values()) == {0, 1}


@pytest.mark.slow
def test_queues_draw_old_windows_of_their_own_actors() -> None:
    shape = replace(SEVERAL, replays=2)
    experiment = replace(CATCH, shape=shape, reuse=ReuseSettings(1.0, replay_slots=3))
    place = place_inline(experiment)
    batches = batches_of(place.roles["replay"])
    for _ in range(6):
        place.take_turns()
    assert [int(batch.fresh) for batch in batches] == [512] * 6
    assert [int(batch.replayed.sum()) for batch in batches] == [0, 0, 16, 16, 16, 16]
    assert_windows_stay_with(batches, lambda row, rows: 2 * row // rows)  # one after the other


LEARNED: dict[str, dict[str, Any]] = {
    "old windows, with vtrace": {
        "deterministic": True,
        "algorithm": tuned(PRESETS["catch"], advantage="vtrace"),
        "reuse": ReuseSettings(replay_proportion=0.5, replay_slots=10),
    },
    "a ring": {"deterministic": True, "reuse": ReuseSettings(buffer_batches=3, ramp_up=True)},
    "windows, first in first out": {
        "shape": replace(PRESETS["catch"].shape, actors=3, batch=12 * 32, in_flight=1)
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("way", LEARNED)
def test_catch_is_learned(way: str) -> None:
    learn_in_turns(replace(PRESETS["catch"], **LEARNED[way]))


def test_without_a_common_pace_no_actor_has_more_than_its_trajectories_in_flight() -> None:
    shape = Shape(actors=2, games=2, length=8, batch=24, in_flight=2, random_steps=64)
    experiment = replace(PRESETS["catch"], shape=shape, algorithm=tuned(CATCH, minibatch=24))
    place = place_inline(experiment)
    queue = place.roles["replay"]
    first, second = (place.roles[f"actor-{i}"] for i in range(2))
    for _ in range(2):
        first.step()
    queue.wait_for_room(1)  # the second has room, whatever the first has sent
    with pytest.raises(Exception, match="no room for 0 s"):
        first.step()
    place.roles["learner-0"].step()  # takes three windows of the four
    assert queue.depth == 1
    first.step()
    with pytest.raises(Exception, match="no room for 0 s"):
        first.step()
    second.step()
    assert place.roles["learner-0"].client.version == Version(0, 1)
    second.step()
    assert queue.depth == 4


MIX = "--replay-proportion 0.5"
REFUSED = {
    f"catch {MIX} --replay-slots 2": "--replay-slots 2: they hold 512 steps, no more than the 512 "
    "of a batch, so nothing would be replayed; raise it to at least 3",
    f"catch {MIX} --replay-slots 2 --batch 544": "--replay-slots 2: they hold 512 steps, no more "
    "than the 544 of a batch",
    f"gorila-catch {MIX}": "--replay-proportion 0.5 with DQN: it has a replay buffer; leave it out",
    f"dba3c-catch {MIX}": "--replay-proportion 0.5 with A3C: it learns from each step once",
    "gorila-catch --buffer-batches 2": "--buffer-batches 2 with DQN: it has a replay buffer",
    "dba3c-catch --buffer-batches 2": "--buffer-batches 2 with A3C: it learns from each step once",
    "catch --buffer-batches 4 --epochs 1": "--buffer-batches 4 with --epochs 1: a batch is used "
    "once; raise --epochs or leave it out",
    "catch --ramp-up --epochs 1": "--ramp-up with --epochs 1: a batch is used once",
    "catch --replay-slots 9": "--replay-slots 9: has an effect only with --replay-proportion above",
    "catch --buffer-order random": "--buffer-order random: has an effect only with "
    "--buffer-batches above 1",
    "catch --in-flight 3": "--in-flight 3: has an effect only with --batch and without --workers",
    "catch --batch 512 --ahead 2": "--ahead 2: has an effect only with --workers, or without",
    "catch --batch 512 --deterministic": "--batch 512 with --deterministic: a batch is one",
    "catch --batch 544 --in-flight 1": "--in-flight 1: the actors of a queue send at most 288 "
    "steps ahead, fewer than its 544 of a batch; raise it or lower --batch",
    "catch --replays 2 --actors 3": "--replays 2: 3 actors cannot be shared equally by so many "
    "queues; use 1",
    "catch --replays 4 --actors 4 --batch 192": "--replays 4: 6 windows in a batch cannot be "
    "shared equally by so many queues; use 2",
    "dqn-pong --replays 2": "--replays 2 with a single learner: it has one replay buffer; add",
    "pong --learners 2": "--learners 2 with APPO: not tested; leave out --workers and --learners "
    "or add --reduce group",
    "pong --reduce group": "--reduce group: has an effect only with --learners",
    "dqn-pong --learners 2 --reduce group": "--learners 2 --reduce group with DQN: not tested; "
    "leave out --reduce group",
    "dqn-pong --algorithm pqn": "a replay buffer with PQN: it learns from each step once; leave "
    "out --capacity and the like, or take a preset without a buffer, such as ppo-pong",
    "pong --batch 128": "--minibatch 256: must not be above the batch of 128 samples; lower it, or "
    "raise --length, --games or, if it is given, --batch",
    f"pong --learners 2 --reduce group {MIX} --replay-slots 50": "--replay-proportion 0.5 with "
    "--reduce group: ",
    "pong --learners 2 --reduce group --replays 2": "--replays 2 with --reduce group: each learner "
    "has one queue",
    "catch --emulators 2": "--emulators 2: has an effect only in Atari games",
    "dba3c-pong --loaders 1": "--loaders 1: has an effect only without --workers",
    "apex-pong --loaders 1": "--loaders 1 with DQN: ",
    "pong --emulators 9": "--emulators 9 with --games 8: each thread needs a game; use at most 8",
}


def test_a_setting_without_effect_is_no_reason_to_refuse() -> None:
    words = ("--learners", 2, "--reduce", "group", "--buffer-batches", 1)
    assert told("show", "impact-catch", *words)["settings"]["reuse"]["buffer_batches"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_one_line(words: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert refused("train", *words.split(), "--out", out).startswith(f"colobus: {REFUSED[words]}")
    assert not out.exists()


@pytest.mark.parametrize("batch", [0, 6 * 32])
def test_old_windows_of_separate_policies_stay_those_of_their_agent(batch: int) -> None:
    """Also if a batch ends in the midst of a trajectory."""
    pair = PRESETS["catch-pair"]
    pair = replace(
        pair,
        network=replace(pair.network, policies="separate"),
        algorithm=tuned(pair, minibatch=64),
        shape=replace(pair.shape, games=2, batch=batch, in_flight=9),
        reuse=ReuseSettings(1.5, 5),
        deterministic=not batch,
    )
    check(pair)
    place = place_inline(pair)
    batches = batches_of(place.roles["replay"])
    for _ in range(6):
        place.take_turns()
    assert sum(int(each.replayed.sum()) for each in batches) > 20
    assert_windows_stay_with(batches, lambda row, _: row % 2)


def test_what_is_held_counts_as_memory() -> None:
    window = (32 + 1) * 10 * 5
    experiment: Experiment = replace(CATCH, reuse=ReuseSettings(0.5, 20, buffer_batches=3))
    assert buffer_bytes(CATCH, (10, 5)) == 0
    assert buffer_bytes(experiment, (10, 5)) == window * (20 * 8 + 2 * 16 * 1.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reuse", [ReuseSettings(), REUSED["old windows"]], ids=["plain", "old windows"]
)
def test_loaders_change_no_bit(reuse: ReuseSettings) -> None:
    experiment = replace(CATCH, reuse=reuse)
    want = inline(experiment)
    assert want.version == Version(0, 10)
    for loaders in (1, 3):
        assert_same(threads(reshaped(experiment, loaders=loaders)), want)


def test_a_loader_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(loader: Loader) -> None:
        raise ValueError("torn")

    monkeypatch.setattr(Loader, "step", failing)
    experiment = reshaped(CATCH, loaders=2)
    with pytest.raises(RoleFailed, match=r"^loader-\d failed at test_reuse_runs\.py"):
        train(experiment, tmp_path / "run")
