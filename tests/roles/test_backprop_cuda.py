"""Learning and acting by graphs: the same bits as without, and nothing of the host in a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.appo import APPO
from colobus.core.types import Batch
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.roles.backprop import CudaGraphBackprop
from colobus.roles.replay.queue import as_batch
from colobus.runtime.devices import CPU, WARM_UP, Placement
from colobus.runtime.threads import Threads
from colobus.training.start import begin, open_games
from colobus.training.topology import make_graph
from conftest import catch, make_net, random_trajectory, tuned
from helpers.outcomes import go_on, place_inline, run_to_the_end
from helpers.tapes import taped as taped
from helpers.variants import variants

ROUNDS = WARM_UP + 4
CATCH = catch(100_000, deterministic=True)
MOVING = tuned(
    CATCH, advantage="vtrace", target_every=2, kl_coeff=0.1, entropy_end=0.0, anneal_steps=8_000
)
PQN = replace(PRESETS["pqn-catch"], tracker=CATCH.tracker, deterministic=True)
RUNS: dict[str, Experiment] = {
    **variants(CATCH),
    "numbers that move": replace(CATCH, algorithm=MOVING),
    "minibatches of two sizes": replace(CATCH, algorithm=tuned(CATCH, minibatch=96)),
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
    shape = replace(CATCH.shape, actors=1, learners=2, reduce="group")
    steps = 512 + ROUNDS * 2 * shape.games * shape.length
    experiment = replace(CATCH, shape=shape, stop=replace(CATCH.stop, steps=steps))
    found = []
    for graphs in (False, True):
        games = open_games(experiment)
        start, placement = begin(experiment, games), Placement(CPU, CPU, graphs)
        graph = make_graph(experiment, start, None, 60.0, games=games, placement=placement)
        found.append(run_to_the_end(Threads(graph.build())))
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
