"""APPO's loss, its gradient and its targets against the papers' formulas in numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.api import COEFFICIENT_LIMITS, followed, linear, staircase
from colobus.algorithms.appo import APPO, Steps
from colobus.algorithms.batches import Minibatch
from colobus.nets.network import NetworkSettings
from colobus.ops import returns
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory, stand_in
from helpers.gradients import Array, as_float32, differences
from helpers.outputs import Given, assert_same_bits
from helpers.stacking import stack_at

M, A = 13, 4
ALGORITHM = APPO(clip=0.2, value_coefficient=0.7, entropy=0.03)


class Case:
    """Random samples in float64 and the same as a minibatch."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.logits, self.values = rng.normal(size=(M, A)), rng.normal(size=M)
        self.actions = rng.integers(A, size=M)
        log_policy = self.logits - np.log(np.exp(self.logits).sum(axis=1, keepdims=True))
        self.log_probs = log_policy[np.arange(M), self.actions] + rng.normal(scale=0.3, size=M)
        self.advantages, self.targets = rng.normal(size=M), rng.normal(size=M)
        self.weights = np.where(np.arange(M) % 4 == 1, 0.0, rng.uniform(0.5, 1.5, M))

    def minibatch(self) -> Minibatch[Steps]:
        floats = (self.log_probs, self.advantages, self.targets, self.weights)
        more = (np.ones(M), np.zeros((M, 0)))  # independent draws, and no target policy
        steps = Steps(torch.from_numpy(self.actions), *map(as_float32, (*floats, *more)))
        return Minibatch(torch.zeros(M, 1, 1, 1), steps)

    def run(self, algorithm: APPO) -> tuple[torch.Tensor, dict[str, torch.Tensor], Given]:
        """Return the loss, its terms and the network with gradients."""
        net = Given(self.logits, self.values)
        total, terms = algorithm.loss(stand_in(net), self.minibatch(), algorithm.start())
        torch.autograd.backward(total)
        return total.detach(), terms, net


def slow_terms(case: Case, logits: Array, values: Array, algorithm: APPO) -> dict[str, float]:
    """Schulman et al. 2017, equations 7 and 9, sample by sample in float64."""

    def mean(x: Array) -> float:
        return float((x * case.weights).sum() / case.weights.sum())

    advantages = case.advantages
    if algorithm.normalise:
        centred = advantages - mean(advantages)
        advantages = centred / mean(centred**2) ** 0.5
    surrogate, entropy, kl, clipped, ratios = np.zeros((5, M))
    for i in range(M):
        policy = np.exp(logits[i]) / np.exp(logits[i]).sum()
        ratio = policy[case.actions[i]] / np.exp(case.log_probs[i])
        low, high = 1 - algorithm.clip, 1 + algorithm.clip
        a = advantages[i]
        ratios[i] = ratio
        surrogate[i] = min(ratio * a, min(max(ratio, low), high) * a)
        entropy[i] = -(policy * np.log(policy)).sum()
        kl[i] = ratio - 1 - np.log(ratio)
        clipped[i] = not low <= ratio <= high
    errors = case.targets - values
    spread = mean((case.targets - mean(case.targets)) ** 2)
    return {
        "policy_loss": -mean(surrogate),
        "value_loss": mean((values - case.targets) ** 2) / 2,
        "entropy": mean(entropy),
        "kl": mean(kl),
        "kl_median": float(np.sort(kl[case.weights > 0])[4]),  # of ten, the lower one in the middle
        "kl_max": float(kl[case.weights > 0].max()),
        "ratio_mean": mean(ratios),
        "ratio_variance": mean((ratios - mean(ratios)) ** 2),
        "clipped": mean(clipped),
        "explained_variance": 1 - mean((errors - mean(errors)) ** 2) / spread,
    }


def slow_total(case: Case, logits: Array, values: Array, algorithm: APPO) -> float:
    terms = slow_terms(case, logits, values, algorithm)
    return (
        terms["policy_loss"]
        + algorithm.value_coefficient * terms["value_loss"]
        - algorithm.entropy * terms["entropy"]
    )


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_and_its_terms_are_the_papers(seed: int, normalise: bool) -> None:
    algorithm, case = replace(ALGORITHM, normalise=normalise), Case(seed)
    total, terms, _ = case.run(algorithm)
    want = slow_terms(case, case.logits, case.values, algorithm)
    assert terms.keys() == want.keys()
    for name, value in want.items():
        assert terms[name].item() == pytest.approx(value, rel=1e-4, abs=1e-5), name
    slow = slow_total(case, case.logits, case.values, algorithm)
    assert total.item() == pytest.approx(slow, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_formula(seed: int, normalise: bool) -> None:
    algorithm, case = replace(ALGORITHM, normalise=normalise), Case(seed)
    logits, values = case.run(algorithm)[2].gradients()
    want = differences(lambda x: slow_total(case, x, case.values, algorithm), case.logits)
    np.testing.assert_allclose(logits, want, rtol=1e-3, atol=1e-6)
    want = differences(lambda x: slow_total(case, case.logits, x, algorithm), case.values)
    np.testing.assert_allclose(values, want, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("garbage", [1e4, -1e4, np.inf, -np.inf, np.nan])
def test_samples_of_weight_0_move_nothing_whatever_they_hold(garbage: float) -> None:
    case, spoilt = Case(1), Case(1)
    lost = case.weights == 0.0
    assert lost.sum() == 3
    for array in (spoilt.log_probs, spoilt.advantages, spoilt.targets):
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
    stacks = torch.stack([
        net.preprocess(torch.from_numpy(
            np.concatenate([stack_at(s.frames, s.ages, t, 3) for s in sent])
        ))
        for t in range(7)
    ], dim=1)  # fmt: skip
    with torch.no_grad():
        outputs = net(stacks.flatten(0, 1))
    values = outputs["value"].view(4, 7)
    ends = (batch.terminated, batch.truncated)
    if kind == "gae":
        want = returns.gae(batch.rewards, values, *ends, 0.99, 0.9)
    else:
        log_policy = outputs["policy"].log_softmax(1).view(4, 7, 3)[:, :-1]
        now = log_policy.gather(2, batch.actions.unsqueeze(2)).squeeze(2)
        ratios = (now - batch.log_probs) * batch.mask  # both policies play what is forced
        want = returns.vtrace(batch.rewards, values, *ends, ratios, 0.99, 0.9)
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


def test_rewards_are_learned_from_by_their_sign() -> None:
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=3))
    batch = as_batch([random_trajectory(np.random.default_rng(4), length=6)])
    signs = batch._replace(rewards=batch.rewards.sign())
    index = torch.arange(12)

    def targets(kind: Any, given: Any) -> torch.Tensor:
        algorithm = APPO(reward_clip=kind)
        return algorithm.prepare(net, given, algorithm.start()).select(index).steps.targets

    assert torch.equal(targets("sign", batch), targets("none", signs))
    assert not torch.allclose(targets("none", batch), targets("none", signs))


def first_actions(log_probs: torch.Tensor, advantages: torch.Tensor) -> Steps:
    """Return steps that took action 0, all alike but for these numbers."""
    count = len(log_probs)
    ones, none = torch.ones(count), torch.zeros(count, 0)
    actions = torch.zeros(count, dtype=torch.int64)
    return Steps(actions, log_probs, advantages, torch.zeros(count), ones, ones, none)


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_a_huge_ratio_gives_a_finite_loss_and_gradient(advantage: float) -> None:
    """The behaviour policy gave e^-100 to what the policy does now: the ratio is e^100."""
    algorithm, net = APPO(normalise=False), make_net()
    behaviour = torch.tensor([-100.0, -100.0, -1.0, -1.0])
    steps = first_actions(behaviour, torch.full((4,), advantage))
    minibatch = Minibatch(torch.zeros(4, 3, 10, 5), steps)
    total, terms = algorithm.loss(net, minibatch, algorithm.start())
    torch.autograd.backward(total)
    assert total.isfinite()
    assert all(value.isfinite() for value in terms.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_the_kl_divergence_leaves_out_actions_that_were_no_independent_draws() -> None:
    algorithm, net = APPO(), make_net()
    log_probs = torch.full((6,), 1 / 3).log()
    advantages = torch.randn(6, generator=torch.Generator().manual_seed(1))
    steps = first_actions(log_probs, advantages)
    held = steps._replace(
        log_probs=torch.where(torch.arange(6) < 3, 0.0, log_probs),
        independent=(torch.arange(6) >= 3).float(),
    )
    observations = torch.zeros(6, 3, 10, 5)
    kl = [
        algorithm.loss(net, Minibatch(observations, given), algorithm.start())[1]["kl"].item()
        for given in (steps, held, held._replace(independent=torch.ones(6)))
    ]
    assert kl[1] == pytest.approx(kl[0], abs=1e-6)
    assert kl[2] > kl[0] + 0.1


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.01, 1.1), (0.045, 1 / 1.1), (0.021, 1.0), (0.027, 1.0), (0.019, 1.0)]
)
def test_the_learning_rate_follows_the_kl_divergence(kl: float, factor: float) -> None:
    algorithm = APPO(kl=0.024, kl_slack=1.3, kl_adjust=1.1, lr=1e-3)
    algorithm_state = algorithm.start()
    algorithm.after(algorithm_state, {"kl": kl}, steps=0)
    assert float(algorithm_state["learning_rate"]) == pytest.approx(1e-3 * factor)


def test_the_learning_rate_stays_within_its_limits() -> None:
    algorithm = APPO(lr=1e-3, lr_min=5e-4, lr_max=2e-3)
    algorithm_state = algorithm.start()
    for kl, limit in [(0.0, 2e-3), (10.0, 5e-4)]:
        for _ in range(40):
            algorithm.after(algorithm_state, {"kl": kl}, steps=0)
        assert float(algorithm_state["learning_rate"]) == limit


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
    found = [staircase(8.0, 0.0, step, 400, stages) for step in steps]
    assert found == pytest.approx(values)


def test_without_steps_a_staircase_is_at_its_end_as_a_line_is() -> None:
    for stages in (0, 1, 5):
        assert staircase(3.0, 1.0, 1, 0, stages) == 1.0
    assert linear(3.0, 1.0, 0, 0) == staircase(3.0, 1.0, 0, 0, 3) == 3.0


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
