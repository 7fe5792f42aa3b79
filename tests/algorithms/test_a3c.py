"""A3C's loss and its gradient against the paper's own sums (Mnih et al. 2016, algorithm S3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.a3c import A3C
from colobus.algorithms.api import Ends
from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.core.errors import ColobusError
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory
from helpers.outputs import Given, assert_same_bits, loss_of, numbers, whole

N, T, A = 3, 7, 4
ALGORITHM = A3C(gamma=0.9, n=3, value_coefficient=0.7, entropy=0.03, reward_clip="none")
WAYS = {
    "plain": ALGORITHM,
    "one step": replace(ALGORITHM, n=1),
    "whole windows": replace(ALGORITHM, n=20),
    "ratio clip": replace(ALGORITHM, ratio_clip=1.2),
    "signs of rewards": replace(ALGORITHM, reward_clip="sign"),
    "as it comes": A3C(),
}


class Case:
    """Three random windows, and what a network says about their eight observations each."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.played = random_trajectory(rng, games=N, length=T, actions=A)
        self.logits, self.values = rng.normal(size=(N, T + 1, A)), rng.normal(size=(N, T + 1))
        self.weights = np.array([1.0, 2.0, 0.5])

    def run(self, algorithm: A3C) -> Any:
        """Return the loss, its terms and the network with gradients."""
        batch = as_batch([self.played])._replace(weights=torch.from_numpy(self.weights).float())
        minibatch = whole(algorithm, make_net(), batch)
        return loss_of(algorithm, Given(self.logits, self.values), minibatch, algorithm.start())


class Slow:
    """Algorithm S3, step by step in float64, with the gradient as the paper writes it.

    Beyond the paper: terms are means over the steps that count, half the squared error is the
    value loss, an action of an older policy weighs pi / mu (clipped), and a truncated step does
    not count while the one before it bootstraps from its observation.
    """

    def __init__(self, case: Case, algorithm: A3C) -> None:
        self.case, self.algorithm = case, algorithm
        self.d_logits, self.d_values = np.zeros((N, T + 1, A)), np.zeros((N, T + 1))
        self.rows: list[dict[str, float]] = []
        mask = case.played.mask * case.weights[:, None]
        self.total_weight = mask.sum()
        for b in range(N):
            for start in range(0, T, algorithm.n):
                self.fragment(b, start, min(start + algorithm.n, T))

    def fragment(self, b: int, start: int, end: int) -> None:
        """Go from t_start to the last state, then backwards."""
        played, values = self.case.played, self.case.values
        target = values[b, end]
        for i in range(end - 1, start - 1, -1):
            if played.truncated[b, i]:
                target = values[b, i]
                continue
            reward = float(played.rewards[b, i])
            reward = float(np.sign(reward)) if self.algorithm.reward_clip == "sign" else reward
            target = reward + (0.0 if played.terminated[b, i] else self.algorithm.gamma * target)
            if played.mask[b, i]:
                self.accumulate(b, i, float(target))

    def accumulate(self, b: int, i: int, target: float) -> None:
        case, algorithm = self.case, self.algorithm
        weight = case.weights[b] / self.total_weight
        policy = np.exp(case.logits[b, i]) / np.exp(case.logits[b, i]).sum()
        action, value = int(case.played.actions[b, i]), case.values[b, i]
        ratio = policy[action] / np.exp(case.played.log_probs[b, i])
        advantage = target - value
        if algorithm.ratio_clip:
            advantage *= min(ratio, algorithm.ratio_clip)
        entropy = -(policy * np.log(policy)).sum()
        d_log = np.eye(A)[action] - policy
        d_entropy = -policy * (np.log(policy) + entropy)
        self.d_logits[b, i] -= weight * (advantage * d_log + algorithm.entropy * d_entropy)
        self.d_values[b, i] -= weight * algorithm.value_coefficient * (target - value)
        self.rows.append({
            "weight": weight, "policy_loss": -np.log(policy[action]) * advantage,
            "value_loss": (target - value) ** 2 / 2, "entropy": entropy,
            "kl": ratio - 1 - np.log(ratio), "advantage": advantage, "value": value,
            "target": target,
        })  # fmt: skip

    def mean(self, name: str) -> float:
        return sum(row["weight"] * row[name] for row in self.rows)

    def terms(self) -> dict[str, float]:
        names = ("policy_loss", "value_loss", "entropy", "kl", "advantage", "value")
        errors = self.mean("target") - self.mean("value")
        spread = sum(r["weight"] * (r["target"] - self.mean("target")) ** 2 for r in self.rows)
        rest = sum(r["weight"] * (r["target"] - r["value"] - errors) ** 2 for r in self.rows)
        return {name: self.mean(name) for name in names} | {"explained_variance": 1 - rest / spread}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(4))
def test_loss_terms_and_gradient_are_the_papers(seed: int, way: str) -> None:
    algorithm, case = WAYS[way], Case(seed)
    assert case.played.terminated.any()
    assert case.played.truncated.any()
    total, terms, net = case.run(algorithm)
    slow = Slow(case, algorithm)
    want = slow.terms()
    assert numbers(terms) == pytest.approx(want, rel=1e-4, abs=1e-5)
    loss = want["policy_loss"] + algorithm.value_coefficient * want["value_loss"]
    loss -= algorithm.entropy * want["entropy"]
    assert total.item() == pytest.approx(loss, rel=1e-4, abs=1e-5)
    for found, by_hand in zip(net.gradients(), (slow.d_logits, slow.d_values), strict=True):
        np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-6)
        assert not found[:, T].any()  # the last observation only bootstraps, held fixed


@pytest.mark.parametrize("garbage", [1e30, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("ratio_clip", [0.0, 1.2])
def test_steps_that_do_not_count_move_nothing(garbage: float, ratio_clip: float) -> None:
    algorithm = replace(ALGORITHM, ratio_clip=ratio_clip)
    case, spoilt = Case(2), Case(2)
    lost = ~case.played.mask
    assert (lost & ~case.played.truncated).any()
    spoilt.played.log_probs[lost] = garbage
    spoilt.played.rewards[spoilt.played.truncated] = garbage
    spoilt.played.actions[lost] = 0
    found = case.run(algorithm)
    assert_same_bits(found, spoilt.run(algorithm))
    for gradient in found[2].gradients():
        assert not gradient[:, :T][torch.from_numpy(lost)].any()


def test_a_batch_in_which_nothing_counts_moves_nothing() -> None:
    case = Case(0)
    case.played.mask[:] = False
    total, _, net = case.run(ALGORITHM)
    assert total.item() == 0.0
    assert not net.gradients()[0].any()


def test_without_independent_draws_no_divergence_is_measured() -> None:
    case = Case(0)
    case.played.independent[:] = False
    _, terms, _ = case.run(ALGORITHM)
    assert terms["kl"].item() == -np.inf  # what the learner leaves out; 0 would count


class Constant(A3C):
    @property
    def ends(self) -> Ends:
        return {**super().ends, "learning_rate": (self.lr, None)}


class Narrowing(APPO):
    @property
    def ends(self) -> Ends:
        return {"narrow": (0.25, 0.75), "learning_rate": (0.5, 0.25)}


FALL: dict[str, Any] = {"lr": 4e-3, "lr_end": 1e-3, "anneal_steps": 1000}
RATE = (4e-3, 1e-3, 1000)
OWN_STEPS: dict[str, Any] = {"gamma_steps": 500, "munchausen_steps": 2000}
LINES: list[tuple[Any, dict[str, tuple[float, float, int]]]] = [
    (
        A3C(**FALL, entropy=0.02, entropy_end=0.005),
        {"learning_rate": RATE, "entropy": (0.02, 0.005, 1000)},
    ),
    (DQN(**FALL), {"learning_rate": RATE}),
    (
        DQN(returns="q_lambda", gamma=0.9, gamma_end=0.8, munchausen_end=0.9, **FALL, **OWN_STEPS),
        {"learning_rate": RATE, "gamma": (0.9, 0.8, 500), "munchausen": (0.0, 0.9, 2000)},
    ),
    (
        APPO(entropy=0.02, entropy_end=0.01, kl=0.05, kl_end=0.01, anneal_steps=1000),
        {"entropy": (0.02, 0.01, 1000), "kl_target": (0.05, 0.01, 1000)},
    ),
    (
        Narrowing(anneal_steps=1000),  # lines of a class that inherits win
        {"narrow": (0.25, 0.75, 1000), "learning_rate": (0.5, 0.25, 1000)},
    ),
    (Constant(lr=0.25), {"learning_rate": (0.25, 0.25, 1)}),
]
"""Algorithm, and for numbers of its state the start, the end and the steps until it."""


@pytest.mark.parametrize("steps", [0, 250, 1000, 5000])
@pytest.mark.parametrize(("algorithm", "lines"), LINES)
def test_numbers_move_in_a_straight_line(algorithm: Any, lines: Any, steps: int) -> None:
    before, algorithm_state = algorithm.start(), algorithm.start()
    algorithm.after(algorithm_state, {"kl": 9.0}, steps)
    for name, (first, last, over) in lines.items():
        assert float(before[name]) == pytest.approx(first)
        now = first + (last - first) * min(steps / over, 1.0)
        assert float(algorithm_state[name]) == pytest.approx(now)


@pytest.mark.parametrize(
    ("steps", "rate", "entropy"),
    [(199, 1e-3, 0.01), (200, 5e-4, 0.01), (300, 5e-4, 0.0), (1499, 5e-4, 0.0), (1500, 1e-4, 0.0)],
)
def test_numbers_jump_at_their_steps(steps: int, rate: float, entropy: float) -> None:
    algorithm = A3C(lr_jumps="200:0.0005,1.5k:0.0001", entropy_jumps="300:0")
    algorithm_state = algorithm.start()
    algorithm.after(algorithm_state, {}, steps)
    found = [float(algorithm_state[name]) for name in ("learning_rate", "entropy")]
    assert found == pytest.approx([rate, entropy])


@pytest.mark.parametrize("algorithm", [A3C(), APPO()])
def test_acting_gives_the_logits_and_passes_the_state_through(algorithm: Any) -> None:
    net = make_net()
    stacks = torch.randn(20, 3, 10, 5, generator=torch.Generator().manual_seed(6))
    for state in (torch.zeros(20, 2), None):
        scores, after = algorithm.act(net, stacks, state)
        assert torch.equal(scores, net(stacks)["policy"])
        assert after is state
    shapes = {name: head(torch.zeros(1, 5)).shape for name, head in algorithm.heads(6, 5).items()}
    assert shapes == {"policy": (1, 6), "value": (1, 1)}


@pytest.mark.parametrize("jumps", [{"lr_jumps": "9:0.1"}, {"entropy_jumps": "9:0.1"}])
def test_jumps_are_at_steps_that_no_share_stretches(jumps: dict[str, Any]) -> None:
    A3C(**jumps).check(64)
    with pytest.raises(ColobusError, match=r"-jumps 9:0\.1 with --anneal-share 0\.5: jumps are"):
        A3C(anneal_share=0.5, **jumps).check(64)
