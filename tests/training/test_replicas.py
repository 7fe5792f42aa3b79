"""Learners that step alike: what they are equal to, and how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
import torch

import colobus
from colobus.algorithms.appo import APPO
from colobus.algorithms.batches import Prepared
from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import Closed, RoleFailed
from colobus.core.seeding import generator
from colobus.core.types import Batch, Version
from colobus.experiment.settings import Experiment
from colobus.nets.network import Network
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import Optimizer, OptimizerSettings
from colobus.roles.learner import Learner
from colobus.runtime.threads import Threads
from colobus.training.run import train
from colobus.training.start import Start, begin, make_network, open_games
from colobus.training.topology import make_graph
from conftest import catch, reshaped, short_pong, tuned
from helpers.launching import wait_until
from helpers.outcomes import assert_same, batches_of, inline, place_threads, run_to_the_end, threads


def grouped(experiment: Experiment, learners: int = 2, **shape: Any) -> Experiment:
    """Return an experiment with so many learners that step alike, of one actor each."""
    return reshaped(experiment, actors=1, learners=learners, reduce="group", **shape)


def joined(base: Experiment, actors: int, **changes: Any) -> Experiment:
    """Return an experiment with so many actors of each learner, and their batch in one piece."""
    whole = actors * base.shape.games * base.shape.length
    algorithm = tuned(base, minibatch=whole, **changes)
    return replace(reshaped(base, actors=actors), algorithm=algorithm)


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
    many = threads(joined(grouped(base, learners), 1, **changes))
    assert many.version == one.version == Version(0, 5)
    assert many.status.steps == one.status.steps
    first = inline(joined(pong(1, learners), learners, **changes))
    moved = (one.parameters - first.parameters).abs().max()
    assert moved > 1e-3
    torch.testing.assert_close(many.parameters, one.parameters, rtol=1e-4, atol=2e-3 * moved.item())
    assert many.optimizer["count"] == one.optimizer["count"]
    for name in ("kl", "entropy", "gradient_norm"):
        assert many.status.values[name] == pytest.approx(one.status.values[name], rel=0.1, abs=1e-3)


@pytest.mark.slow
def test_versions_of_a_group_are_all_published() -> None:
    """Each learner has servers of its own; actors would wait for those in between."""
    base = grouped(catch(512 + 4 * 512))
    plain, held = (threads(reshaped(base, broadcast_every=every)) for every in (1, 5))
    assert held.version == plain.version


@pytest.mark.slow
def test_one_learner_alone_is_a_central_run() -> None:
    group = grouped(catch(512 + 12 * 512, deterministic=True), servers=2)
    assert_same(inline(reshaped(group, learners=1)), inline(reshaped(group, learners=0)))


@pytest.mark.slow
def test_an_interrupted_run_is_saved_and_goes_on(tmp_path: Path) -> None:
    def interrupt(status: Any, active: Any) -> None:
        if status.version > 4:
            raise KeyboardInterrupt

    endless = replace(grouped(catch(1)), stop=colobus.StopRule())
    result = train(endless, tmp_path / "run", watch=interrupt)
    assert result.interrupted
    assert result.saved
    stop = colobus.StopRule(steps=result.steps + 4_096)
    result = train(replace(endless, stop=stop), tmp_path / "run", resume=True)
    assert stop.steps is not None
    assert result.steps >= stop.steps
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[1].steps == result.steps


ROUNDS = 8
GROUP = grouped(catch(512 + ROUNDS * 512, deterministic=True))

SECONDS = 60.0
"""A bound for waiting, on a slow machine too."""


def place_group(ring: bool, lines: list[str] | None = None) -> Threads:
    return place_threads(GROUP, [] if lines is None else lines, partial(make_graph, spread=ring))


def learners(place: Threads) -> list[Learner]:
    return [place.roles["learner-0"], place.roles["learner-1"]]


@pytest.mark.slow
@pytest.mark.parametrize("ring", [False, True], ids=["threads", "ring"])
@pytest.mark.parametrize("late", [0, 1])
def test_all_end_with_the_same_round_whoever_is_slow(
    ring: bool, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    slow, plain = place_group(ring, lines), place_group(False, lines)
    learner = learners(slow)[late]
    run = learner.compute.run

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.03)
        return run(*arguments)

    monkeypatch.setattr(learner.compute, "run", slowly)
    assert_same(run_to_the_end(slow), run_to_the_end(plain))
    assert lines == []
    assert ("meeting" in slow.roles) == ring
    for one in learners(slow):
        assert one.finished
        assert one.clock.steps == ROUNDS
        assert one.client.version == Version(0, ROUNDS)
    assert torch.equal(*(one.client.flat.values for one in learners(slow)))


def give_up(place: Threads, rank: int, after: int, then: Callable[[], Any]) -> None:
    """Let a learner's queue do something else once it has given so many batches."""
    queue = place.roles[f"replay-{rank}"]
    sample, given = queue.sample, list[int]()

    def sampled(*arguments: Any) -> Any:
        if len(given) == after:
            return then()
        given.append(1)
        return sample(*arguments)

    queue.sample = sampled


def when_closed(queue: Any, then: Callable[[], None]) -> None:
    """Call something once a learner's queue was closed, because its run stops."""
    close = queue.close

    def closed() -> None:
        close()
        then()

    queue.close = closed


@pytest.mark.slow
@pytest.mark.parametrize("ring", [False, True], ids=["threads", "ring"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_learner_that_fails_is_named_and_the_other_ends(ring: bool, rank: int) -> None:
    place = place_group(ring)

    def torn() -> Any:
        raise ValueError("the queue is torn")

    give_up(place, rank, 3, torn)
    said = rf"^learner-{rank} failed at test_replicas\.py:\d+: ValueError: the queue is torn$"
    with pytest.raises(RoleFailed, match=said):
        run_to_the_end(place)
    assert place.stop(SECONDS) == []


@pytest.mark.parametrize("ring", [False, True], ids=["threads", "ring"])
@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_while_one_waits_leaves_both_between_two_rounds(ring: bool, rank: int) -> None:
    place, closed = place_group(ring), threading.Event()

    def nothing_comes() -> Any:  # until the run stops
        closed.wait(SECONDS)
        raise Closed

    give_up(place, rank, 3, nothing_comes)
    when_closed(place.roles[f"replay-{rank}"], closed.set)
    place.start()
    waits = learners(place)[1 - rank].clock
    wait_until(lambda: (waits.stage, waits.steps) == ("wait for learners", 3))
    assert place.stop(SECONDS) == []
    assert place.failure is None
    for one in learners(place):
        assert one.is_sound()
        assert one.client.version == Version(0, 3)
    assert torch.equal(*(one.client.flat.values for one in learners(place)))


@pytest.mark.parametrize("first", [0, 1])
def test_a_process_that_stops_frees_the_other(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Ray: each learner has its threads, and both are stopped one after the other."""
    games = open_games(GROUP)
    start = begin(GROUP, games)
    graph = make_graph(GROUP, start, None, patience=60.0, games=games, spread=True)
    second = {node.name for node in graph.nodes if node.process in ("main-1", "actor-1")}
    roles = graph.build({node.name for node in graph.nodes} - second)
    places = [Threads(roles), Threads(graph.build(second, roles.__getitem__))]
    pair = [places[rank].roles[f"learner-{rank}"] for rank in (0, 1)]
    run, learns, stopped = pair[first].compute.run, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        found = run(*arguments)  # the other one has these sums too, and goes on
        if pair[first].clock.steps == 3:
            learns.set()
            assert stopped.wait(SECONDS)
        return found

    monkeypatch.setattr(pair[first].compute, "run", slowly)
    when_closed(places[first].roles[f"replay-{first}"], stopped.set)
    for place in places:
        place.start()
    assert learns.wait(SECONDS)
    assert [places[rank].stop(SECONDS) for rank in (first, 1 - first)] == [[], []]
    assert [place.failure for place in places] == [None, None]
    for learner in pair:
        assert learner.is_sound()
        assert learner.client.version == Version(0, 4)
    assert torch.equal(*(learner.client.flat.values for learner in pair))


FEW = 4
"""Rounds of the group that is compared with one program."""


def with_small_minibatches(learners: int, normalise: bool) -> Experiment:
    """Return a group whose rate does not follow what the learners find."""
    base = grouped(catch(0, deterministic=True), learners, servers=2)
    shape = base.shape
    batch = shape.games * shape.length
    algorithm = tuned(
        base, minibatch=batch // 4, epochs=2, kl_adjust=1.0, normalise=normalise, gradient_clip=0.2
    )
    rounds = 512 // (learners * shape.games) * learners * shape.games + FEW * learners * batch
    return replace(base, algorithm=algorithm, stop=replace(base.stop, steps=rounds))


def moments_of(prepared: Sequence[Prepared], part: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return mean and deviation float32[2] over one minibatch of each learner."""
    sums = [one.sums(index) for one, index in zip(prepared, part, strict=True)]
    weight, first, second = reduce(torch.add, [each for each in sums if each is not None])
    mean = first / weight
    return torch.stack([mean, (second / weight - mean.square()).sqrt()]).float()


def learned_by_hand(
    experiment: Experiment, start: Start, batches: Sequence[Sequence[Batch]]
) -> torch.Tensor:
    """Return the parameters after all rounds, for each of which every learner has a batch."""
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


@pytest.mark.slow
@pytest.mark.parametrize("learners", [2, 3])
@pytest.mark.parametrize("normalise", [True, False])
def test_learners_on_threads_are_one_program_bit_for_bit(learners: int, normalise: bool) -> None:
    experiment = with_small_minibatches(learners, normalise)
    games = open_games(experiment)
    start = begin(experiment, games)
    graph = make_graph(experiment, start, None, patience=60.0, games=games)
    place = Threads(graph.build())
    taken = [batches_of(place.roles[f"replay-{rank}"]) for rank in range(learners)]
    found = run_to_the_end(place)
    assert found.version.number == FEW
    assert found.status.steps == experiment.stop.steps
    batches = list(zip(*(own[:FEW] for own in taken), strict=True))
    want = learned_by_hand(experiment, start, batches)
    assert torch.equal(found.parameters, want)
    assert not torch.equal(want, FlatParameters(make_network(experiment, start)).values)
