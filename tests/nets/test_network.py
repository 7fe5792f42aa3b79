"""The network's sizes, its input and its copy for acting."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from colobus.core.arrays import joined
from colobus.nets import network as precision
from colobus.nets.network import FLOOR, LIMIT, Network, NetworkSettings, floor_of, measure_input
from conftest import heads_of, make_net


def test_weights_are_orthogonal_and_biases_0_at_the_start() -> None:
    net = make_net(NetworkSettings(width=64), (42, 42))
    parameters = dict(net.named_parameters())
    gains = dict.fromkeys(("torso.convolutions.0", "torso.convolutions.1", "torso.hidden"), 2.0)
    for name, gain in {**gains, "heads.policy": 1e-4, "heads.value": 1.0}.items():
        weight = parameters[f"{name}.weight"].detach().flatten(1)
        torch.testing.assert_close(weight @ weight.T, gain * torch.eye(len(weight)))
        assert not parameters[f"{name}.bias"].any()


def test_statistics_are_mean_and_deviation_of_each_pixel() -> None:
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (300, 4, 6), dtype=np.uint8)
    frames[:, 0, 0] = 90  # never changes
    frames[:, 0, 1] = np.where(np.arange(300) == 7, 2, 0)  # hardly ever
    found = measure_input(frames)
    assert found.mean.dtype == found.deviation.dtype == np.float32
    values = frames.astype(np.float64)
    mean = values.sum(axis=0) / 300
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    deviation = np.sqrt(((values - mean) ** 2).sum(axis=0) / 300)
    np.testing.assert_allclose(found.deviation[1:], deviation[1:], rtol=1e-4)
    assert found.deviation[0, :2].tolist() == [FLOOR, FLOOR]
    assert found.mean[0, 0] == 90.0
    large = measure_input(np.array([[[1e30]], [[3e30]]], np.float32))  # squares are no float32
    assert (large.mean[0, 0], large.deviation[0, 0]) == pytest.approx((2e30, 1e30))
    counts = np.repeat(np.array([1_234_567, 1_234_569], np.float32), 4096).reshape(-1, 1, 2)
    found = measure_input(counts)  # sums of so many are no float32
    assert found.mean.tolist() == [[1_234_568.0] * 2]
    assert found.deviation == pytest.approx(1.0)


def test_a_mask_has_no_part_in_the_smallest_deviation_of_a_plane() -> None:
    rng = np.random.default_rng(2)
    planes = [rng.uniform(0, most, (50, 6, 5)) for most in (0.01, 100.0)]
    frames = np.concatenate(planes, axis=1).astype(np.float32)
    masked = joined(frames, rng.random((50, 11)) < 0.5)  # of three rows
    np.testing.assert_array_equal(floor_of(masked, 2, 11)[:12], floor_of(frames, 2, 0))


def test_seen_frames_are_standardised_pixel_by_pixel_and_clipped() -> None:
    net = make_net(frame_shape=(6, 7))
    frames = np.random.default_rng(2).integers(0, 256, (5, 3, 6, 7), dtype=np.uint8)
    mean, deviation = net.mean.double().numpy(), 1 / net.scale.double().numpy()
    want = np.clip((frames - mean) / deviation, -LIMIT, LIMIT)
    assert (np.abs(want) == LIMIT).any()
    seen = net.preprocess(torch.from_numpy(frames))
    assert seen.dtype == torch.float32
    np.testing.assert_allclose(seen, want, rtol=1e-4, atol=1e-5)
    black = np.clip(-mean / deviation, -LIMIT, LIMIT)
    np.testing.assert_allclose(net.black(), black, rtol=1e-4, atol=1e-5)


def test_a_bfloat16_copy_for_acting_gives_almost_the_same_policy() -> None:
    heads = {"policy": 6, "value": 1}
    net = make_net(NetworkSettings(), (42, 42), heads, precision="bfloat16")
    with torch.no_grad():
        weight = net.heads["policy"].get_parameter("weight")
        weight.mul_(100.0)  # a policy with something to get wrong
    acting = net.for_acting(["policy", "value"])
    assert next(acting.torso.parameters()).dtype == torch.bfloat16
    assert next(acting.heads.parameters()).dtype == torch.float32
    frames = np.random.default_rng(5).integers(0, 256, (64, 4, 42, 42), dtype=np.uint8)
    seen = net.preprocess(torch.from_numpy(frames))
    assert seen.dtype == torch.bfloat16
    want, found = net(seen)["policy"], acting(seen)["policy"]
    assert want.dtype == found.dtype == torch.float32
    assert want.softmax(dim=1).max() > 0.4
    assert (want.softmax(dim=1) - found.softmax(dim=1)).abs().max() < 0.02
    exact = make_net(NetworkSettings(), (42, 42), heads)
    exact.load_state_dict(net.state_dict())
    precise = exact(exact.preprocess(torch.from_numpy(frames)))["policy"]
    assert (precise.softmax(dim=1) - found.softmax(dim=1)).abs().max() < 0.03


@pytest.mark.parametrize(
    ("float32", "bfloat16", "want"),
    [(2.0, 1.0, "bfloat16"), (1.05, 1.0, "float32"), (1.0, 1.0, "float32"), (1.0, 9.0, "float32")],
)
def test_bfloat16_is_taken_only_if_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, float32: float, bfloat16: float, want: str
) -> None:
    passes = 3  # one to build kernels and two that count
    ticks = [t for step in (float32, bfloat16) for _ in range(passes) for t in (0.0, step)]
    now = itertools.chain(itertools.accumulate(ticks), itertools.repeat(1e9))
    monkeypatch.setattr(time, "thread_time", lambda: next(now))
    before = torch.get_rng_state()
    given = NetworkSettings(torso="tiny", width=8, stack=1), (4, 4), heads_of({"policy": 3})
    found = precision.faster_precision(*given, samples=2, repeats=2)
    assert found == want
    assert torch.equal(torch.get_rng_state(), before)  # measuring leaves it alone


TRUNCATED = 0.87962566
"""Deviation of a standard normal that is drawn again beyond 2."""

BETWEEN_ONE_AND_TWO = 0.28475
"""Its share beyond 1: (0.9545 - 0.6827) / 0.9545."""


def net_with(**changes: Any) -> Network:
    settings = NetworkSettings(torso="ba3c", width=512, stack=2, layer_norm=False, **changes)
    return make_net(settings, (60, 60), {"policy": 50, "value": 40})  # hidden: 256 -> 512


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


AREAS = [25 * (2 + 32), 25 * (32 + 32), 25 * (32 + 64), 9 * (64 + 64)]
"""Of the kernels, by hand, times channels in and out (Glorot & Bengio 2010, equation 16)."""


@pytest.mark.parametrize(
    ("init", "assert_drawn", "sizes"),
    [
        ("normal", assert_truncated_normal, [0.03] * 4),
        ("uniform", assert_uniform, [0.05] * 4),
        ("xavier", assert_uniform, [(6 / area) ** 0.5 for area in AREAS]),
    ],
)
def test_convolutions_are_drawn_as_they_should(init: Any, assert_drawn: Any, sizes: Any) -> None:
    modules = net_with(conv_init=init).torso.modules()
    weights = [each.weight.detach() for each in modules if isinstance(each, nn.Conv2d)]
    for weight, size in zip(weights, sizes, strict=True):
        assert_drawn(weight, size)


@pytest.mark.parametrize(
    ("init", "hidden", "assert_drawn", "size"),
    [
        ("normal", "dense", assert_truncated_normal, 1.0),
        ("normal", "linear", assert_truncated_normal, 1.0),
        ("uniform", "dense", assert_uniform, 1.43 * 3**0.5),
    ],
)
def test_hidden_layer_and_heads_go_by_their_inputs(
    init: Any, hidden: Any, assert_drawn: Any, size: float
) -> None:
    net = net_with(fc_init=init, hidden=hidden)
    assert_drawn(net.torso.hidden.weight.detach(), size / 16)
    for head in net.heads.values():
        assert_drawn(head.get_parameter("weight").detach(), size * 512**-0.5)
