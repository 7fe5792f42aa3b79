"""What a learner does with a batch: passes, parts, versions, and what it reports."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from colobus.algorithms.appo import APPO
from colobus.core.errors import Diverged
from colobus.core.seeding import generator
from colobus.core.types import Gradient, Trajectory, Version
from colobus.nets.network import Network
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.backprop import Backprop
from colobus.roles.learner import Learner
from colobus.roles.parameters.client import LocalClient
from colobus.roles.parameters.server import Admission, ParameterServer
from colobus.roles.replay.minibatch_buffer import MinibatchBuffer
from colobus.roles.replay.queue import Fifo, ReplayMix, TrajectoryQueue, as_batch
from colobus.roles.schedule import Schedule
from colobus.roles.update_schedule import UpdateSchedule
from conftest import make_net, random_trajectory, stand_in
from helpers.outcomes import batches_of
from helpers.servers import Recording, Reports, server_of, servers_of

SEED, START = 3, Version(1, 4)
ALGORITHM = APPO(minibatch=7, epochs=3, lr=1e-2, gradient_clip=0.3)


class Scene:
    """A learner with its servers, a replay that never waits and trajectories of noise."""

    def __init__(
        self,
        algorithm: Any = ALGORITHM,
        servers: int = 1,
        rounds: int = 3,
        reuse: MinibatchBuffer | None = None,
        replay_mix: ReplayMix | None = None,
    ) -> None:
        self.net = make_net()
        self.flat = FlatParameters(self.net)
        self.servers = servers_of(self.flat, servers, version=START, kind=Recording)
        self.replay = TrajectoryQueue(Fifo(4), capacity=9, patience=0.0, replay_mix=replay_mix)
        self.tracker = stand_in(Reports(rounds))
        self.algorithm_state = algorithm.start()
        client = LocalClient(0, self.flat, self.servers, START)
        schedule = Schedule(algorithm, self.algorithm_state, 100)
        others = Backprop(algorithm, 0, SEED), schedule, self.replay, self.tracker
        self.learner = Learner(0, algorithm, client, *others, saves=True, reuse=reuse)

    def feed(self, round: int = 0, number: int = 4) -> list[Trajectory]:
        """Add two trajectories (20 steps)."""
        rng = np.random.default_rng(round)
        sent = [random_trajectory(rng, a, round, number=number - a) for a in range(2)]
        for trajectory in sent:
            self.replay.add(trajectory)
        return sent

    def learn(self, round: int = 0, number: int = 4) -> list[Trajectory]:
        sent = self.feed(round, number)
        self.learner.step()
        return sent


class Plain:
    """A copy of a network that learns by the plain loop with torch's own optimizer."""

    def __init__(self, net: Network, algorithm: APPO) -> None:
        self.net, self.algorithm = copy.deepcopy(net), algorithm
        self.adam = torch.optim.Adam(self.net.parameters(), lr=1e-2, eps=1e-5)
        self.algorithm_state = algorithm.start()

    def pass_over(self, prepared: Any, random: torch.Generator) -> dict[str, torch.Tensor]:
        """Learn from each sample once; return the terms of the last minibatch."""
        for index in torch.split(torch.randperm(20, generator=random), 7):
            minibatch = prepared.select(index)
            total, terms = self.algorithm.loss(self.net, minibatch, self.algorithm_state)
            self.adam.zero_grad()
            torch.autograd.backward(total)
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.3)
            self.adam.param_groups[0]["lr"] = float(self.algorithm_state["learning_rate"])
            self.adam.step()
        return terms

    def assert_is(self, net: Network, rtol: float, atol: float) -> None:
        mine, found = dict(self.net.named_parameters()), dict(net.named_parameters())
        torch.testing.assert_close(found, mine, rtol=rtol, atol=atol)


@pytest.mark.slow
def test_a_round_is_the_plain_loop_with_torchs_own_optimizer() -> None:
    scene = Scene(servers=3)
    plain = Plain(scene.net, ALGORITHM)
    batch = as_batch(scene.learn())
    prepared = ALGORITHM.prepare(plain.net, batch, plain.algorithm_state)
    random = generator(SEED, "learner", 0, *START)
    for _ in range(3):
        plain.pass_over(prepared, random)
    plain.assert_is(scene.net, rtol=1e-4, atol=1e-6)


def test_gradients_are_numbered_and_carry_the_weights_of_their_samples() -> None:
    scene = Scene(servers=2)
    weights = as_batch(scene.learn()).mask.flatten()
    random = generator(SEED, "learner", 0, *START)
    orders = [torch.randperm(20, generator=random) for _ in range(3)]
    counts = [int(weights[index].sum()) for order in orders for index in order.split(7)]
    assert 9 < sum(counts) / 3 < 20  # some steps do not count
    for server in scene.servers:
        assert [g.part for g in server.pushed] == list(range(9))
        assert {(g.learner, g.version, g.parts) for g in server.pushed} == {(0, START, 9)}
        assert [g.samples for g in server.pushed] == counts
        assert {g.learning_rate for g in server.pushed} == {1e-2}
        assert server.pull().version == Version(1, 5)
    for parts in zip(*(s.pushed for s in scene.servers), strict=True):
        norm = torch.cat([g.values for g in parts]).norm().item()
        assert 0 < norm <= 0.3 + 1e-5  # clipped over the whole vector, not slice by slice


def test_what_is_reported() -> None:
    scene = Scene(rounds=2)
    scene.learn()
    assert not scene.learner.finished
    scene.learn(1)
    assert scene.learner.finished
    one, two = scene.tracker.updates
    assert (one.learner, one.version, one.steps) == (0, Version(1, 5), 20)
    assert (two.version, two.steps) == (Version(1, 6), 20)
    assert one.traffic is None  # nothing crosses to servers over its own memory
    assert one.lag == (0.0, 0.5, 1.0)  # learning at 4 from the versions 4 and 3
    assert two.lag == (1.0, 1.5, 2.0)
    assert one.values["learning_rate"] == 1e-2
    assert two.values["learning_rate"] == ALGORITHM.lr_max == 4e-3  # what `after` made of it
    assert scene.learner.clock.steps == 2


def test_the_values_are_the_means_of_the_last_pass() -> None:
    seen: list[dict[str, torch.Tensor]] = []

    class Listening(APPO):
        def loss(self, net: Any, minibatch: Any, algorithm_state: Any, random: Any = None) -> Any:
            total, terms = super().loss(net, minibatch, algorithm_state, random)
            seen.append(terms)
            return total, terms

    scene = Scene(Listening(minibatch=7, epochs=3))
    scene.learn()
    (update,) = scene.tracker.updates
    assert len(seen) == 9
    assert update.values.keys() == {*seen[0], "learning_rate", "parameter_norm"}
    for name in seen[0]:
        last = [terms[name].item() for terms in seen[-3:]]
        want = max(last) if name == "kl_max" else np.average(last, weights=[7, 7, 6])
        assert update.values[name] == pytest.approx(want, rel=1e-5, abs=1e-7), name


def test_where_no_divergence_was_measured_nothing_is_said_and_nothing_follows() -> None:
    """Such as in a batch of repeated actions only: a mean of none is no 0, which moves the rate."""
    rates = []
    for independent in (True, False):
        scene = Scene(APPO(minibatch=7, epochs=3, lr=1e-3, kl=1e9))
        for sent in scene.feed(number=4):
            sent.independent[:] = independent
        scene.learner.step()
        (update,) = scene.tracker.updates
        assert ("kl" in update.values) == ("kl_max" in update.values) == independent
        assert "entropy" in update.values
        rates.append(float(scene.algorithm_state["learning_rate"]))
    assert rates == pytest.approx([1.1e-3, 1e-3])


def test_a_checkpoint_holds_the_newest_version_as_copies() -> None:
    scene = Scene(servers=2)
    scene.learn()
    scene.learner.save()
    slices, optimizers, algorithm_state, steps = scene.tracker.saved[0]
    assert [params.version for params in slices] == [Version(1, 5)] * 2
    assert torch.equal(torch.cat([params.values for params in slices]), scene.flat.values)
    assert [state["count"].item() for state in optimizers] == [9.0, 9.0]
    assert steps == 120
    before = [t.clone() for t in (*optimizers[0].values(), *algorithm_state.values())]
    scene.learn(1)
    after = [*optimizers[0].values(), *algorithm_state.values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


class Failing(APPO):
    """APPO with a term that is not a number from a given version on."""

    def loss(self, net: Any, minibatch: Any, algorithm_state: Any, random: Any = None) -> Any:
        total, terms = super().loss(net, minibatch, algorithm_state, random)
        if "broken" in algorithm_state:
            terms["value_loss"] = terms["value_loss"] * float("nan")
            total = total * float("nan")
        return total, terms


@pytest.mark.parametrize("minibatch", [64, 7])
def test_a_nan_is_named_and_never_published(minibatch: int) -> None:
    scene = Scene(Failing(minibatch=minibatch, epochs=1), servers=2)
    scene.learn()
    published = [server.pull() for server in scene.servers]
    scene.algorithm_state["broken"] = torch.tensor(1.0)
    with pytest.raises(Diverged, match=r"^value_loss became nan at version 5: .* lower --lr"):
        scene.learn(1)
    for server, params in zip(scene.servers, published, strict=True):
        assert server.pull() is params
        assert params.values.isfinite().all()
    assert not scene.learner.is_sound()  # in the middle of a round: nothing to save
    assert len(scene.tracker.updates) == 1


def test_a_torn_view_is_found_in_every_run() -> None:
    scene = Scene()
    scene.learn()
    scene.net.heads.double().float()
    with pytest.raises(AssertionError, match="no longer a view of the flat vector"):
        scene.learn(1)


def test_a_round_of_older_batches_is_the_plain_loop_and_each_is_prepared_anew() -> None:
    algorithm = replace(ALGORITHM, epochs=2)
    scene = Scene(algorithm, reuse=MinibatchBuffer(2, 2))
    plain, batches = Plain(scene.net, algorithm), []
    for number, due in enumerate([[0], [0, 1], [1, 2]]):  # the second use comes a round later
        batches.append(as_batch(scene.learn(number)))
        random = generator(SEED, "learner", 0, START.incarnation, START.number + number)
        for use in due:
            prepared = algorithm.prepare(plain.net, batches[use], plain.algorithm_state)
            terms = plain.pass_over(prepared, random)
        kl = scene.tracker.updates[-1].values["kl"]  # of the fresh batch, which comes last
        assert kl == pytest.approx(terms["kl"].item(), rel=1.0)
        algorithm.after(plain.algorithm_state, {"kl": kl}, 100)
    plain.assert_is(scene.net, rtol=1e-3, atol=1e-5)
    (server,) = scene.servers
    assert [g.part for g in server.pushed] == [0, 1, 2, *range(6), *range(6)]
    closing = [g.part == g.parts - 1 for g in server.pushed]
    assert closing == [False] * 2 + [True] + ([False] * 5 + [True]) * 2
    assert server.pull().version == Version(1, 7)
    assert [update.steps for update in scene.tracker.updates] == [20, 20, 20]


@pytest.mark.parametrize("minibatch", [640, 1])  # of one sample, most without a fresh one
def test_old_windows_are_no_steps_no_lag_and_steer_nothing(minibatch: int) -> None:
    algorithm = APPO(minibatch=minibatch, epochs=1, lr=1e-9, lr_min=0.0, kl_adjust=1.0)
    scene = Scene(algorithm, rounds=9, replay_mix=ReplayMix(5, 4.0, 4, (1,)))
    seen = batches_of(scene.replay)
    for round in range(3):
        before = copy.deepcopy(scene.net)
        scene.learn(round, number=4 + round)
    update, batch = scene.tracker.updates[-1], seen[-1]
    assert batch.replayed.sum() == 16
    assert update.steps == 20
    assert update.lag == (0.0, 0.5, 1.0)
    fresh = type(batch)(*(t[:4] if t.dim() else t for t in batch))
    algorithm_state = algorithm.start()
    prepared = algorithm.prepare(before, fresh, algorithm_state)
    _, terms = algorithm.loss(before, prepared.select(torch.arange(20)), algorithm_state)
    for name in ("kl", "kl_max"):
        assert update.values[name] == pytest.approx(float(terms[name]), rel=1e-4)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_learners_with_unequal_weights_are_one_learner_with_the_joined_batch(weight: float) -> None:
    """The mean over learners divides by what their losses were divided by."""
    rng = np.random.default_rng(1)
    batch = as_batch([random_trajectory(rng, actor) for actor in range(2)])
    batch = batch._replace(weights=torch.tensor([1.0, 1.0, weight, weight]))
    batch.mask[:2] = False
    batch.mask[0, 0] = batch.mask[2:, :] = True  # 1 step of the first learner, 10 of the second
    algorithm = APPO(minibatch=20, normalise=False, gradient_clip=1e9)
    halves = [type(batch)(*(x[2 * i : 2 * i + 2] if x.dim() else x for x in batch)) for i in (0, 1)]
    results = []
    for parts in ([batch], halves):
        flat = FlatParameters(make_net())
        optimizer = OptimizerSettings(epsilon=1e-3)
        server = server_of(flat.values, Admission(len(parts)), START, optimizer)
        first = flat.values.clone()
        for learner, own in enumerate(parts):
            algorithm_state, index = algorithm.start(), torch.arange(own.actions.numel())
            prepared = algorithm.prepare(make_net(), own, algorithm_state)
            assert isinstance(flat.module, Network)
            total, _ = algorithm.loss(flat.module, prepared.select(index), algorithm_state)
            flat.zero_gradients()
            torch.autograd.backward(total)
            values, samples = flat.gradients.clone(), float(prepared.weight(index))
            rate = 2e-2 * (learner + 0.5) / len(parts)  # 1e-2 is the mean
            server.push(Gradient(learner, START, 0, 1, samples, rate, values))
        results.append(flat.values - first)
    assert results[0].abs().max() > 1e-3
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-6)


def test_a_round_whose_end_failed_cannot_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is there, so learning from its batch once more would be another round."""
    scene = Scene()
    monkeypatch.setattr(Schedule, "after", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scene.learn()
    assert scene.learner.client.version == Version(1, 5)
    assert not scene.learner.restart()
    assert not scene.learner.save_last()


def test_after_a_checkpoint_that_failed_a_round_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    with monkeypatch.context() as patch:
        patch.setattr(Reports, "wants_checkpoint", lambda _: True)
        patch.setattr(Reports, "checkpoint", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scene.learn()
    assert scene.learner.restart()
    scene.learn(1, number=5)
    assert scene.learner.client.version == Version(1, 6)
    assert [update.version.number for update in scene.tracker.updates] == [5, 6]


def test_an_error_after_the_last_report_finishes_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_the_last(server: ParameterServer, gradient: Gradient) -> Any:
        assert gradient.part < 8, "the last one"
        return ParameterServer.push(server, gradient)

    scene = Scene(rounds=1)
    with monkeypatch.context() as patch:
        patch.setattr(Recording, "push", refuse_the_last)
        with pytest.raises(AssertionError, match="the last one"):
            scene.learn()
    assert len(scene.tracker.updates) == 1
    assert not scene.learner.finished  # what was reported is not learned yet
    assert scene.learner.restart()
    scene.learner.step()
    assert scene.learner.finished
    assert len(scene.tracker.updates) == 1
    assert scene.learner.save_last()


@pytest.mark.parametrize("given", [(512, 3_000, 0.125, 8), (64, 200, 0.25, 8), (7, 1, 3.3, 5)])
def test_rounds_are_the_least_for_so_many_batches(given: tuple[int, int, float, int]) -> None:
    update_schedule = UpdateSchedule(*given)
    assert update_schedule.rounds(0) == 0
    for versions in range(1, 300):
        rounds = update_schedule.rounds(versions)
        assert update_schedule.versions(rounds) >= versions > update_schedule.versions(rounds - 1)
