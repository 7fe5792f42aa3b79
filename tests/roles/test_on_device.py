"""Learners and actors on a device: no tensor is on the wrong one, and the host reads little.

And by graphs: the same bits as without, and nothing of the host in a graph.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.appo import APPO
from colobus.core.errors import Deadline
from colobus.core.types import Batch
from colobus.envs.api import GameSettings
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.nets.config import NetworkSettings
from colobus.roles.backprop import CudaGraphBackprop
from colobus.roles.replay.queue import as_batch
from colobus.runtime.devices import CPU, WARM_UP, Placement
from conftest import catch, make_net, random_trajectory, reshaped, short_pong, tuned
from helpers.outcomes import Inline, go_on, place_inline, place_threads, run_to_the_end
from helpers.tapes import META, Reads
from helpers.tapes import on_device as on_device
from helpers.tapes import taped as taped
from helpers.variants import OLDER, recurrent, variants

CATCH = reshaped(catch(100_000), games=4, length=8)
CATCH = replace(CATCH, algorithm=tuned(CATCH, minibatch=32, epochs=2))


def on_meta(experiment: Experiment, act: torch.device = CPU, graphs: bool = False) -> Inline:
    with Reads():  # of the first parameters
        return place_inline(experiment, placement=Placement(META, act, graphs))


TARGET = {"advantage": "vtrace", "target_every": 2, "kl_adjust": 1.0, "kl_coeff": 0.1}
LEARNERS: dict[str, Experiment] = {
    **variants(CATCH),
    "gae": CATCH,
    "a target policy": replace(CATCH, algorithm=tuned(CATCH, **TARGET)),
    "a loader": reshaped(CATCH, loaders=1),
    "loaders and older batches": replace(reshaped(CATCH, loaders=2), reuse=OLDER),
    "two agents, one policy": replace(CATCH, games=GameSettings(game="catch-pair", size=10)),
    "convolutions in blocks": short_pong(
        1000,
        games=GameSettings(game="pong", size=84),
        network=NetworkSettings(torso="dqn2013", width=16, precision="float32"),
    ),
}


def turn(role: Any) -> int | None:
    """Let a role make a step; return how often it read, or None if it had to wait."""
    reads = Reads()
    with reads, suppress(Deadline):
        role.step()
        return reads.count
    return None


def reads_of_steps(place: Inline, name: str, count: int, waits: bool = True) -> list[int]:
    """Let all roles go on until one of them has made so many steps; return its reads in each."""
    steps: list[int] = []
    while len(steps) < count:
        for role in place.active:
            reads = turn(role)
            if role is place.roles[name]:
                assert waits or reads is not None
                steps += [] if reads is None else [reads]
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_on_a_device_reads_twice_a_round(name: str) -> None:
    place = on_meta(LEARNERS[name])
    learner = place.roles["learner-0"]
    assert learner.device == META
    rounds = reads_of_steps(place, "learner-0", 3)
    assert learner.clock.steps == 3
    assert set(rounds) <= {1, 2}, rounds  # what was found in the batch, and the new parameters


RECORDED = [name for name in LEARNERS if "older" not in name]  # whose batches are of one shape


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_graphs_of_a_learner_have_nothing_of_the_host(name: str, on_device: list[Any]) -> None:
    rounds = reads_of_steps(on_meta(LEARNERS[name], graphs=True), "learner-0", WARM_UP + 3)
    assert set(rounds) <= {1, 2}, rounds
    prepare, *steps = on_device
    assert prepare.replays == 3
    assert steps
    assert all(step.replays >= 3 for step in steps)


@pytest.mark.parametrize("memory", [False, True])
def test_graphs_of_an_actor_have_nothing_of_the_host(memory: bool, on_device: list[Any]) -> None:
    experiment = recurrent(CATCH) if memory else CATCH
    place = on_meta(experiment, META, graphs=True)
    for role in place.active:
        if role.name.startswith("actor"):
            assert turn(role) is not None
    assert len(on_device) == experiment.shape.actors
    assert {graph.replays for graph in on_device} == {experiment.shape.length - WARM_UP}


@pytest.mark.slow
@pytest.mark.parametrize("memory", [False, True])
def test_an_actor_on_a_device_reads_once_a_step(memory: bool) -> None:
    experiment = recurrent(CATCH) if memory else CATCH
    place = on_meta(experiment, META)
    assert place.roles["actor-1"].device == META
    counts, length = reads_of_steps(place, "actor-1", 3, waits=False), experiment.shape.length
    # the scores of each step; what is handed over now and then; a memory also at the beginning
    assert all(length <= count <= length + 2 * memory for count in counts), counts


def test_parameters_are_published_in_the_memory_of_the_host() -> None:
    place = on_meta(CATCH)
    with Reads():
        for role in place.active:
            role.step()
        params, optimizer = place.roles["server-0"].state()
    assert params.values.device == place.roles["server-0"].pull().values.device == CPU
    assert optimizer["mean"].device == META


ROUNDS = WARM_UP + 4
WHOLE = catch(100_000, deterministic=True)
MOVING = tuned(
    WHOLE, advantage="vtrace", target_every=2, kl_coeff=0.1, entropy_end=0.0, anneal_steps=8_000
)
PQN = replace(PRESETS["pqn-catch"], tracker=WHOLE.tracker, deterministic=True)
RUNS: dict[str, Experiment] = {
    **variants(WHOLE),
    "numbers that move": replace(WHOLE, algorithm=MOVING),
    "minibatches of two sizes": replace(WHOLE, algorithm=tuned(WHOLE, minibatch=96)),
    "PQN whose discount moves": replace(
        PQN, algorithm=tuned(PQN, gamma_end=0.5, anneal_steps=4_000)
    ),
}


def learned(experiment: Experiment, graphs: bool) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the parameters after some rounds, and the values of the last."""
    place = place_inline(experiment, placement=Placement(CPU, CPU, graphs))
    learner: Any = place.roles["learner-0"]
    go_on(place, lambda: learner.clock.steps >= ROUNDS)
    return learner.client.flat.values.clone(), learner._values


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_by_graphs_is_that_without_bit_for_bit(name: str, taped: list[Any]) -> None:
    want, found = learned(RUNS[name], False)
    assert not taped
    parameters, values = learned(RUNS[name], True)
    assert any(tape.replays > 1 for tape in taped)
    assert torch.equal(parameters, want)
    assert values == found


@pytest.mark.slow
def test_a_group_by_graphs_is_that_without_bit_for_bit(taped: list[Any]) -> None:
    shape = replace(WHOLE.shape, actors=1, learners=2, reduce="group")
    steps = 512 + ROUNDS * 2 * shape.games * shape.length
    experiment = replace(WHOLE, shape=shape, stop=replace(WHOLE.stop, steps=steps))
    found = []
    for graphs in (False, True):
        place = place_threads(experiment, [], placement=Placement(CPU, CPU, graphs))
        found.append(run_to_the_end(place))
        assert any(tape.replays > 1 for tape in taped) == graphs
    assert torch.equal(found[0].parameters, found[1].parameters)
    assert found[0].status.values == found[1].status.values


def test_memory_of_a_graph_goes_to_no_other_batch(taped: list[Any]) -> None:
    net, algorithm, random = make_net(), APPO(), np.random.default_rng(3)
    backprop, algorithm_state = CudaGraphBackprop(algorithm, 0, 0), algorithm.start()
    rows = torch.arange(4)

    def batch(games: int) -> Batch:
        return as_batch([random_trajectory(random, games=games, length=20)])

    for _ in range(WARM_UP + 1):
        prepared: Any = backprop.prepare(net, batch(6), algorithm_state)
    assert len(taped) == 1
    kept = prepared.select(rows).observations.clone()
    other: Any = backprop.prepare(net, batch(5), algorithm_state)
    assert len(taped) == 1
    assert other is not prepared
    assert torch.equal(prepared.select(rows).observations, kept)
