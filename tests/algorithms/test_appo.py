"""APPO's loss, its gradient and its targets against the papers' formulas in numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.api import COEFFICIENT_LIMITS, followed, linear
from colobus.algorithms.appo import APPO, Steps
from colobus.algorithms.batches import Minibatch
from colobus.nets.network import NetworkSettings
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory
from helpers.gradients import Array, as_float32, differences, log_softmax, stacks_of
from helpers.outputs import Given, assert_same_bits, loss_of, numbers
from helpers.returns import estimated

M, A = 40, 4
WEIGHTS: dict[str, Any] = {"value_coefficient": 0.7, "entropy": 0.03}
ALGORITHM = APPO(clip=0.2, **WEIGHTS)
TARGETING: dict[str, Any] = {"advantage": "vtrace", "target_every": 1, "kl_adjust": 1.0}
TARGET_POLICY = APPO(ratio_cap=2.0, clip=0.3, kl_coeff=0.4, **TARGETING, **WEIGHTS)


class Case:
    """Random samples in float64: mu has acted, pi_old is a target policy, pi has the logits."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.logits, self.values = rng.normal(size=(M, A)), rng.normal(size=M)
        self.log_old = log_softmax(self.logits + rng.normal(scale=0.5, size=(M, A)))
        self.actions = rng.integers(A, size=M)
        own = self.log_old[np.arange(M), self.actions]
        self.log_mu = np.minimum(own + rng.normal(scale=0.8, size=M), -0.01)
        self.advantages, self.targets = rng.normal(size=M), rng.normal(size=M)
        self.weights = np.where(np.arange(M) % 5 == 2, 0.0, rng.uniform(0.5, 1.5, M))
        self.fresh = np.arange(M) % 3 > 0  # the others are of old windows

    def run(self, algorithm: APPO) -> Any:
        """Return the loss, its terms and the network with gradients."""
        net = Given(self.logits, self.values)
        old = self.log_old if algorithm.target_every else np.zeros((M, 0))
        floats = (self.log_mu, self.advantages, self.targets, self.weights, self.fresh, old)
        steps = Steps(torch.from_numpy(self.actions), *map(as_float32, floats))
        minibatch = Minibatch(torch.zeros(M, 1, 1, 1), steps)
        return loss_of(algorithm, net, minibatch, algorithm.start())


def slow(case: Case, logits: Array, values: Array, algorithm: APPO) -> dict[str, float]:
    """Schulman et al. 2017, equations 7 and 9, sample by sample in float64.

    With a target policy the ratio is ``pi / max(pi_old, mu / cap)`` (Luo et al. 2020).
    """

    def mean(x: Array, weights: Array = case.weights) -> float:
        return float((x * weights).sum() / weights.sum())

    advantages = case.advantages
    if algorithm.normalise:
        centred = advantages - mean(advantages)
        advantages = centred / mean(centred**2) ** 0.5
    surrogate, entropy, kl, moved, ratios, clipped = np.zeros((6, M))
    for i in range(M):
        policy, old = np.exp(logits[i]) / np.exp(logits[i]).sum(), np.exp(case.log_old[i])
        action, mu, a = case.actions[i], np.exp(case.log_mu[i]), advantages[i]
        capped = max(old[action], mu / algorithm.ratio_cap)
        ratios[i] = policy[action] / (capped if algorithm.target_every else mu)
        limited = min(max(ratios[i], 1 - algorithm.clip), 1 + algorithm.clip)
        clipped[i] = limited != ratios[i]
        surrogate[i] = min(ratios[i] * a, limited * a)
        entropy[i] = -sum(p * np.log(p) for p in policy)
        kl[i] = sum(o * np.log(o / p) for o, p in zip(old, policy, strict=True))
        moved[i] = policy[action] / mu - 1 - np.log(policy[action] / mu)
    measured = case.weights * case.fresh
    seen, errors = np.sort(moved[measured > 0]), case.targets - values
    spread = mean((case.targets - mean(case.targets)) ** 2)
    terms = {
        "policy_loss": -mean(surrogate),
        "value_loss": mean(errors**2) / 2,
        "entropy": mean(entropy),
        "kl": mean(moved, measured),
        "kl_median": float(seen[(len(seen) - 1) // 2]),  # the lower one in the middle
        "kl_max": float(seen[-1]),
        "ratio_mean": mean(ratios),
        "ratio_variance": mean((ratios - mean(ratios)) ** 2),
        "clipped": mean(clipped),
        "explained_variance": 1 - mean((errors - mean(errors)) ** 2) / spread,
    }
    terms["total"] = terms["policy_loss"] + algorithm.value_coefficient * terms["value_loss"]
    terms["total"] -= algorithm.entropy * terms["entropy"]
    if algorithm.kl_coeff:
        terms["total"] += algorithm.kl_coeff * mean(kl)  # what is minimised: of all windows
        terms["kl_term"] = mean(kl, measured)  # what steers: of fresh windows
        terms["kl_coefficient"] = algorithm.kl_coeff
    return terms


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [ALGORITHM, TARGET_POLICY], ids=["plain", "target policy"])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_its_terms_and_its_gradient_are_the_formulas(
    seed: int, normalise: bool, algorithm: APPO
) -> None:
    algorithm, case = replace(algorithm, normalise=normalise), Case(seed)
    total, terms, net = case.run(algorithm)
    want = slow(case, case.logits, case.values, algorithm)
    assert total.item() == pytest.approx(want.pop("total"), rel=1e-4, abs=1e-5)
    assert numbers(terms) == pytest.approx(want, rel=1e-4, abs=1e-5)
    logits, values = net.gradients()
    slope = differences(lambda x: slow(case, x, case.values, algorithm)["total"], case.logits)
    np.testing.assert_allclose(logits, slope, rtol=1e-3, atol=1e-6)
    slope = differences(lambda x: slow(case, case.logits, x, algorithm)["total"], case.values)
    np.testing.assert_allclose(values, slope, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("garbage", [1e4, -1e4, np.inf, -np.inf, np.nan])
def test_samples_of_weight_0_move_nothing_whatever_they_hold(garbage: float) -> None:
    case, spoilt = Case(1), Case(1)
    lost = case.weights == 0.0
    assert lost.sum() == 8
    for array in (spoilt.log_mu, spoilt.advantages, spoilt.targets):
        array[lost] = garbage
    spoilt.actions[lost] = 0
    found = case.run(ALGORITHM)
    assert_same_bits(found, spoilt.run(ALGORITHM))
    for gradient in found[2].gradients():
        assert not gradient[torch.from_numpy(lost)].any()
        assert gradient[torch.from_numpy(~lost)].any()


@pytest.mark.parametrize("kind", ["gae", "vtrace"])
def test_prepared_samples_hold_each_steps_own_fields(kind: Any) -> None:
    algorithm = APPO(advantage=kind, minibatch=5, lam=0.9, reward_clip="none")
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=3))
    rng = np.random.default_rng(3)
    sent = [random_trajectory(rng, actor, games=2, length=6) for actor in range(2)]
    batch = as_batch(sent)._replace(weights=torch.tensor([1.0, 2.0, 0.5, 1.0]))
    prepared = algorithm.prepare(net, batch, algorithm.start())
    assert prepared.size == 24
    assert (~batch.mask & ~batch.truncated).any()  # FIRE after a lost life: both policies play it
    stacks = net.preprocess(stacks_of(batch, 3))
    with torch.no_grad():
        found = net(stacks.flatten(0, 1))
    outputs = {"policy": found["policy"].view(4, 7, 3), "value": found["value"].view(4, 7)}
    want = estimated(kind, batch, batch.rewards, outputs, 0.99, 0.9)
    for i in rng.permutation(24):
        n, t = divmod(int(i), 6)
        one = prepared.select(torch.tensor([i]))
        assert torch.equal(one.observations[0], stacks[n, t])
        step = one.steps
        assert step.actions.item() == batch.actions[n, t]
        assert step.log_probs.item() == batch.log_probs[n, t]
        assert step.weights.item() == batch.mask[n, t] * batch.weights[n]
        assert step.targets.item() == pytest.approx(want.targets[n, t].item(), abs=1e-4)
        assert step.advantages.item() == pytest.approx(want.advantages[n, t].item(), abs=1e-4)


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_a_huge_ratio_gives_a_finite_loss_and_gradient(advantage: float) -> None:
    """The behaviour policy gave e^-100 to what the policy does now: the ratio is e^100."""
    algorithm, net = APPO(normalise=False), make_net()
    behaviour, ones = torch.tensor([-100.0, -100.0, -1.0, -1.0]), torch.ones(4)
    actions = torch.zeros(4, dtype=torch.int64)
    steps = Steps(actions, behaviour, advantage * ones, 0.0 * ones, ones, ones, torch.zeros(4, 0))
    minibatch = Minibatch(torch.zeros(4, 3, 10, 5), steps)
    total, terms, _ = loss_of(algorithm, net, minibatch, algorithm.start())
    assert total.isfinite()
    assert all(value.isfinite() for value in terms.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(
    ("kl", "times", "rate"),
    [
        (0.01, 1, 1.1e-3),
        (0.045, 1, 1e-3 / 1.1),
        *((kl, 1, 1e-3) for kl in (0.019, 0.021, 0.027)),
        (0.0, 40, 2e-3),  # the limits
        (10.0, 40, 5e-4),
    ],
)
def test_the_learning_rate_follows_the_kl_divergence(kl: float, times: int, rate: float) -> None:
    how: dict[str, Any] = {"kl": 0.024, "kl_slack": 1.3, "kl_adjust": 1.1}
    algorithm = APPO(lr=1e-3, lr_min=5e-4, lr_max=2e-3, **how)
    algorithm_state = algorithm.start()
    for _ in range(times):
        algorithm.after(algorithm_state, {"kl": kl}, steps=0)
    assert float(algorithm_state["learning_rate"]) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("stages", "values"),
    [
        (0, [8.0, 7.0, 6.0, 4.0, 0.02, 0.0, 0.0]),
        (1, [8.0, 8.0, 8.0, 8.0, 8.0, 0.0, 0.0]),
        (2, [8.0, 8.0, 8.0, 4.0, 4.0, 0.0, 0.0]),
        (4, [8.0, 8.0, 6.0, 4.0, 2.0, 0.0, 0.0]),
    ],
)
def test_a_staircase_is_the_line_where_a_stage_begins(stages: int, values: list[float]) -> None:
    steps = [0, 50, 100, 200, 399, 400, 9999]
    found = [linear(8.0, 0.0, step, 400, stages) for step in steps]
    assert found == pytest.approx(values)


def test_without_steps_a_staircase_is_at_its_end_as_a_line_is() -> None:
    for stages in (0, 1, 5):
        assert linear(3.0, 1.0, 1, 0, stages) == 1.0
    assert linear(3.0, 1.0, 0, 0) == linear(3.0, 1.0, 0, 0, 3) == 3.0


LOW, HIGH = COEFFICIENT_LIMITS


@pytest.mark.parametrize(
    ("weight", "kl", "after"),
    [
        (1.0, 0.0201, 1.5),
        (1.0, 0.02, 1.0),  # twice the target is not above it
        (1.0, 0.01, 1.0),
        (1.0, 0.005, 1.0),
        (1.0, 0.0049, 0.5),
        (1.0, 0.0, 0.5),
        (8.0, 5.0, 12.0),
        (LOW, 0.0, LOW),
        (LOW, 1.0, 1.5 * LOW),
        (HIGH, 1.0, HIGH),
    ],
)
def test_the_weight_of_a_kl_term_as_a_table(weight: float, kl: float, after: float) -> None:
    """With a target of 0.01."""
    assert followed(weight, kl, 0.01) == pytest.approx(after)
