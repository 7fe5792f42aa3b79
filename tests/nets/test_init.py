"""First weights: ranges, deviations and shapes of the distributions, by sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import make_net
from gelada.nets.network import Network, NetworkSettings

TRUNCATED = 0.87962566
"""Deviation of a standard normal that is drawn again beyond 2."""

BETWEEN_ONE_AND_TWO = 0.28475
"""Its share beyond 1: (0.9545 - 0.6827) / 0.9545."""


def net_with(**changes: Any) -> Network:
    settings = NetworkSettings(torso="ba3c", width=512, stack=2, layer_norm=False, **changes)
    return make_net(settings, (60, 60), {"policy": 50, "value": 40})  # hidden: 256 -> 512


def convolutions(net: Network) -> list[torch.Tensor]:
    return [m.weight.detach() for m in net.torso.modules() if isinstance(m, nn.Conv2d)]


def assert_truncated_normal(weight: torch.Tensor, deviation: float) -> None:
    close = 5 / weight.numel() ** 0.5  # standard errors, about
    standard = weight / deviation
    assert 1.9 < standard.abs().max() <= 2.0
    assert abs(standard.mean()) < close
    assert standard.std() == pytest.approx(TRUNCATED, abs=close)
    assert (standard.abs() > 1).float().mean() == pytest.approx(BETWEEN_ONE_AND_TWO, abs=close)


def assert_uniform(weight: torch.Tensor, limit: float) -> None:
    close = 5 / weight.numel() ** 0.5
    assert 0.99 * limit < weight.abs().max() <= limit
    assert weight.mean() == pytest.approx(0.0, abs=limit * close)
    assert weight.std() == pytest.approx(limit / 3**0.5, rel=close)


def test_normal_convolutions_have_deviation_0_03_cut_at_two() -> None:
    for weight in convolutions(net_with(conv_init="normal")):
        assert_truncated_normal(weight, 0.03)


def test_uniform_convolutions_go_up_to_0_05() -> None:
    for weight in convolutions(net_with(conv_init="uniform")):
        assert_uniform(weight, 0.05)


def test_xavier_convolutions_are_uniform_by_inputs_and_outputs() -> None:
    """Glorot & Bengio 2010, equation 16; by hand: kernel area times channels in and out."""
    areas = [25 * (2 + 32), 25 * (32 + 32), 25 * (32 + 64), 9 * (64 + 64)]
    weights = convolutions(net_with(conv_init="xavier"))
    for weight, area in zip(weights, areas, strict=True):
        assert_uniform(weight, (6 / area) ** 0.5)


@pytest.mark.parametrize("hidden", ["dense", "linear"])
def test_normal_hidden_layer_and_heads_go_by_their_inputs(hidden: Any) -> None:
    net = net_with(fc_init="normal", hidden=hidden)
    assert_truncated_normal(net.torso.hidden.weight.detach(), 1 / 16)
    for head in net.heads.values():
        assert isinstance(head, nn.Linear)
        assert_truncated_normal(head.weight.detach(), 512**-0.5)


def test_uniform_hidden_layer_and_heads_go_by_their_inputs() -> None:
    net = net_with(fc_init="uniform")
    assert_uniform(net.torso.hidden.weight.detach(), 1.43 * (3 / 256) ** 0.5)
    for head in net.heads.values():
        assert isinstance(head, nn.Linear)
        assert_uniform(head.weight.detach(), 1.43 * (3 / 512) ** 0.5)


def test_how_hidden_layer_and_heads_start_leaves_convolutions_alone_and_biases_0() -> None:
    plain, drawn = (dict(net_with(fc_init=i).named_parameters()) for i in ("orthogonal", "uniform"))
    for name, parameter in plain.items():
        if name.endswith("bias"):
            assert not parameter.any()
            assert not drawn[name].any()
        else:
            assert torch.equal(drawn[name], parameter) == ("convolutions" in name)


@pytest.mark.parametrize("init", ["normal", "uniform", "xavier"])
def test_how_convolutions_start_leaves_hidden_layer_and_heads_orthogonal(init: Any) -> None:
    net = net_with(conv_init=init)
    weights = {name: p.detach() for name, p in net.named_parameters() if p.dim() == 2}
    hidden = weights["torso.hidden.weight"]
    torch.testing.assert_close(hidden.T @ hidden, 2.0 * torch.eye(256), atol=1e-5, rtol=0.0)
    for name, gain in (("policy", 1e-4), ("value", 1.0)):
        head = weights[f"heads.{name}.weight"]
        torch.testing.assert_close(head @ head.T, gain * torch.eye(len(head)), atol=1e-5, rtol=0.0)


def test_orthogonal_convolutions_are_orthogonal_with_gain_2() -> None:
    weights = convolutions(net_with())
    for weight in weights:
        flat = weight.flatten(1).double().numpy()
        np.testing.assert_allclose(flat @ flat.T, 2.0 * np.eye(len(flat)), atol=1e-5)
