"""IQN: its head and its loss against the paper's sums. `test_learning` learns Catch with it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.iqn import IQN, ImplicitQuantiles
from colobus.core.types import Batch
from colobus.nets.network import Network
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory
from helpers.outputs import loss_of, whole

A, GAMES, GAMMA = 3, 5, 0.9
ALGORITHM = IQN(
    gamma=GAMMA, n=3, cosines=6, quantiles=4, target_quantiles=5, acting_quantiles=7, target_every=9
)


def test_the_quantiles_of_the_head_are_equation_4() -> None:
    head = ImplicitQuantiles(8, A, cosines=6, count=7)
    torch.manual_seed(3)
    head.start("uniform")
    hidden, shares = torch.randn(2, 8), torch.rand(2, 4)
    found, acting = head.at(hidden, shares), head(hidden)
    weights = {name: value.detach().double().numpy() for name, value in head.named_parameters()}

    def quantile(row: int, action: int, share: float) -> float:
        total = float(weights["last.bias"][action])
        cosines = [math.cos(math.pi * i * share) for i in range(6)]
        for j in range(8):
            wave = sum(a * b for a, b in zip(cosines, weights["embedding.weight"][j], strict=True))
            embedded = max(wave + weights["embedding.bias"][j], 0.0)
            total += hidden[row, j].item() * embedded * weights["last.weight"][action, j]
        return total

    for row, action, k in np.ndindex(2, A, 4):
        want = quantile(row, action, shares[row, k].item())
        assert found[row, action, k].item() == pytest.approx(want, abs=1e-5)
    for k in range(7):
        assert acting[1, 2, k].item() == pytest.approx(quantile(1, 2, (k + 0.5) / 7), abs=1e-5)


def made(algorithm: IQN, seed: int) -> tuple[Network, Network, Batch]:
    """Return the current and the target network, and windows of random play."""
    heads = partial(algorithm.heads, A)
    nets = [make_net(heads=heads, seed=seed + i) for i in range(2)]
    rng = np.random.default_rng(seed)
    sent = random_trajectory(rng, games=GAMES, length=algorithm.n, actions=A)
    return nets[0], nets[1], as_batch([sent])


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("target", [False, True])
def test_loss_gradient_and_priorities_step_by_step(double: bool, target: bool) -> None:
    algorithm = replace(ALGORITHM, double=double)
    net, frozen, batch = made(algorithm, seed=4)
    batch = batch._replace(weights=torch.linspace(0.2, 1.0, GAMES))
    algorithm_state = algorithm.start()
    if target:
        algorithm_state |= {f"target/{name}": value for name, value in frozen.named_parameters()}
    else:
        frozen = net
    prepared = whole(algorithm, net, batch, algorithm_state)
    draws = torch.Generator().manual_seed(6)
    total, terms, _ = loss_of(algorithm, net, prepared, algorithm_state, draws)
    found = {k: v.grad.clone() for k, v in net.named_parameters() if v.grad is not None}
    again = torch.Generator().manual_seed(6)
    shares, others = torch.rand(GAMES, 4, generator=again), torch.rand(GAMES, 5, generator=again)
    first, following = prepared.observations.chunks(GAMES)
    heads: Any = net.heads["q"], frozen.heads["q"]
    hidden = net.features(first)
    after = [each.features(following).detach() for each in (net, frozen)]
    rewards, discounts, _ = prepared.partial
    loss, count = torch.zeros(()), int(batch.mask[:, 0].sum())
    errors = np.zeros(GAMES)
    for b in range(GAMES):
        if not batch.mask[b, 0]:
            continue
        taken = heads[0].at(hidden[b : b + 1], shares[b : b + 1])[0, int(batch.actions[b, 0])]
        chooser = 0 if double else 1
        best = int(heads[chooser](after[chooser][b : b + 1])[0].mean(dim=1).argmax())
        returns = heads[1].at(after[1][b : b + 1], others[b : b + 1])[0, best].detach()
        targets = [rewards[b] + discounts[b] * value for value in returns]
        for i in range(4):
            for goal in targets:
                error = goal - taken[i]
                size = error.abs()
                huber = error**2 / 2 if size <= 1 else size - 0.5
                slope = (shares[b, i] - float(error < 0)).abs()
                loss = loss + batch.weights[b] * slope * huber / 5 / count
        errors[b] = abs(float(torch.stack(targets).mean() - taken.detach().mean()))
    assert count > 0
    torch.testing.assert_close(total, loss, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(prepared.priorities, errors, rtol=1e-4, atol=1e-6)
    assert terms["td_error"].item() == pytest.approx(errors.sum() / count, rel=1e-4)
    net.zero_grad()
    torch.autograd.backward(loss)
    for name, value in net.named_parameters():
        if name in found:
            torch.testing.assert_close(found[name], value.grad, rtol=1e-4, atol=1e-6)
    assert found.keys() >= {"heads.q.embedding.weight", "heads.q.last.weight"}


def test_a_step_that_was_truncated_has_no_loss_whatever_it_holds() -> None:
    algorithm = replace(ALGORITHM, reward_clip="none")
    net, _, batch = made(algorithm, seed=5)
    batch.mask[:, 0] = torch.arange(GAMES) > 0
    batch.rewards[0] = torch.inf
    prepared = whole(algorithm, net, batch)
    total, _ = algorithm.loss(net, prepared, algorithm.start(), torch.Generator())
    assert total.isfinite()
    assert prepared.priorities[0] == 0.0
