"""PQN: its targets and loss against a slow transcription of the paper, and Catch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from colobus.algorithms.batches import Minibatch
from colobus.algorithms.pqn import PQN, Steps
from colobus.core.errors import ColobusError
from colobus.experiment.presets import PRESETS
from colobus.nets.network import NetworkSettings
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory, stand_in
from helpers.learning import learn
from helpers.returns import lambda_returns
from helpers.stacking import stack_at

ALGORITHM = PQN(gamma=0.9, lam=0.7, reward_clip="none", minibatch=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_targets_are_the_papers_lambda_returns_of_the_current_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=3), heads={"q": 3}, seed=seed)
    sent = random_trajectory(rng, games=3, length=6)
    prepared = ALGORITHM.prepare(net, as_batch([sent]), ALGORITHM.start())
    assert prepared.size == 18
    stacks = [stack_at(sent.frames, sent.ages, t, 3) for t in range(7)]
    with torch.no_grad():
        values = [net(net.preprocess(torch.from_numpy(s)))["q"].amax(dim=1) for s in stacks]
    best = torch.stack(values, dim=1).numpy()
    want = lambda_returns(sent, sent.rewards, best, ALGORITHM.gamma, ALGORITHM.lam)
    for index in torch.randperm(18).split(5):
        observations, steps, *_ = prepared.select(index)
        for row, number in enumerate(index.tolist()):
            b, t = divmod(number, 6)
            assert steps.targets[row].item() == pytest.approx(want[b, t], rel=1e-4, abs=1e-5)
            assert steps.actions[row].item() == sent.actions[b, t]
            assert steps.weights[row].item() == sent.mask[b, t]
            plain = net.preprocess(torch.from_numpy(stacks[t][b]))
            torch.testing.assert_close(observations[row], plain)


def test_the_loss_is_half_the_mean_squared_error_of_steps_that_count() -> None:
    rng = np.random.default_rng(1)
    values, targets = rng.normal(size=(7, 3)), rng.normal(size=7)
    actions, weights = rng.integers(3, size=7), np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    spoilt = np.where(weights == 0.0, np.inf, targets)
    q = torch.from_numpy(values.astype(np.float32)).requires_grad_(True)
    net = stand_in(lambda _observations: {"q": q})
    steps = Steps(
        torch.from_numpy(actions),
        torch.from_numpy(spoilt.astype(np.float32)),
        torch.from_numpy(weights.astype(np.float32)),
    )
    total, terms = ALGORITHM.loss(net, Minibatch(torch.zeros(7), steps), ALGORITHM.start())
    torch.autograd.backward(total)
    chosen = values[np.arange(7), actions]
    errors = (chosen - targets) * weights
    assert total.item() == pytest.approx(0.5 * (errors**2).sum() / weights.sum(), rel=1e-5)
    want = np.zeros((7, 3))
    want[np.arange(7), actions] = errors / weights.sum()
    assert q.grad is not None
    np.testing.assert_allclose(q.grad.numpy(), want, rtol=1e-4, atol=1e-6)
    assert all(term.isfinite() for term in terms.values())


def test_a_minibatch_above_the_batch_is_refused() -> None:
    with pytest.raises(ColobusError, match="--minibatch 129: must not be above the batch of 128"):
        PQN(minibatch=129).check(128)


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_catch_is_learned(tmp_path: Path, deterministic: bool) -> None:
    experiment = replace(PRESETS["pqn-catch"], deterministic=deterministic)
    learn(experiment, tmp_path / "run", log=pytest.fail)
