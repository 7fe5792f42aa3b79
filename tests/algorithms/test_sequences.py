"""Learning from sequences: the states before them, their minibatches, and actors' probabilities."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.appo import APPO
from colobus.algorithms.batches import evaluate
from colobus.core.types import Batch
from colobus.envs.catch import CatchGames
from colobus.nets.network import Network, Observed
from colobus.nets.observations import Observations
from colobus.roles.replay.queue import as_batch
from conftest import random_trajectory, recurrent_net
from helpers.gradients import stacks_of
from helpers.outputs import whole
from helpers.returns import estimated
from helpers.servers import played

LENGTH, SEQUENCE, WIDTH = 12, 4, 16
ALGORITHM = APPO(sequence=SEQUENCE, minibatch=3 * SEQUENCE)
TIGHT: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def make_batch(stack: int = 1, seed: int = 0) -> Batch:
    """Return 3 windows with ends of games, and lives lost in the midst of them."""
    rng = np.random.default_rng(seed)
    sent = random_trajectory(rng, games=3, length=LENGTH, stack=stack)
    sent.terminated[:] |= rng.random(sent.terminated.shape) < 0.2  # with ages that run on
    state = rng.normal(size=(3, 2 * WIDTH)).astype(np.float32)
    return as_batch([sent._replace(state=state)])


@torch.no_grad()
def by_steps(net: Network, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return logits and values of all observations, and the states before them, step by step."""
    state: Any = batch.state
    stacks = net.preprocess(stacks_of(batch, net.stack))
    logits, values, states = [], [], []
    for t in range(LENGTH + 1):
        state = state.masked_fill((batch.ages[:, t] == 0).unsqueeze(1), 0.0)
        states.append(state)
        hidden, state = net.step(stacks[:, t], state)
        outputs = net.outputs(hidden)
        logits.append(outputs["policy"])
        values.append(outputs["value"].squeeze(1))
    return torch.stack(logits, 1), torch.stack(values, 1), torch.stack(states, 1)


@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize("size", [5, 1000])
def test_a_batch_is_evaluated_as_step_by_step(stack: int, size: int) -> None:
    net, batch = recurrent_net(stack), make_batch(stack)
    observations = Observations(net, batch.frames, batch.ages)
    found = evaluate(net, observations, batch, size, SEQUENCE)
    logits, values, states = by_steps(net, batch)
    assert found.states is not None
    torch.testing.assert_close(found.outputs["policy"], logits.flatten(0, 1), **TIGHT)
    torch.testing.assert_close(found.outputs["value"].squeeze(1), values.flatten(), **TIGHT)
    want = states[:, :-1:SEQUENCE].flatten(0, 1)
    begins = (batch.ages[:, :-1:SEQUENCE] == 0).flatten().unsqueeze(1)
    torch.testing.assert_close(found.states.masked_fill(begins, 0.0), want, **TIGHT)


def test_every_minibatch_says_what_the_whole_batch_said() -> None:
    """At equal parameters a sequence from its state gives what the window gave."""
    net, batch = recurrent_net(), make_batch()
    samples = ALGORITHM.prepare(net, batch, ALGORITHM.start())
    logits, values, _ = by_steps(net, batch)
    assert (samples.size, samples.row) == (3 * LENGTH // SEQUENCE, SEQUENCE)
    seen = []
    for index in torch.split(torch.tensor([7, 2, 0, 8, 4, 1, 3, 6, 5]), 2):
        minibatch = samples.select(index)
        steps = (index.unsqueeze(1) * SEQUENCE + torch.arange(SEQUENCE)).flatten()
        seen += steps.tolist()
        with torch.no_grad():
            outputs = net(minibatch.observations)
        for name, want in (("policy", logits), ("value", values.unsqueeze(2))):
            torch.testing.assert_close(outputs[name], want[:, :-1].flatten(0, 1)[steps], **TIGHT)
        assert torch.equal(minibatch.steps.actions, batch.actions.flatten()[steps])
        assert torch.equal(minibatch.steps.log_probs, batch.log_probs.flatten()[steps])
    assert sorted(seen) == list(range(3 * LENGTH))


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_targets_come_from_the_values_of_the_whole_window(advantage: Any) -> None:
    algorithm = replace(ALGORITHM, advantage=advantage)
    net, batch = recurrent_net(), make_batch()
    logits, values, _ = by_steps(net, batch)
    outputs, signs = {"policy": logits, "value": values}, batch.rewards.sign()
    want = estimated(advantage, batch, signs, outputs, algorithm.gamma, algorithm.lam)
    steps = whole(algorithm, net, batch).steps
    torch.testing.assert_close(steps.advantages, want.advantages.flatten(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(steps.targets, want.targets.flatten(), rtol=1e-4, atol=1e-4)


def test_the_gradient_stays_within_a_sequence_and_within_a_game() -> None:
    """The loss of one step has a gradient at the observations before it, back to both starts."""
    net, batch = recurrent_net(), make_batch()
    observations = Observations(net, batch.frames, batch.ages)
    stacks = observations.chunks(1000)[0].clone()[: 2 * SEQUENCE].requires_grad_(True)
    begins = torch.zeros(2, SEQUENCE, dtype=torch.bool)
    begins[1, 2] = True
    state = torch.randn(2, 2 * WIDTH)
    net(Observed(stacks, state, begins))["value"].view(2, SEQUENCE)[:, -1].sum().backward()
    assert stacks.grad is not None
    reached = stacks.grad.abs().sum(dim=(1, 2, 3)).view(2, SEQUENCE) > 0
    assert reached.tolist() == [[True] * 4, [False, False, True, True]]


def test_the_probabilities_of_an_actor_are_those_of_the_learner() -> None:
    """At equal parameters, over several trajectories that begin in the midst of games."""
    net = recurrent_net()
    with torch.no_grad():
        net.heads["policy"].get_parameter("weight").mul_(100)  # far from uniform
    dark = partial(CatchGames, dark=True)
    sent = played(net, ALGORITHM, dark, 4, LENGTH, rounds=4).trajectories
    starts = [each.ages[:, 0].tolist() for each in sent]
    assert starts[0] == [0] * 4
    assert {age for ages in starts[1:] for age in ages} == {3, 6, 0}
    for each, ages in zip(sent, starts, strict=True):
        assert [bool(row.any()) for row in each.state] == [age > 0 for age in ages]
        batch = as_batch([each])
        torch.testing.assert_close(log_probs(net, batch), batch.log_probs, rtol=0.0, atol=1e-5)
        if any(ages):
            forgotten = batch._replace(state=torch.zeros_like(batch.state))
            assert (log_probs(net, forgotten) - batch.log_probs).abs().max() > 1e-3


@torch.no_grad()
def log_probs(net: Network, batch: Batch) -> torch.Tensor:
    """Return what the learner finds at the actions of a batch, in one minibatch: [N, T]."""
    minibatch = whole(ALGORITHM, net, batch)
    log_policy = net(minibatch.observations)["policy"].log_softmax(dim=1)
    chosen: torch.Tensor = log_policy.gather(1, minibatch.steps.actions.unsqueeze(1))
    return chosen.view(batch.actions.shape)
