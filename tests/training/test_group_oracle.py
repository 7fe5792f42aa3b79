"""Learners on threads and one program that adds their gradients up by hand: the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
import torch

from colobus.algorithms.appo import APPO
from colobus.algorithms.batches import Prepared
from colobus.core.seeding import generator
from colobus.core.types import Batch
from colobus.experiment.settings import Experiment
from colobus.nets.network import Network
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import Optimizer
from colobus.runtime.threads import Threads
from colobus.training.start import Start, begin, make_network, open_games
from colobus.training.topology import make_graph
from conftest import catch, tuned
from helpers.outcomes import run_to_the_end

ROUNDS = 4


def group(learners: int, normalise: bool) -> Experiment:
    """Return a group whose rate does not follow what the learners find."""
    base = catch(0, deterministic=True)
    shape = replace(base.shape, actors=1, learners=learners, reduce="group", servers=2)
    batch = shape.games * shape.length
    algorithm = tuned(
        base, minibatch=batch // 4, epochs=2, kl_adjust=1.0, normalise=normalise, gradient_clip=0.2
    )
    rounds = 512 // (learners * shape.games) * learners * shape.games + ROUNDS * learners * batch
    return replace(base, shape=shape, algorithm=algorithm, stop=replace(base.stop, steps=rounds))


def moments_of(prepared: Sequence[Prepared], part: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return mean and deviation float32[2] over one minibatch of each learner."""
    sums = [one.sums(index) for one, index in zip(prepared, part, strict=True)]
    weight, first, second = reduce(torch.add, [each for each in sums if each is not None])
    mean = first / weight
    return torch.stack([mean, (second / weight - mean.square()).sqrt()]).float()


def learned_by_hand(
    experiment: Experiment, start: Start, batches: Sequence[Sequence[Batch]]
) -> torch.Tensor:
    """Return the parameters after all rounds.

    Args:
        experiment: settings of the group.
        start: where it begins.
        batches: of each round, one for each learner.
    """
    algorithm, seed = experiment.algorithm, experiment.seed
    assert isinstance(algorithm, APPO)
    ranks = range(experiment.shape.topology.replicas)
    nets: list[Network] = [make_network(experiment, start) for _ in ranks]
    flats = [FlatParameters(net) for net in nets]
    optimizer, algorithm_state = Optimizer(flats[0].values, experiment.optimizer), algorithm.start()
    steps, norms = start.steps, list[float]()
    for number, batch_of in enumerate(batches):
        prepared = [algorithm.prepare(nets[i], batch_of[i], algorithm_state) for i in ranks]
        randoms = [generator(seed, "learner", i, 0, number) for i in ranks]
        orders = [
            [torch.randperm(prepared[i].size, generator=randoms[i]) for i in ranks]
            for _ in range(algorithm.epochs)
        ]
        for order in orders:
            cuts = [torch.split(own, algorithm.minibatch) for own in order]
            for part in zip(*cuts, strict=True):
                moment = moments_of(prepared, part) if algorithm.normalise else None
                weighted, weights = list[torch.Tensor](), list[torch.Tensor]()
                for i in ranks:
                    flats[i].zero_gradients()
                    minibatch = prepared[i].select(part[i], moment)
                    torch.autograd.backward(algorithm.loss(nets[i], minibatch, algorithm_state)[0])
                    weights.append(prepared[i].weight(part[i]))
                    weighted.append(flats[i].gradients * weights[-1])
                gradient = reduce(torch.add, weighted) / reduce(torch.add, weights)
                norm = torch.linalg.vector_norm(gradient)
                norms.append(float(norm))
                if norm > algorithm.gradient_clip:
                    gradient *= algorithm.gradient_clip / (norm + 1e-6)
                optimizer.step(gradient, float(algorithm_state["learning_rate"]))
                for i in ranks[1:]:
                    flats[i].values.copy_(flats[0].values)
        steps += sum(int(batch.fresh) for batch in batch_of)
        algorithm.after(algorithm_state, {}, steps)
    assert max(norms) > algorithm.gradient_clip  # some are clipped
    return flats[0].values


@pytest.mark.parametrize("learners", [2, 3])
@pytest.mark.parametrize("normalise", [True, False])
def test_learners_on_threads_are_one_program_bit_for_bit(learners: int, normalise: bool) -> None:
    experiment = group(learners, normalise)
    games = open_games(experiment)
    start = begin(experiment, games)
    graph = make_graph(experiment, start, None, patience=60.0, games=games)
    place = Threads(graph.build())
    taken = [recorded(place.roles[f"replay-{rank}"]) for rank in range(learners)]
    found = run_to_the_end(place)
    assert found.version.number == ROUNDS
    assert found.status.steps == experiment.stop.steps
    batches = list(zip(*(own[:ROUNDS] for own in taken), strict=True))
    want = learned_by_hand(experiment, start, batches)
    assert torch.equal(found.parameters, want)
    assert not torch.equal(want, FlatParameters(make_network(experiment, start)).values)


def recorded(queue: Any) -> list[Batch]:
    """Return a list that will have every batch that a queue gives."""
    sample, batches = queue.sample, list[Batch]()

    def sampled(*arguments: Any) -> Batch:
        batches.append(sample(*arguments))
        return batches[-1]

    queue.sample = sampled
    return batches
