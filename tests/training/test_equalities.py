"""What must be equal: servers, learners, places, and two runs of one seed; and what a broadcast
interval changes: actors get the parameters of every K-th version only."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import colobus
from colobus.algorithms.a3c import A3C
from colobus.core.checkpoint import newest_checkpoint
from colobus.core.types import Ints, Version
from colobus.envs.api import Step
from colobus.envs.catch import CatchGames
from colobus.experiment.check import check
from colobus.experiment.settings import Experiment, Shape
from colobus.experiment.shape import MOST
from colobus.ops.flat import Layout
from colobus.roles.tracker import StopRule
from colobus.runtime.groups import ANSWERED, Hosts, call_threads, group_processes
from colobus.training.run import train
from colobus.training.start import begin, open_games
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, distributed_pong, dqn, make_net, reshaped, short_pong
from helpers.outcomes import (
    Inline,
    Outcome,
    assert_same,
    assert_same_run,
    batches_of,
    equal,
    finished,
    inline,
    outcome,
    place_inline,
    threads,
)
from helpers.variants import ALL, PAIR

CATCH = catch(512 + 12 * 512, deterministic=True)  # 12 rounds
LONG = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("servers", [2, 3, 7])
def test_several_servers_are_one_server_bit_for_bit(servers: int) -> None:
    one, several = inline(CATCH), inline(reshaped(CATCH, servers=servers))
    assert one.version == Version(0, 12)
    assert_same(one, several)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dba3c-catch", "appo-catch"])
def test_a_run_is_the_same_on_threads_and_in_simulated_time(name: str, tmp_path: Path) -> None:
    """In simulated time, as on Ray, actors open games themselves."""
    hosts = Hosts(costs="emulate=1ms,learn=1ms")
    settings: dict[str, Any] = {"deterministic": True, "tensorboard": False, "random_steps": 512}
    settings |= {"steps": 3000, "log": lambda _line: None}
    for folder, cluster in (("threads", None), ("virtual", hosts)):
        colobus.train(name, tmp_path / folder, cluster=cluster, **settings)
    assert_same_run(tmp_path / "virtual", tmp_path / "threads")


class Sleepy(CatchGames):
    """Catch whose actors are slow at random, each in its own way."""

    def __init__(self, seeds: Ints) -> None:
        super().__init__(seeds)
        self._sleep = np.random.default_rng(time.monotonic_ns())
        self._most = self._sleep.uniform(0, 1e-3)

    def step(self, actions: Ints) -> Step:
        time.sleep(self._sleep.uniform(0, self._most))
        return super().step(actions)


CENTRAL = replace(
    CATCH,
    shape=Shape(actors=3, games=4, length=16, servers=2, random_steps=768),
    stop=replace(CATCH.stop, steps=768 + 192 * 15),
)
WORKERS = distributed_catch(25, workers=3, actors=2, games=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "version", "steps"),
    [(CENTRAL, 15, 768 + 15 * 192), (WORKERS, 25, 504 + 25 * 3 * 72)],
    ids=["central", "workers"],
)
def test_inline_and_threads_give_the_same_run_bit_for_bit(
    experiment: Experiment, version: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = inline(experiment)
    assert oracle.version == Version(0, version)
    assert oracle.status.steps == steps
    assert oracle.status.games > 50
    assert oracle.status.lag == (1.0, 1.0, 1.0)  # parameters exactly one round old
    assert_same(oracle, threads(experiment))
    monkeypatch.setattr(
        "colobus.training.start.make_games", lambda settings, seeds, **_: Sleepy(seeds)
    )
    assert_same(oracle, threads(experiment))


@pytest.mark.slow
def test_inline_is_the_oracle_of_train(tmp_path: Path) -> None:
    place = Inline(make_graph(CATCH, begin(CATCH), None, patience=0.0))  # actors open games
    place.run()
    oracle = outcome(place.roles)
    train(CATCH, tmp_path / "run")
    _, checkpoint, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint.version == oracle.version
    assert equal(checkpoint.group("aux"), oracle.algorithm_state)
    assert checkpoint.counters["games"] == oracle.status.games
    layout = Layout(make_net(CATCH.network, heads={"policy": 3, "value": 1}))
    assert equal(checkpoint.group("parameter"), layout.named(oracle.parameters))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=LONG)])
def test_a_seed_gives_the_same_pong_run_bit_for_bit(tmp_path: Path, precision: Any) -> None:
    experiment = short_pong(10, deterministic=True)
    experiment = replace(
        experiment,
        network=replace(experiment.network, precision=precision),
        games=replace(experiment.games, max_frames=400),  # so that games end
    )
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        train(replace(experiment, seed=seed), tmp_path / name, log=lambda line: None)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    (one, lines), (third, third_lines) = (finished(tmp_path / name) for name in ("one", "three"))
    assert (one.version, one.steps) == (Version(0, 10), 64 + 10 * 64)
    assert [line["version"] for line in lines] == [10]
    assert lines[-1]["games"] > 0
    for name, tensor in one.group("parameter").items():
        assert not torch.equal(tensor, third.group("parameter")[name]), name
    assert [line["kl"] for line in third_lines] != [line["kl"] for line in lines]


def with_actions(experiment: Experiment) -> tuple[Outcome, torch.Tensor]:
    """Run inline; return the outcome and all actions learned from, int64[windows, steps]."""
    place = place_inline(experiment)
    names = sorted(name for name in place.roles if name.startswith("replay"))
    taken = [batches_of(place.roles[name]) for name in names]
    place.run()
    rows = [torch.cat([batch.actions for batch in batches], dim=1) for batches in taken]
    return outcome(place.roles), torch.cat(rows)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=LONG)])
def test_n_workers_are_one_with_an_n_fold_batch_on_pong(count: int) -> None:
    """The same games, to the order in which gradients are added up."""
    many, actions = with_actions(distributed_pong(15, workers=count, actors=1, servers=2))
    one, want = with_actions(distributed_pong(15, workers=1, actors=count, servers=2))
    assert many.version == one.version == Version(0, 15)
    assert actions.shape == (2 * count, 75)
    assert torch.equal(actions, want)
    for name in ("steps", "games", "score", "best_game", "lag"):
        assert getattr(many.status, name) == getattr(one.status, name), name
    assert one.status.games > 0
    first, _ = with_actions(distributed_pong(1, workers=1, actors=count, servers=2))
    moved = (one.parameters - first.parameters).abs().max()
    assert moved > 1e-2
    torch.testing.assert_close(many.parameters, one.parameters, rtol=0, atol=1e-3 * moved.item())
    assert not torch.equal(many.parameters, one.parameters)
    assert many.optimizer["count"] == one.optimizer["count"] == 15
    rates = [outcome.status.values["learning_rate"] for outcome in (many, one)]
    assert rates[0] == rates[1] < A3C.lr  # schedules count the steps of all


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "terms"),
    [(ALL, {"kl_term", "kl_coefficient", "reconstruction_loss"}), (PAIR, {"prediction_loss"})],
    ids=["one agent", "two agents with policies of their own"],
)
def test_all_parts_together_inline_and_on_threads_bit_for_bit(
    experiment: Experiment, terms: set[str]
) -> None:
    check(experiment)
    found = inline(experiment)
    assert found.version == Version(0, 6)
    assert terms <= found.status.values.keys()
    assert_same(found, threads(experiment))


@pytest.mark.slow
def test_as_many_workers_as_are_allowed_make_a_step() -> None:
    """1,024 real workers in turn around 58 servers, as many as Catch's network has slices for."""
    shape = {"servers": 58, "actors": 1, "games": 1, "length": 1, "random_steps": 16}
    experiment = distributed_catch(1, workers=MOST, **shape)
    check(experiment)
    graph = make_graph(experiment, begin(experiment), None, patience=0.0)
    assert set(call_threads(graph, group_processes(graph, 1)).values()) == {1, ANSWERED}
    place = Inline(graph)
    place.run()
    assert place.roles["tracker"].status().steps == MOST
    servers = [place.roles[f"server-{i}"] for i in range(58)]
    assert {server.pull().version for server in servers} == {Version(0, 1)}


FOURTEEN = replace(CATCH, stop=StopRule(steps=512 + 14 * 512))  # rounds


def played(experiment: Experiment, first: int = 0) -> tuple[Outcome, list[list[int]]]:
    """Run inline from version ``first``; return the versions of each batch of the first replay."""
    games = open_games(experiment)
    start = begin(experiment, games)
    version = start.version._replace(number=first)
    start = replace(start, version=version, origin=start.origin._replace(version=first))
    place = Inline(make_graph(experiment, start, None, patience=0.0, games=games))
    batches = batches_of(place.roles["replay" if "replay" in place.roles else "replay-0"])
    place.run()
    return outcome(place.roles), [sorted(set(batch.versions.tolist())) for batch in batches]


@pytest.mark.parametrize(
    ("interval", "ahead", "first", "versions"),
    [
        (1, 1, 0, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        (3, 1, 0, [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 12]),
        (3, 0, 0, [0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 12, 12]),
        (4, 1, 6, [6, 6, 6, 8, 8, 8, 8, 12, 12, 12, 12, 16, 16, 16]),  # as after a resume
    ],
)
def test_the_pace_is_rounded_down_to_what_is_published(
    interval: int, ahead: int, first: int, versions: list[int]
) -> None:
    result, found = played(reshaped(FOURTEEN, broadcast_every=interval, ahead=ahead), first)
    assert found == [[number] for number in versions]
    assert result.version.number == first + 14


@pytest.mark.slow
def test_in_workers_the_learners_learn_with_every_version_and_the_actors_play_with_a_few() -> None:
    experiment = distributed_catch(14, broadcast_every=3)
    result, versions = played(experiment)
    assert versions == [[n] for n in [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 12]]
    assert result.version.number == 14
    assert_same(result, threads(experiment))


def test_free_runs_are_not_much_further_behind_than_the_interval() -> None:
    result = threads(replace(reshaped(FOURTEEN, broadcast_every=5), deterministic=False))
    assert result.status.lag[2] <= 12.0  # whatever the order in which two actors come
    assert result.version.number >= 14


@pytest.mark.slow
def test_actors_around_a_replay_buffer_get_a_few_versions_too() -> None:
    """A version that is not published is not waited for, or nobody would ever move."""
    experiment = reshaped(dqn(FOURTEEN), broadcast_every=3)
    result = threads(experiment)
    assert result.version.number > 6
    assert_same(result, threads(experiment))
