"""PQN: its targets and loss against a slow transcription of the paper, and Catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.action_values import (
    EpsilonGreedy,
    LastingEpsilonGreedy,
    epsilon_greedy,
    falling,
)
from colobus.algorithms.batches import Minibatch
from colobus.algorithms.exploration import Lasting, Player
from colobus.algorithms.pqn import PQN, Steps
from colobus.core.errors import ColobusError
from colobus.experiment.presets import PRESETS, preset
from colobus.nets.network import NetworkSettings
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory, stand_in
from helpers.learning import learn
from helpers.returns import lambda_returns
from helpers.stacking import stack_at

ALGORITHM = PQN(gamma=0.9, lam=0.7, reward_clip="none", minibatch=4)


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


def test_any_game_is_learned_by_the_family() -> None:
    experiment, _ = preset("pqn-seaquest")
    assert isinstance(experiment.algorithm, PQN)
    assert (experiment.games.game, experiment.optimizer.optimizer) == ("seaquest", "radam")
    assert experiment.network.layer_norm
    assert not experiment.replay.capacity


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_catch_is_learned(tmp_path: Path, deterministic: bool) -> None:
    experiment = replace(PRESETS["pqn-catch"], deterministic=deterministic)
    learn(experiment, tmp_path / "run", log=pytest.fail)


GAMES, LENGTH, ACTIONS = 400, 500, 4
NET: Any = None  # exploration leaves the network alone
Array = np.ndarray[Any, Any]


def made(epsilon: float, longest: int) -> LastingEpsilonGreedy:
    player = Player(0, 1, GAMES, ACTIONS)
    return LastingEpsilonGreedy(player, falling(epsilon, epsilon, 1, GAMES), longest)


def rollout(exploration: LastingEpsilonGreedy, seed: int) -> Array:
    """Play a rollout; return the random actions int[T, B], -1 where an action is not random."""
    exploration.begin(NET, LENGTH, 0, torch.Generator().manual_seed(seed))
    values = torch.randn(GAMES, ACTIONS, generator=torch.Generator().manual_seed(seed))
    found = []
    for t in range(LENGTH):  # what is taken with these values and with opposite ones is random
        one, other = exploration.choose(t, values), exploration.choose(t, -values)
        greedy = (one == values.argmax(dim=1)) & (other == values.argmin(dim=1))
        assert ((one == other) | greedy).all()
        found.append(one.masked_fill(one != other, -1))
    return torch.stack(found).numpy()


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("longest", [5, 50])
def test_the_share_of_random_steps_is_epsilon(epsilon: float, longest: int) -> None:
    exploration = made(epsilon, longest)
    rollout(exploration, 1)  # all games begin without an action
    actions = rollout(exploration, 2)
    assert (actions >= 0).mean() == pytest.approx(epsilon, rel=0.1)
    if epsilon:
        counts = np.bincount(actions[actions >= 0], minlength=ACTIONS)
        np.testing.assert_allclose(counts / counts.sum(), 1 / ACTIONS, atol=0.05)


def test_how_long_an_action_lasts_is_a_zeta_distribution() -> None:
    """At a small epsilon two actions seldom follow each other, so runs are their lengths."""
    exploration = made(0.02, 8)
    actions = np.concatenate([rollout(exploration, seed) for seed in range(4)])
    lengths = []
    for game in actions.T:
        length = 0
        for action in game:
            if action >= 0:
                length += 1
            elif length:
                lengths.append(length)
                length = 0
    counts = np.bincount(lengths, minlength=9)[1:9] / len(lengths)
    want = np.arange(1, 9) ** -2.0
    np.testing.assert_allclose(counts, want / want.sum(), atol=0.02)


def test_an_action_goes_on_in_the_next_rollout_of_a_restored_exploration() -> None:
    exploration = made(0.5, 50)
    first = rollout(exploration, 1)
    saved = exploration.save()
    second = rollout(exploration, 2)
    restored = made(0.5, 50)
    restored.restore(saved)
    assert np.array_equal(rollout(restored, 2), second)
    assert not np.array_equal(rollout(made(0.5, 50), 2), second)
    across = first[-1] >= 0
    assert (first[-1, across] == second[0, across]).mean() > 0.6  # by chance an eighth


@pytest.mark.parametrize(
    ("part", "spoil"),
    [
        ("left", lambda left: left - 1),
        ("left", lambda left: left + 50),
        ("left", lambda left: left.astype(np.float64)),
        ("left", lambda left: left[:1]),
        ("left", lambda left: left[None]),
        ("actions", lambda actions: actions + ACTIONS),
        ("actions", lambda actions: actions - ACTIONS),
        ("actions", lambda actions: actions[:1]),
    ],
)
def test_a_saved_state_that_cannot_be_is_refused(part: str, spoil: Callable[[Any], Any]) -> None:
    exploration = made(0.5, 50)
    rollout(exploration, 1)
    saved = exploration.save()
    made(0.5, 50).restore(saved)
    with pytest.raises(ValueError, match=f"^{part} is not a whole number below "):
        made(0.5, 50).restore(saved | {part: spoil(saved[part])})


def test_actions_of_one_step_are_plain_epsilon_greedy_and_keep_nothing() -> None:
    player = Player(0, 1, 3, 2)
    plain = epsilon_greedy(player, falling(1.0, 0.1, 10, 3), 1)
    assert type(plain) is EpsilonGreedy
    assert not isinstance(plain, Lasting)
    assert isinstance(epsilon_greedy(player, falling(1.0, 0.1, 10, 3), 2), Lasting)
