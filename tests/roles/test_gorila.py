"""Learners around stores and servers: who steps, when targets change, what is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.api import TARGET
from colobus.algorithms.dqn import DQN
from colobus.core.types import Update, Version
from colobus.experiment.memory import sampling_of
from colobus.experiment.presets import PRESETS
from colobus.roles.learner import Learner
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import reshaped, tuned
from helpers.outcomes import place_inline

CATCH = PRESETS["gorila-catch"]
CATCH = replace(CATCH, replay=replace(CATCH.replay, samples_per_insert=0.0, minimum=100))


def fill(roles: Mapping[str, Any], rounds: int = 2) -> None:
    for name, role in roles.items():
        if name.startswith("actor"):
            for _ in range(rounds):
                role.step()


def played(algorithm: Any = CATCH.algorithm, rounds: int = 2, **shape: Any) -> Mapping[str, Any]:
    experiment = replace(reshaped(CATCH, **shape), algorithm=algorithm)
    roles = place_inline(experiment).roles
    fill(roles, rounds)
    return roles


def test_a_learner_that_begins_again_goes_on_with_its_schedule() -> None:
    """On a cluster its process is lost and made again, around servers and a tracker that live."""
    algorithm = tuned(CATCH, lr=1e-2, lr_end=1e-3, anneal_steps=4_000)
    experiment = replace(CATCH, algorithm=algorithm)
    graph = make_graph(experiment, begin(experiment), None, patience=0.0)
    roles = graph.build()
    fill(roles)
    first, tracker = roles["learner-0"], roles["tracker"]
    first.step()
    told = Update(1, Version(0, 2), 2_000, (0.0, 0.0, 0.0), {})
    tracker.report(told)  # what the other learner did meanwhile
    first.step()
    behind = tracker.status().steps
    again = graph.build({"learner-0", "cache-0"}, roles.__getitem__)["learner-0"]
    again.step()
    rate = again.schedule.algorithm_state["learning_rate"].item()
    fresh = tracker.status().steps - behind
    assert again.schedule.steps == behind + fresh == tracker.status().steps
    assert rate == pytest.approx(1e-2 - 9e-3 * again.schedule.steps / 4_000)
    assert rate < 6e-3  # it was 1e-2 at the start
    assert tracker.begin("learner-0").life == 2


def test_a_replay_lost_with_its_learner_keeps_its_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def weights(priorities: Any, counts: Any, exponent: float) -> Any:
        seen.append(exponent)
        return np.ones(len(counts), dtype=np.float32)

    monkeypatch.setattr("colobus.roles.replay.buffer.importance_weights", weights)
    replay = replace(CATCH.replay, prioritized=True, beta=0.4, beta_end=1.0, beta_steps=8_000)
    experiment = replace(CATCH, replay=replay)
    start = begin(experiment)
    roles = make_graph(experiment, start, None, patience=0.0).build()
    fill(roles)
    roles["learner-0"].step()
    added = experiment.shape.games * experiment.shape.length * 2  # by two rounds
    assert seen == [pytest.approx(0.4 + 0.6 * (start.steps + 2 * added) / 8_000)]
    roles["tracker"].report(Update(1, Version(0, 2), 3_000, (0.0, 0.0, 0.0), {}))
    now = roles["tracker"].status().steps
    names = {"learner-0", "cache-0", "replay-0", "actor-0"}
    anew = make_graph(experiment, start, None, patience=0.0)  # in a new process of the worker
    again = anew.build(names, roles.__getitem__)
    fill(again)
    again["learner-0"].step()
    assert seen[1:] == [pytest.approx(0.4 + 0.6 * (now + 2 * added) / 8_000)]


def test_the_exponent_follows_the_steps_of_all_in_buffers_of_unequal_numbers_of_actors() -> None:
    replay = replace(CATCH.replay, prioritized=True, beta_steps=90_000)
    shape = replace(CATCH.shape, workers=0, learners=2, replays=2, actors=3)
    experiment = replace(CATCH, replay=replay, shape=shape)
    assert shape.topology.buffers == (2, 1)
    sampling = [sampling_of(experiment, actors, 30_000) for actors in shape.topology.buffers]
    own = [each.beta_steps for each in sampling if each is not None]
    assert own == [40_000, 20_000]  # of the 60,000 that are left


def target_of(learner: Learner) -> torch.Tensor:
    tensors = learner.schedule.algorithm_state
    named = {k.removeprefix(TARGET): v for k, v in tensors.items() if k.startswith(TARGET)}
    flat = torch.zeros_like(learner.client.flat.values)
    learner.client.flat.layout.fill(flat, named)
    return flat


@pytest.mark.parametrize("workers", [0, 2])
def test_targets_change_at_multiples_for_all_learners(workers: int) -> None:
    every = 6
    algorithm = tuned(CATCH, target_every=every)
    roles = played(algorithm, 4, workers=workers, asynchronous=workers > 0)
    servers = [role for name, role in roles.items() if name.startswith("server")]
    at = [torch.cat([server.pull().values for server in servers])]
    for number in range(20):  # updates of both learners of two workers count together
        learner = roles[f"learner-{number % 3 % 2 if workers else 0}"]
        learner.step()
        at.append(torch.cat([server.pull().values for server in servers]))
        want = at[number - number % every]
        assert torch.equal(target_of(learner), want), number
        # learners of workers computed with what they pulled, and step nothing themselves
        assert torch.equal(learner.client.flat.values, at[number if workers else -1]), number
        assert not torch.equal(at[-2], at[-1])


@pytest.mark.parametrize("workers", [0, 2])
def test_outliers_are_dropped_and_counted(workers: int) -> None:
    picky = tuned(CATCH, outlier=1.0)  # drops a gradient soon
    roles = played(picky, workers=workers, asynchronous=workers > 0)
    learner, server = roles["learner-0"], roles["server-0"]
    learner.step()
    found = learner.schedule.algorithm_state
    found["loss_count"].fill_(1000.0)  # all losses so far were 0
    found["loss_mean"].fill_(0.0)
    found["loss_variance"].fill_(0.0)
    version, before = server.pull().version, server.pull().values.clone()
    learner.step()
    assert server.pull().version == version
    assert torch.equal(server.pull().values, before)
    assert learner.client.outliers == 1
    if workers:
        assert (learner.client.traffic.counted, learner.client.traffic.dropped) == (1, 0)
    now = learner.schedule.algorithm_state["loss_mean"]
    assert float(now) > 0.0  # its loss belongs to the mean all the same
    now.fill_(1000.0)
    learner.step()
    assert server.pull().version.number == version.number + 1
    assert not torch.equal(server.pull().values, before)


def test_gradients_that_are_too_old_are_refused_by_each_slice() -> None:
    roles = played(max_staleness=2)
    slow = roles["learner-0"]
    pull = slow.client.pull

    def pull_then_others_go_on() -> None:
        pull()
        for _ in range(3):
            roles["learner-1"].step()

    slow.client.pull = pull_then_others_go_on
    slow.step()
    traffic = slow.client.traffic
    assert (traffic.counted, traffic.dropped, traffic.partial) == (0, 1, 0)
    assert [roles[f"server-{i}"].pull().version.number for i in range(2)] == [3, 3]


class HeadsAlone(DQN):
    """DQN whose torso keeps its first parameters."""

    def rate_scale(self, name: str) -> float:
        return float(name.startswith("heads."))


def test_an_algorithm_says_the_learning_rate_of_each_parameter() -> None:
    roles = played(HeadsAlone(**vars(CATCH.algorithm)))
    learner = roles["learner-0"]
    layout, first = learner.client.flat.layout, learner.client.flat.values.clone()
    for _ in range(3):
        learner.step()
    now = torch.cat([roles[name].pull().values for name in ("server-0", "server-1")])
    for (name, old), (_, new) in zip(layout.views(first), layout.views(now), strict=True):
        assert torch.equal(old, new) != name.startswith("heads."), name
