"""Every optimizer against its paper's algorithm in numpy, and cut into slices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from colobus.nets.network import NetworkSettings
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import Optimizer, OptimizerSettings
from conftest import make_net
from helpers.gradients import Array

STEPS, SIZE = 50, 192
SETTINGS = {
    "adam": OptimizerSettings(beta1=0.8, beta2=0.99, epsilon=1e-3),
    "radam": OptimizerSettings(optimizer="radam", beta1=0.8, beta2=0.99, epsilon=1e-3),
    "rmsprop": OptimizerSettings(optimizer="rmsprop", decay=0.9, momentum=0.0, epsilon=0.1),
    "rmsprop momentum": OptimizerSettings(optimizer="rmsprop", decay=0.9, momentum=0.7),
    "adagrad": OptimizerSettings(optimizer="adagrad", epsilon=0.03),
    "adadelta": OptimizerSettings(optimizer="adadelta", decay=0.9, epsilon=1e-3),
    "sgd": OptimizerSettings(optimizer="sgd"),
    "sgd momentum": OptimizerSettings(optimizer="sgd", momentum=0.9),
    "adam with a mean": OptimizerSettings(average=0.9),
}


def slow_adam(theta: Array, gradients: Array, rates: Array, s: OptimizerSettings) -> Array:
    """Kingma & Ba 2015, algorithm 1."""
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = s.beta1 * m + (1 - s.beta1) * g
        v = s.beta2 * v + (1 - s.beta2) * g**2
        m_hat, v_hat = m / (1 - s.beta1**t), v / (1 - s.beta2**t)
        theta = theta - rate * m_hat / (np.sqrt(v_hat) + s.epsilon)
    return theta


def slow_radam(theta: Array, gradients: Array, rates: Array, s: OptimizerSettings) -> Array:
    """Liu et al. 2020, algorithm 2, with a threshold of 5 degrees of freedom."""
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    r_inf = 2 / (1 - s.beta2) - 1
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = s.beta1 * m + (1 - s.beta1) * g
        v = s.beta2 * v + (1 - s.beta2) * g**2
        m_hat = m / (1 - s.beta1**t)
        r = r_inf - 2 * t * s.beta2**t / (1 - s.beta2**t)
        if r > 5:
            c = np.sqrt((r - 4) * (r - 2) * r_inf / ((r_inf - 4) * (r_inf - 2) * r))
            theta = theta - rate * c * m_hat / (np.sqrt(v / (1 - s.beta2**t)) + s.epsilon)
        else:
            theta = theta - rate * m_hat
    return theta


def slow_rmsprop(theta: Array, gradients: Array, rates: Array, s: OptimizerSettings) -> Array:
    """Mnih et al. 2016, section 4.4, with TensorFlow's momentum and first mean square of 1."""
    g, m = np.ones_like(theta), np.zeros_like(theta)
    for d, rate in zip(gradients, rates, strict=True):
        g = s.decay * g + (1 - s.decay) * d**2
        m = s.momentum * m + rate * d / np.sqrt(g + s.epsilon)
        theta = theta - m
    return theta


def slow_adagrad(theta: Array, gradients: Array, rates: Array, s: OptimizerSettings) -> Array:
    """Duchi et al. 2011, figure 1: delta I + diag(s), with TensorFlow's first sum of 0.1."""
    for t, rate in enumerate(rates):
        root = np.sqrt(0.1 + (gradients[: t + 1] ** 2).sum(axis=0))
        theta = theta - rate * gradients[t] / (s.epsilon + root)
    return theta


def slow_adadelta(theta: Array, gradients: Array, rates: Array, s: OptimizerSettings) -> Array:
    """Zeiler 2012, algorithm 1, with a learning rate."""
    mean_g, mean_x = np.zeros_like(theta), np.zeros_like(theta)
    for g, rate in zip(gradients, rates, strict=True):
        mean_g = s.decay * mean_g + (1 - s.decay) * g**2
        x = -np.sqrt(mean_x + s.epsilon) / np.sqrt(mean_g + s.epsilon) * g
        mean_x = s.decay * mean_x + (1 - s.decay) * x**2
        theta = theta + rate * x
    return theta


def slow_sgd(theta: Array, gradients: Array, rates: Array, s: OptimizerSettings) -> Array:
    """Every gradient so far counts, ``momentum`` times less for each step of its age."""
    for t, rate in enumerate(rates):
        weights = s.momentum ** np.arange(t, -1, -1)
        theta = theta - rate * np.tensordot(weights, gradients[: t + 1], axes=1)
    return theta


SLOW: dict[str, Callable[[Array, Array, Array, OptimizerSettings], Array]] = {
    "adam": slow_adam,
    "radam": slow_radam,
    "rmsprop": slow_rmsprop,
    "adagrad": slow_adagrad,
    "adadelta": slow_adadelta,
    "sgd": slow_sgd,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_fifty_steps_are_the_papers(name: str) -> None:
    settings, rng = SETTINGS[name], np.random.default_rng(2)
    theta = rng.normal(size=SIZE)
    gradients = rng.normal(scale=np.logspace(-3, 1, SIZE), size=(STEPS, SIZE))
    rates = (1.0 if name == "adadelta" else 1e-2) * np.geomspace(1.0, 1e-2, STEPS)
    values = torch.from_numpy(theta.astype(np.float32))
    optimizer = Optimizer(values, settings)
    for gradient, rate in zip(gradients, rates, strict=True):
        given = torch.from_numpy(gradient.astype(np.float32))
        optimizer.step(given, float(rate))
        np.testing.assert_array_equal(given, gradient.astype(np.float32))  # only read
    want = SLOW[settings.optimizer](theta, gradients, rates, settings)
    assert np.abs(want - theta).mean() > 1e-3  # far more than the tolerance
    np.testing.assert_allclose(values, want, rtol=1e-5, atol=1e-6)
    assert optimizer.state()["count"].item() == STEPS


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("name", SETTINGS)
def test_slices_step_bit_for_bit_like_the_whole(name: str, parts: int) -> None:
    """Half way new optimizers go on with each slice, with the state of those before."""
    settings = SETTINGS[name]
    nets = [make_net(NetworkSettings(torso="tiny", width=23, stack=2)) for _ in range(2)]
    whole, cut = (FlatParameters(net) for net in nets)
    cuts = cut.layout.cut(parts)
    one = Optimizer(whole.values, settings)
    many = [Optimizer(cut.values[c], settings) for c in cuts]
    random = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        if step == STEPS // 2:
            assert torch.equal(whole.values, cut.values)
            before, many = many, [Optimizer(cut.values[c], settings) for c in cuts]
            for old, new in zip(before, many, strict=True):
                for key, tensor in new.state().items():
                    tensor.copy_(old.state()[key])
        gradient = torch.randn(whole.layout.size, generator=random)
        one.step(gradient, 1e-2)
        for optimizer, c in zip(many, cuts, strict=True):
            optimizer.step(gradient[c], 1e-2)
    assert torch.equal(whole.values, cut.values)
    for key, tensor in one.state().items():
        joined = torch.cat([optimizer.state()[key].reshape(-1) for optimizer in many])
        assert torch.equal(joined, tensor.expand_as(joined)), key  # each has a scalar of its own


def test_the_mean_of_the_parameters_by_hand() -> None:
    """-1; then half of -1 and -2; then half of that and -3."""
    values = torch.zeros(4)
    optimizer = Optimizer(values, OptimizerSettings(optimizer="sgd", average=0.5))
    found = []
    for _ in range(3):
        optimizer.step(torch.ones(4), 1.0)
        found.append(float(optimizer.state()["average"][0]))
    assert values.tolist() == [-3.0] * 4
    assert found == [-1.0, -1.5, -2.25]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_parameter_may_have_a_learning_rate_of_its_own(name: str) -> None:
    """Each part steps as with its own rate, and a part that is not scaled bit for bit."""
    random = torch.Generator().manual_seed(5)
    first, gradients = torch.randn(SIZE, generator=random), torch.randn(20, SIZE, generator=random)
    scales = torch.ones(SIZE)
    scales[64:128], scales[128:] = 0.25, 0.0
    values = {scale: first.clone() for scale in (1.0, 0.25, None)}
    optimizers = {scale: Optimizer(values[scale], SETTINGS[name]) for scale in (1.0, 0.25)}
    scaled = Optimizer(values[None], SETTINGS[name], scales)
    for gradient in gradients:
        scaled.step(gradient, 1e-2)
        for scale, optimizer in optimizers.items():
            optimizer.step(gradient, 1e-2 * scale)
    assert torch.equal(values[None][:64], values[1.0][:64])
    torch.testing.assert_close(values[None][64:128], values[0.25][64:128], rtol=1e-5, atol=1e-6)
    assert torch.equal(values[None][128:], first[128:])
