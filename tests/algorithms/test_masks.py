"""Masks of actions: forbidden actions are never played, never learned, and no maximum."""

from __future__ import annotations

from collections import Counter
from math import log
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.a3c import A3C
from colobus.algorithms.action_values import LastingEpsilonGreedy, epsilon_greedy, falling
from colobus.algorithms.api import TARGET
from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.algorithms.exploration import Exploration, Player, Sampled, best_allowed
from colobus.algorithms.iqn import IQN
from colobus.algorithms.pqn import PQN
from colobus.core.arrays import apart
from colobus.core.types import Batch
from colobus.nets.config import NetworkSettings
from colobus.nets.network import Network
from colobus.ops import losses
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory
from helpers.outputs import whole

MASKS = [[1, 0, 1], [1, 1, 0], [0, 1, 1]]  # of three observations: three actions
SETTINGS = NetworkSettings(torso="mlp", width=8, stack=1)
LOW = losses.FORBIDDEN


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_a_mask_stands_at_the_end_of_a_frame(kind: Any) -> None:
    vector = kind([[[0.5, 1.0, 0.0, 1.0]]])  # [1, 1, 2 + 2]
    seen, allowed = apart(vector, 2)
    assert (seen.tolist(), allowed.tolist()) == ([[[0.5, 1.0]]], [[False, True]])
    picture = kind([[7, 8, 9], [4, 5, 6], [1, 0, 1], [0, 1, 0]])  # four actions in two rows
    seen, allowed = apart(picture, 4)
    assert seen.tolist() == [[7, 8, 9], [4, 5, 6]]
    assert allowed.tolist() == [True, False, True, False]
    seen, allowed = apart(picture, 0)
    assert (seen.tolist(), allowed.shape) == (picture.tolist(), (0,))


def test_what_is_forbidden_has_no_probability_no_entropy_and_no_gradient() -> None:
    """Of weights 1, 3 and e^9 the last is forbidden: probabilities 1/4 and 3/4."""
    logits = torch.tensor([[0.0, log(3.0), 9.0]], requires_grad=True)
    policy = losses.log_softmax(logits, torch.tensor([[True, True, False]]))
    assert policy.exp()[0].tolist() == pytest.approx([0.25, 0.75, 0.0])
    entropy = losses.entropy(policy, torch.ones(1))
    assert entropy.item() == pytest.approx(0.562335, abs=1e-6)  # 1/4 ln 4 + 3/4 ln 4/3
    assert losses.exact_kl(policy, policy).item() == 0.0
    (entropy - losses.chosen(policy, torch.tensor([1])).sum()).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 2] == 0.0
    all_of_them = losses.log_softmax(logits, torch.tensor([[True, True, True]]))
    assert torch.equal(all_of_them, losses.log_softmax(logits))


def net_of(head: str, outputs: dict[str, int], last: list[float]) -> Network:
    """Return a network of vectors of two numbers whose scores are always the same."""
    net = make_net(SETTINGS, (1, 5), outputs, masks=3)
    scores: Any = net.heads[head]
    with torch.no_grad():
        scores.weight.zero_()
        scores.bias.copy_(torch.tensor(last))
        if "value" in outputs:
            value: Any = net.heads["value"]
            value.weight.zero_()
    return net


def batch_of(actions: list[int], rewards: list[float], masks: Any = MASKS) -> Batch:
    """Return a window with these actions and the masks of its observations."""
    length = len(actions)
    frames = np.zeros((1, length + 1, 1, 5), dtype=np.float32)
    frames[0, :, 0, 2:] = masks[: length + 1]
    played = random_trajectory(np.random.default_rng(0), games=1, length=length)
    none = np.zeros((1, length), dtype=np.bool_)
    played = played._replace(
        frames=frames,
        ages=np.arange(length + 1)[None],
        actions=np.array([actions]),
        rewards=np.array([rewards], dtype=np.float32),
        terminated=none,
        truncated=none,
        mask=~none,
        log_probs=np.full((1, length), log(0.25), dtype=np.float32),
    )
    return as_batch([played])


def test_observations_show_everything_but_the_mask() -> None:
    net = net_of("policy", {"policy": 3, "value": 1}, [0.0, 1.0, 2.0])
    stacks = torch.zeros(2, 1, 1, 5)
    stacks[:, 0, 0, 2:] = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    scores, _ = APPO().scores(net, net.preprocess(stacks), None)
    assert scores.tolist() == [[0.0, LOW, 2.0], [LOW, 1.0, 2.0]]
    hidden = [net.features(net.apart(net.preprocess(each[None]))[0]) for each in stacks]
    assert torch.equal(*hidden)


@pytest.mark.parametrize("torso", ["tiny", "small"])
def test_pictures_are_learned_without_the_rows_of_their_mask(torso: Any) -> None:
    """Four actions in a row below pictures of 20 x 20 with two planes."""
    settings = NetworkSettings(torso=torso, width=8, stack=2)
    net = make_net(settings, (41, 20), {"policy": 4, "value": 1}, masks=4)
    assert net.apart(torch.zeros(1, 2, 41, 20))[0].shape == (1, 2, 40, 20)
    batch = batch_of([0, 1], [0.0, 0.0], np.zeros((3, 3)))
    rng = np.random.default_rng(1)
    frames = torch.from_numpy(rng.integers(0, 256, (1, 4, 41, 20), dtype=np.uint8))
    frames[0, :, 40] = 0
    frames[0, :, 40, :4] = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]])
    algorithm = APPO()
    steps = whole(algorithm, net, batch._replace(frames=frames)).steps
    assert steps.allowed.tolist() == [[False, True, True, False], [True, True, False, False]]
    acted, _ = algorithm.scores(net, net.preprocess(frames[:, 1:3]), None)
    assert (acted <= losses.FORBIDDEN).tolist() == [[False, False, True, True]]


def test_policies_are_compared_over_what_is_allowed() -> None:
    """By V-trace: logits 0, ln 3 and 9; the behaviour policy gave 1/4 to each action.

    At first actions 0 and 1 are allowed, so that the policy gives 1/4 to action 0: a ratio of 1.
    Then 0 alone: the ratio is 4, and is cut to 1. Values are 0, so with lambda 1 the targets are
    5 + 0.9 * 2 and 2.
    """
    net = net_of("policy", {"policy": 3, "value": 1}, [0.0, log(3.0), 9.0])
    batch = batch_of([0, 0], [5.0, 2.0], [[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    algorithm = APPO(advantage="vtrace", reward_clip="none", gamma=0.9, lam=1.0, normalise=False)
    minibatch = whole(algorithm, net, batch)
    assert minibatch.steps.targets.tolist() == pytest.approx([6.8, 2.0])
    _, terms = algorithm.loss(net, minibatch, algorithm.start())
    # the mean of the entropies of 1/4, 3/4 and of one action alone; of the ratios 1 and 4
    assert terms["entropy"].item() == pytest.approx(0.562335 / 2, abs=1e-6)
    assert terms["ratio_mean"].item() == pytest.approx(2.5)
    # and A3C takes the entropy over what is allowed, too
    _, terms = A3C().loss(net, whole(A3C(), net, batch), A3C().start())
    assert terms["entropy"].item() == pytest.approx(0.562335 / 2, abs=1e-6)


VALUES = [1.0, 5.0, 3.0]
"""Of the actions, always. The masks allow 1 and 3, then 1 and 5, then 5 and 3 as values."""


def net_of_values(algorithm: Any) -> Network:
    if not isinstance(algorithm, IQN):
        return net_of("q", {"q": 3}, VALUES)
    net = make_net(SETTINGS, (1, 5), lambda width: algorithm.heads(3, width), masks=3)
    head: Any = net.heads["q"]
    with torch.no_grad():
        head.last.weight.zero_()
        head.last.bias.copy_(torch.tensor(VALUES))
    return net


Q: dict[str, Any] = {"gamma": 0.9, "reward_clip": "none"}
STEP: dict[str, Any] = {"returns": "q_lambda", "lam": 0.0}


@pytest.mark.parametrize(
    "algorithm",
    [
        IQN(target_every=0, quantiles=4, **Q),
        PQN(lam=0.0, **Q),
        DQN(target_every=0, **STEP, **Q),
        DQN(double=True, **STEP, **Q),
        DQN(returns="n_step", target_every=0, **Q),
        DQN(returns="n_step", double=True, **Q),
    ],
)
def test_the_best_allowed_action_is_bootstrapped_from(algorithm: Any) -> None:
    """2 + 0.9 * 5 - 1 is the error of the first step; were the mask that before it, 3 were best."""
    net, state, random = net_of_values(algorithm), algorithm.start(), torch.Generator()
    if getattr(algorithm, "double", False):
        state |= {TARGET + name: p.detach() for name, p in net.named_parameters()}
    for masks, best in [(MASKS, 5.0), ([[1, 1, 1], [1, 0, 1]], 3.0)]:
        minibatch = whole(algorithm, net, batch_of([0], [2.0], masks), state)
        _, terms = algorithm.loss(net, minibatch, state, random)
        assert terms["td_error"].item() == pytest.approx(2.0 + 0.9 * best - 1.0)


def test_a_soft_value_is_that_of_the_allowed_actions() -> None:
    """Munchausen with temperature 1: ln(e^1 + e^3) after the step, and ln pi(a) of two actions."""
    net = net_of("q", {"q": 3}, VALUES)
    algorithm = DQN(munchausen=0.5, temperature=1.0, target_every=0, **STEP, **Q)
    batch = batch_of([2], [0.0], [[1, 0, 1], [1, 0, 1]])
    _, terms = algorithm.loss(net, whole(algorithm, net, batch), algorithm.start())
    soft = float(np.log(np.exp(1.0) + np.exp(3.0)))
    assert terms["td_error"].item() == pytest.approx(abs(0.5 * (3.0 - soft) + 0.9 * soft - 3.0))


PLAYER = Player(0, 1, 4, 4)
EXPLORATIONS: dict[str, Exploration] = {
    "epsilon": epsilon_greedy(PLAYER, falling(1.0, 1.0, 1, 4), 1),
    "lasting": LastingEpsilonGreedy(PLAYER, falling(1.0, 1.0, 1, 4), 5),
    "repeated": epsilon_greedy(PLAYER, falling(1.0, 1.0, 1, 4), 1, hold_after=1),
    "sampled": Sampled(PLAYER),
    "held": Sampled(PLAYER, hold_after=1),
}


@pytest.mark.parametrize("way", EXPLORATIONS)
def test_nobody_explores_what_is_forbidden(way: str) -> None:
    """Masks change from step to step; game 3 has one action only."""
    exploration, played = EXPLORATIONS[way], Counter[int]()
    for rollout in range(20):
        exploration.begin(make_net(), 50, 0, torch.Generator().manual_seed(rollout))
        scores = torch.zeros(4, 50, 4)
        scores[:, ::2, 1], scores[:, 1::2, 2], scores[3, :, :3] = LOW, LOW, LOW
        actions = torch.stack([exploration.choose(t, scores[:, t]) for t in range(50)], dim=1)
        assert (scores.gather(2, actions.unsqueeze(2)) == 0.0).all()
        exploration.end(scores, actions, np.zeros((4, 50), dtype=np.float32))
        played.update(actions[:3, ::2].flatten().tolist())
    assert set(played) == {0, 2, 3}


def test_random_actions_are_uniform_over_the_allowed_ones() -> None:
    """6,000 draws of three actions of four: 2,000 of each, within five deviations of 37."""
    exploration = epsilon_greedy(Player(0, 1, 6_000, 4), falling(1.0, 1.0, 1, 6_000), 1)
    exploration.begin(make_net(), 1, 0, torch.Generator().manual_seed(1))
    actions = exploration.choose(0, torch.tensor([9.0, LOW, 0.0, -9.0]).expand(6_000, 4).clone())
    counts = np.bincount(actions, minlength=4)
    assert counts[1] == 0
    assert np.abs(counts[[0, 2, 3]] - 2_000).max() < 5 * 37


def test_greedy_is_the_best_allowed_action() -> None:
    scores = torch.tensor([[1.0, LOW, 0.5], [LOW, LOW, -7.0]])
    random = torch.Generator().manual_seed(1)
    assert best_allowed(scores, torch.zeros(2, 3), random).tolist() == [0, 2]
