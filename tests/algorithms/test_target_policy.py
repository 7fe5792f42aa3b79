"""APPO's target policy, its KL term and IMPALA's loss, by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from colobus.algorithms.api import TARGET
from colobus.algorithms.appo import APPO, Steps
from colobus.algorithms.batches import Minibatch
from colobus.core.errors import ColobusError
from colobus.core.types import AlgorithmState, Batch
from colobus.experiment.settings import Experiment
from colobus.nets.network import Network, NetworkSettings
from colobus.ops import losses, returns
from colobus.roles.replay.queue import as_batch
from conftest import catch, make_net, random_trajectory, stand_in, tuned
from helpers.gradients import stacks_of
from helpers.outcomes import inline
from helpers.outputs import loss_of, whole

PLAIN = APPO(advantage="vtrace", minibatch=7, sequence=5, kl_adjust=1.0)
TARGET_POLICY = replace(PLAIN, target_every=1)
SETTINGS = NetworkSettings(torso="tiny", width=8, stack=3)


def some_net(seed: int, recurrent: Literal["none", "lstm"] = "none") -> Network:
    """Return a network whose policy is far from uniform; the input statistics are always equal."""
    net = make_net(replace(SETTINGS, recurrent=recurrent))
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random), alpha=0.3)
    return net


def log_probs_of(net: Network, batch: Batch) -> torch.Tensor:
    """Return log pi(a|x) of the batch's actions float32[N, T]."""
    steps = whole(TARGET_POLICY, net, batch).steps
    return losses.chosen(steps.old, steps.actions).view_as(batch.log_probs)


def some_batch(net: Network) -> Batch:
    """Return a batch of noise that this network has acted in, with a step that does not count."""
    sent = [random_trajectory(np.random.default_rng(5), actor) for actor in range(2)]
    batch = as_batch(sent)
    if net.recurrent is not None:
        batch = batch._replace(state=net.recurrent.initial_state(4) + 0.1)
    return batch._replace(log_probs=log_probs_of(net, batch))


def with_target(algorithm: APPO, net: Network) -> AlgorithmState:
    """Return the algorithm's state with this network as its target policy."""
    target = {TARGET + name: p.detach().clone() for name, p in net.named_parameters()}
    return algorithm.start() | target


def found_in(algorithm: APPO, net: Network, minibatch: Any, state: AlgorithmState) -> Any:
    net.zero_grad()
    total, terms, _ = loss_of(algorithm, net, minibatch, state)
    gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    assert len(gradients) == len(list(net.parameters()))
    return total, terms, gradients


def learned(algorithm: APPO, net: Network, batch: Batch, state: AlgorithmState) -> Any:
    """Return samples, and what the loss of a whole batch finds."""
    minibatch = whole(algorithm, net, batch, state)
    return minibatch.steps, found_in(algorithm, net, minibatch, state)


def assert_same(one: Any, two: Any) -> None:
    assert torch.equal(one[0], two[0])
    assert one[1].keys() == two[1].keys()
    for name in one[1]:
        assert torch.equal(one[1][name], two[1][name]), name
    assert all(torch.equal(a, b) for a, b in zip(one[2], two[2], strict=True))
    assert any(gradient.any() for gradient in one[2])


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_if_the_target_policy_has_acted_all_is_plain_appo_bit_for_bit(recurrent: Any) -> None:
    net = some_net(1, recurrent)
    batch = some_batch(net)
    one = learned(PLAIN, net, batch, PLAIN.start())
    two = learned(TARGET_POLICY, net, batch, with_target(TARGET_POLICY, net))
    assert one[0].old.shape == (20, 0)
    assert two[0].old.shape == (20, 3)
    for name in set(Steps._fields) - {"old"}:
        assert torch.equal(getattr(one[0], name), getattr(two[0], name)), name
    assert_same(one[1], two[1])


def test_also_after_the_policy_has_moved_on_the_loss_is_plain_ppos_bit_for_bit() -> None:
    acted, now = some_net(1), some_net(2)
    algorithm_state = with_target(TARGET_POLICY, acted)
    minibatch = whole(TARGET_POLICY, now, some_batch(acted), algorithm_state)
    one, two = (found_in(each, now, minibatch, algorithm_state) for each in (PLAIN, TARGET_POLICY))
    assert_same(one, two)
    assert two[1]["kl"] > 0.01  # it has moved


def test_vtraces_target_policy_is_the_old_one_and_the_values_are_todays() -> None:
    acted, old, now = some_net(1), some_net(2), some_net(3)
    batch = some_batch(acted)
    algorithm = replace(TARGET_POLICY, rho_bar=1.5, c_bar=1.2, pg_rho_bar=3.0, lam=0.9)
    steps = learned(algorithm, now, batch, with_target(algorithm, old))[0]
    plain = learned(replace(algorithm, target_every=0), now, batch, algorithm.start())[0]
    ratios = log_probs_of(old, batch) - batch.log_probs
    rewards = batch.rewards.sign()
    values = now(now.preprocess(stacks_of(batch, 3)).flatten(0, 1))["value"].detach().view(4, 6)
    ends = (batch.terminated, batch.truncated)
    want = returns.vtrace(rewards, values, *ends, ratios, 0.99, 0.9, 1.5, 1.2, 3.0)
    torch.testing.assert_close(steps.advantages.view_as(rewards), want.advantages)
    torch.testing.assert_close(steps.targets.view_as(rewards), want.targets)
    assert not torch.allclose(steps.advantages, plain.advantages)


def test_a_recurrent_target_policy_is_evaluated_with_its_own_memory() -> None:
    acted, old, now = (some_net(seed, "lstm") for seed in (1, 2, 3))
    batch = some_batch(acted)
    steps = learned(TARGET_POLICY, now, batch, with_target(TARGET_POLICY, old))[0]
    found = losses.chosen(steps.old, steps.actions).view_as(batch.log_probs)
    assert torch.equal(found, log_probs_of(old, batch))
    assert not torch.allclose(found, log_probs_of(now, batch))


def test_the_policy_gradient_of_impala_and_its_gradient() -> None:
    """-mean log pi(a|x) A, where A has V-trace's ratio; no ratio and no clip in the loss."""
    algorithm = replace(
        PLAIN, policy_loss="gradient", normalise=False, value_coefficient=0.0, entropy=0.0
    )
    net, batch = some_net(1), some_batch(some_net(2))
    steps, (total, terms, _) = learned(algorithm, net, batch, algorithm.start())
    log_pi = log_probs_of(net, batch).flatten().double().numpy()
    weights, advantages = steps.weights.numpy(), steps.advantages.double().numpy()
    want = -sum(w * p * a for w, p, a in zip(weights, log_pi, advantages, strict=True))
    assert total.item() == pytest.approx(want / weights.sum(), rel=1e-4)
    assert "clipped" not in terms
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    given = stand_in(lambda stacks: {"policy": logits, "value": torch.zeros(20, 1)})
    minibatch = Minibatch(torch.zeros(20, 1, 1, 1), steps)
    loss_of(algorithm, given, minibatch, algorithm.start())
    policy = logits.detach().softmax(1)
    one_hot = torch.nn.functional.one_hot(steps.actions, 3).float()
    want_slope = -(one_hot - policy) * (steps.advantages * steps.weights).unsqueeze(1)
    torch.testing.assert_close(logits.grad, want_slope / steps.weights.sum())


@pytest.mark.parametrize("target_every", [0, 3])
def test_the_kl_term_is_added_with_the_weight_of_the_state(target_every: int) -> None:
    algorithm = replace(PLAIN, target_every=target_every, kl_coeff=0.3)
    acted, old, now = some_net(1), some_net(2), some_net(3)
    batch = some_batch(acted)
    batch = batch._replace(independent=torch.tensor([True, False, True, True]))
    algorithm_state = with_target(algorithm, old)
    assert float(algorithm_state["kl_coefficient"]) == pytest.approx(0.3)
    algorithm_state["kl_coefficient"].fill_(0.7)
    steps, (total, terms, _) = learned(algorithm, now, batch, algorithm_state)
    plain = replace(algorithm, kl_coeff=0.0)
    _, (without, others, _) = learned(plain, now, batch, algorithm_state)
    measured = steps.weights * batch.independent_steps()
    if target_every:  # the exact KL(pi_old, pi) of every step in the loss mask
        todays = learned(TARGET_POLICY, now, batch, with_target(TARGET_POLICY, now))[0].old
        each, weights = losses.exact_kl(steps.old, todays), steps.weights
    else:  # the estimate of KL(mu, pi), of independent draws only
        ratios = (log_probs_of(now, batch) - batch.log_probs).flatten()
        each, weights = ratios.exp() - 1 - ratios, measured
    want = (each * weights).sum() / weights.sum()
    steering = (each * measured).sum() / measured.sum()
    assert total.item() == pytest.approx((without + 0.7 * want).item(), rel=1e-4)
    assert terms["kl_term"].item() == pytest.approx(steering.item(), rel=1e-4)
    assert terms["kl_term"].item() > 0.01
    assert terms["kl_coefficient"].item() == pytest.approx(0.7)
    assert terms.keys() - others.keys() == {"kl_term", "kl_coefficient"}


@pytest.mark.parametrize(("stages", "rates"), [(0, [1e-3, 7.5e-4, 0.0]), (1, [1e-3, 1e-3, 0.0])])
def test_without_adapting_the_rate_stays_or_anneals(stages: int, rates: list[float]) -> None:
    still = APPO(lr=1e-3, kl_adjust=1.0, anneal_steps=400)
    moving = replace(still, lr_end=0.0, anneal_stages=stages)
    found = []
    for steps in (0, 100, 400):
        algorithm_state = moving.start()
        moving.after(algorithm_state, {"kl": 9.0}, steps)
        found.append(float(algorithm_state["learning_rate"]))
        algorithm_state = still.start()
        still.after(algorithm_state, {"kl": 9.0}, steps)
        assert float(algorithm_state["learning_rate"]) == 1e-3
    assert found == pytest.approx(rates)


def test_a_target_policy_without_a_clip_is_refused() -> None:
    wrong = APPO(target_every=2, advantage="vtrace", policy_loss="gradient", kl_adjust=1.0)
    said = "^--target-every 2 with --policy-loss gradient: .*; use "
    with pytest.raises(ColobusError, match=said):
        wrong.check(2048)
    replace(wrong, policy_loss="clip").check(2048)


def at_lag_0(steps: int, target_every: int) -> Experiment:
    base = catch(steps, deterministic=True)
    algorithm = tuned(base, advantage="vtrace", target_every=target_every)
    return replace(base, algorithm=algorithm, shape=replace(base.shape, ahead=0))


def test_a_target_that_is_copied_at_every_version_is_vtrace_ppo_at_lag_0() -> None:
    """Actors have then played with the target policy itself, up to the rounding of a batch."""
    plain, target = (inline(at_lag_0(512 + 5 * 512, every)) for every in (0, 1))
    moved = (plain.parameters - inline(at_lag_0(512, 0)).parameters).abs().max()
    near = 0.02 * moved.item()
    torch.testing.assert_close(target.parameters, plain.parameters, rtol=0, atol=near)
    older = inline(at_lag_0(512 + 5 * 512, 4))  # a target that lags behind is something else
    assert (older.parameters - plain.parameters).abs().max() > 0.1 * moved
