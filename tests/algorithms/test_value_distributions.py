"""DQN, PQN and APPO with distributions of values: targets and losses step by step in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.algorithms.pqn import PQN
from colobus.core.types import Batch, Trajectory
from colobus.nets.heads import ActionValues
from colobus.nets.network import Network, NetworkSettings
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory
from helpers.gradients import stacks_of
from helpers.outputs import loss_of, numbers, whole
from helpers.returns import histogram_of, lambda_returns

Array = np.ndarray[Any, Any]
GAMES, LENGTH, ACTIONS, ATOMS = 3, 6, 3, 21
FORMS = ("numbers", "histograms", "quantiles")
HOW: dict[str, Any] = {"gamma": 0.9, "lam": 0.7, "atoms": ATOMS}
ALGORITHMS: dict[str, Any] = {
    "DQN": DQN(**HOW, returns="q_lambda", target_every=0, error="squared"),
    "PQN": PQN(**HOW, minibatch=4),
}


def made(algorithm: APPO | DQN | PQN, seed: int) -> tuple[Network, Trajectory, Batch]:
    """Return a network whose values are far from 0, and a batch."""
    settings = NetworkSettings(torso="tiny", width=8, stack=3)
    net = make_net(settings, heads=lambda width: algorithm.heads(ACTIONS, width), seed=seed)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.heads.parameters():
            parameter.mul_(20).add_(0.1 * torch.randn(parameter.shape, generator=random))
    sent = random_trajectory(np.random.default_rng(seed), games=GAMES, length=LENGTH)
    return net, sent, as_batch([sent])


def outputs_of(net: Network, sent: Trajectory, head: str = "q") -> Array:
    """Return the outputs float64[B, T + 1, …] of a head for all observations."""
    with torch.no_grad():
        rows = net(net.preprocess(stacks_of(sent, 3)).flatten(0, 1))[head]
    found: Array = rows.unflatten(0, (GAMES, LENGTH + 1)).double().numpy()
    return found


def bins() -> list[tuple[float, float]]:
    """Return the edges of each bin, squashed by sqrt(|x| + 1) - 1, for returns up to 100."""
    limit = math.sqrt(101) - 1
    return [(limit * (2 * i / ATOMS - 1), limit * (2 * (i + 1) / ATOMS - 1)) for i in range(ATOMS)]


def mean(form: str, outputs: Array) -> float:
    if form == "numbers":
        return float(outputs)
    if form == "quantiles":
        return float(outputs.sum() / ATOMS)
    total, weights = 0.0, np.exp(outputs - outputs.max())
    for weight, (low, high) in zip(weights / weights.sum(), bins(), strict=True):
        middle, width = (low + high) / 2, high - low
        size = (abs(middle) + 1) ** 2 - 1 - (0.75**2 + 1 / 12) * width**2
        total += weight * float(np.sign(round(middle, 9))) * size
    return total


def loss(form: str, outputs: Array, value: float) -> float:
    """Return the loss of a distribution, or half the square of a number's error, for a return."""
    if form == "quantiles":
        total = 0.0
        for i, quantile in enumerate(outputs):
            error = value - quantile
            huber = error**2 / 2 if abs(error) <= 1 else abs(error) - 0.5
            total += abs((i + 0.5) / ATOMS - (error < 0)) * huber
        return total / ATOMS
    if form == "numbers":
        return float((value - outputs) ** 2 / 2)
    largest = outputs.max()
    normaliser = largest + math.log(np.exp(outputs - largest).sum())
    mass = np.array(histogram_of(value, ATOMS, 100.0))
    return -float((mass * (outputs - normaliser)).sum())


def learned(algorithm: Any, net: Network, batch: Batch, state: Any) -> dict[str, float]:
    _, terms, _ = loss_of(algorithm, net, whole(algorithm, net, batch, state), state)
    assert all(parameter.grad is not None for parameter in net.parameters())
    return numbers(terms)


@pytest.mark.parametrize("duelling", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_targets_and_loss_step_by_step(name: str, form: Any, duelling: bool) -> None:
    algorithm = replace(ALGORITHMS[name], values=form, duelling=duelling)
    net, sent, batch = made(algorithm, seed=1)
    terms = learned(algorithm, net, batch, algorithm.start())
    outputs = outputs_of(net, sent)
    shape = outputs.shape[:3]
    values = np.array([mean(form, outputs[place]) for place in np.ndindex(shape)]).reshape(shape)
    best, signs = values.max(axis=2), np.sign(sent.rewards)
    targets = lambda_returns(sent, signs, best, algorithm.gamma, algorithm.lam)
    rows = [
        (
            loss(form, outputs[b, t, sent.actions[b, t]], targets[b, t]),
            abs(targets[b, t] - values[b, t, sent.actions[b, t]]),
            values[b, t, sent.actions[b, t]],
        )
        for b, t in np.argwhere(sent.mask)
    ]
    wanted = np.mean(rows, axis=0)
    found = [terms[key] for key in ("value_loss", "td_error", "q")]
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-4)
    assert np.abs(outputs).max() > 1.0


@pytest.mark.parametrize("name", ALGORITHMS)
def test_munchausen_with_distributions_takes_their_means(name: str) -> None:
    base = replace(ALGORITHMS[name], values="quantiles", gamma=0.95)
    algorithm = replace(base, munchausen=0.8, temperature=0.5)
    net, sent, batch = made(algorithm, seed=2)
    terms = learned(algorithm, net, batch, algorithm.start())
    values = outputs_of(net, sent).mean(axis=3)
    soft = 0.5 * np.log(np.exp(values / 0.5).sum(axis=2))
    taken = np.take_along_axis(values[:, :-1], sent.actions[..., None], axis=2)[..., 0]
    extra = 0.8 * np.clip(taken - soft[:, :-1], -1.0, 0.0)
    targets = lambda_returns(sent, np.sign(sent.rewards), soft, 0.95, algorithm.lam) + extra
    errors = np.abs(targets - taken)[sent.mask]
    assert terms["td_error"] == pytest.approx(errors.mean(), rel=2e-4)


@pytest.mark.parametrize("name", [*ALGORITHMS, "DQN, n steps"])
def test_discount_and_lambda_change_with_the_steps(name: str) -> None:
    still = ALGORITHMS.get(name, DQN(gamma=0.9, lam=0.7, n=LENGTH, target_every=0))
    moving = replace(still, gamma_end=0.8, lam_end=0.1, anneal_steps=1000)
    assert still.start().keys() < moving.start().keys()
    algorithm_state = moving.start()
    for steps, gamma, lam in ((0, 0.9, 0.7), (250, 0.875, 0.55), (5000, 0.8, 0.1)):
        moving.after(algorithm_state, {}, steps)
        there = replace(still, gamma=gamma, lam=lam)
        net, _, batch = made(moving, seed=3)
        found = learned(moving, net, batch, algorithm_state)
        assert found == pytest.approx(learned(there, net, batch, there.start()), rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_actor_sees_the_means(name: str, form: Any) -> None:
    algorithm = replace(ALGORITHMS[name], values=form)
    net, sent, _ = made(algorithm, seed=5)
    stacks = net.preprocess(stacks_of(sent, 3)[:, 0])
    with torch.no_grad():
        scores, state = algorithm.act(net.for_acting(algorithm.acting_heads), stacks, None)
    assert state is None
    outputs = outputs_of(net, sent)[:, 0]
    want = [[mean(form, row) for row in game] for game in outputs]
    np.testing.assert_allclose(scores.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("atoms", [1, ATOMS])
def test_duelling_centres_the_outputs_of_the_actions(atoms: int) -> None:
    """Wang et al. 2016, equation 9, for each atom."""
    head: Any = ActionValues(5, ACTIONS, atoms, duelling=True)
    head.start("orthogonal")
    hidden = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    found = head(hidden)
    assert found.shape == ((2, ACTIONS) if atoms == 1 else (2, ACTIONS, atoms))
    state = hidden @ head.value.weight.T
    apart = (hidden @ head.advantage.weight.T).view(2, ACTIONS, atoms)
    for a in range(ACTIONS):
        want = state + apart[:, a] - sum(apart[:, other] for other in range(ACTIONS)) / ACTIONS
        torch.testing.assert_close(found.view(2, ACTIONS, atoms)[:, a], want)


@pytest.mark.parametrize("form", ["histograms", "quantiles"])
def test_appos_value_is_the_mean_of_a_distribution(form: Any) -> None:
    """Its targets are those of GAE (Schulman et al. 2016, equation 16) with these values."""
    algorithm = APPO(gamma=0.9, lam=0.7, minibatch=4, values=form, atoms=ATOMS)
    net, sent, batch = made(algorithm, seed=6)
    terms = learned(algorithm, net, batch, algorithm.start())
    outputs = outputs_of(net, sent, "value")
    values = np.array([[mean(form, row) for row in game] for game in outputs])
    rows = []
    for b in range(GAMES):
        advantage = 0.0
        for t in reversed(range(LENGTH)):
            goes_on = 0.0 if sent.terminated[b, t] else 0.9
            delta = np.sign(sent.rewards[b, t]) + goes_on * values[b, t + 1] - values[b, t]
            advantage = delta + goes_on * 0.7 * advantage
            if sent.truncated[b, t]:
                advantage = 0.0
            if sent.mask[b, t]:
                rows.append(loss(form, outputs[b, t], advantage + values[b, t]))
    assert terms["value_loss"] == pytest.approx(np.mean(rows), rel=2e-4)
    assert np.abs(outputs).max() > 1.0
