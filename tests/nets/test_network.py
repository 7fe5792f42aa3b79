"""The network's sizes, its input, its copy for acting, and its torsos.

The ba3c torso against numpy, planes of colour as channels, what layers put out; observations of a
batch against the slow and plain stack.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from torch import nn

from colobus.core.arrays import joined
from colobus.nets import network as precision
from colobus.nets.network import (
    FLOOR,
    LIMIT,
    InputStatistics,
    Network,
    NetworkSettings,
    floor_of,
    measure_input,
)
from colobus.nets.observations import SHOWN, Observations, reconstruct, some_stacks
from colobus.nets.torsos import TORSOS, largest, smallest_side
from colobus.roles.replay.queue import as_batch
from conftest import heads_of, make_net, random_trajectory
from helpers.gradients import Array, as_array, convolved, stacks_of, with_biases


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
    found = measure_input(counts, 0.0)  # sums of so many are no float32
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


HEADS = {"policy": 4, "value": 1}
PAPER = NetworkSettings(torso="ba3c", width=128, hidden="linear", layer_norm=False, pad_channels=16)
COLOUR = replace(PAPER, width=24, stack=2)
PLANE = (54, 60)  # pooling drops a row: 54, 50, 25, 21, 10, 6, 3, 1


def colour_net(settings: NetworkSettings, plane: tuple[int, int]) -> Network:
    return make_net(settings, (3 * plane[0], plane[1]), HEADS, planes=3)


def numpy_torso(net: Network, seen: Array, planes: int) -> Array:
    """Part by part in float64, with zero channels left out and each ReLU before its pooling."""
    weights = {name: as_array(value) for name, value in net.torso.named_parameters()}
    depth, height = seen.shape[1], seen.shape[2] // planes
    rows = [seen[:, k, p * height : (p + 1) * height] for k in range(depth) for p in range(planes)]
    x = np.stack(rows, axis=1).astype(np.float64)
    for i, pooled in enumerate([True, True, True, False]):
        weight = weights[f"convolutions.{i}.weight"][:, : x.shape[1]]
        x = np.maximum(convolved(x, weight), 0.0)
        if pooled:
            m, c, h, w = (n // d * d for n, d in zip(x.shape, (1, 1, 2, 2), strict=True))
            x = x[:, :, :h, :w].reshape(m, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))
    hidden: Array = x.reshape(len(x), -1) @ weights["hidden.weight"].T
    if "hidden.bias" in weights:
        hidden = hidden + weights["hidden.bias"]
    if "norm.weight" in weights:
        mean, variance = hidden.mean(axis=1, keepdims=True), hidden.var(axis=1, keepdims=True)
        hidden = (hidden - mean) / np.sqrt(variance + 1e-5)
        hidden = hidden * weights["norm.weight"] + weights["norm.bias"]
    return hidden if net.torso.hidden.bias is None else np.maximum(hidden, 0.0)


@pytest.mark.parametrize(
    ("width", "pad", "count"),
    [(128, 16, 331_909), (128, 1, 328_709), (256, 16, 537_349), (512, 16, 948_229)],
)
def test_ba3c_has_the_originals_parameters(width: int, pad: int, count: int) -> None:
    settings = replace(PAPER, width=width, pad_channels=pad)
    net = colour_net(settings, (84, 84))
    assert sum(p.numel() for p in net.parameters()) == count
    shapes = {name: list(p.shape) for name, p in net.torso.named_parameters()}
    assert shapes == {
        "convolutions.0.weight": [32, 16 if pad == 16 else 12, 5, 5],
        "convolutions.1.weight": [32, 32, 5, 5],
        "convolutions.2.weight": [64, 32, 5, 5],
        "convolutions.3.weight": [64, 64, 3, 3],
        "hidden.weight": [width, 5 * 5 * 64],
    }


@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("pad", [1, 16])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("hidden", ["linear", "dense"])
def test_ba3c_is_the_plain_numpy_form(hidden: Any, layer_norm: bool, pad: int, planes: int) -> None:
    """Also in colour; a grey frame is its own channel."""
    settings = replace(COLOUR, hidden=hidden, layer_norm=layer_norm, pad_channels=pad)
    net = make_net(settings, (planes * PLANE[0], PLANE[1]), HEADS, planes=planes)
    with torch.no_grad():
        for name, parameter in net.torso.named_parameters():
            if parameter.dim() == 1:  # a bias of 0 and a scale of 1 would show nothing
                start = 0.5 if name == "norm.weight" else -0.5
                parameter.copy_(torch.linspace(start, start + 1.0, parameter.numel()))
    shape = (3, 2, planes * PLANE[0], PLANE[1])
    frames = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    seen = net.preprocess(torch.from_numpy(frames))
    found = net.features(seen).detach()
    want = numpy_torso(net, seen.numpy(), planes)
    assert np.abs(want).mean() > 0.1
    assert (want < 0).any() == (hidden == "linear")
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("torso", sorted(TORSOS))
def test_the_smallest_frame_leaves_one_pixel_and_a_smaller_one_is_refused(torso: Any) -> None:
    side = smallest_side(torso)
    settings = NetworkSettings(torso=torso, width=8, stack=2)
    net = make_net(settings, (side, side))
    layers = TORSOS[torso]
    filters = layers[-1].filters if layers else 2
    assert net.torso.hidden.in_features == {"resnet": 32, "mlp": 8}.get(torso, filters)
    with pytest.raises(ValueError, match=rf"\({side - 1}, {side}\) are too small for the torso"):
        make_net(settings, (side - 1, side))
    with pytest.raises(ValueError, match=rf"\({side}, {side - 1}\) are too small for the torso"):
        make_net(settings, (side, side - 1))


def test_the_smallest_frame_of_ba3c_is_52_for_each_plane() -> None:
    """By hand: 52, 48, 24, 20, 10, 6, 3, 1."""
    assert smallest_side("ba3c") == 52
    assert colour_net(COLOUR, (52, 52)).torso.hidden.in_features == 64
    with pytest.raises(ValueError, match=r"\(51, 52\) are too small for the torso 'ba3c'"):
        colour_net(COLOUR, (51, 52))  # 153 rows in all


def test_rows_that_cannot_be_cut_into_planes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(161, 60\) cannot be cut into 3 planes"):
        make_net(COLOUR, (161, 60), HEADS, planes=3)


def test_outputs_count_every_layer_and_the_places_that_pooling_keeps() -> None:
    """By hand; a place is int64, as much as two numbers. Grey frames are not copied."""
    small = 16 * 13 * 13 + 32 * 5 * 5 + 256
    assert make_net(NetworkSettings(), (42, 42), HEADS).torso.outputs == small
    copied = 16 * 84 * 84
    convolved = 32 * 80 * 80 + 32 * 36 * 36 + 64 * 14 * 14 + 64 * 5 * 5
    pooled = 32 * 40 * 40 + 32 * 18 * 18 + 64 * 7 * 7
    paper = colour_net(PAPER, (84, 84)).torso.outputs
    assert paper == copied + convolved + 3 * pooled + 128


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("size", "shape"), [(2, (3, 16, 20, 20)), (2, (2, 5, 9, 7)), (3, (1, 4, 11, 6))]
)
def test_pooling_without_gradients_is_torchs_pooling(size: int, shape: Any, dtype: Any) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    for form in (torch.contiguous_format, torch.channels_last):
        found = largest(x.contiguous(memory_format=form), size)
        assert torch.equal(found, torch.max_pool2d(x, size))
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_passes_with_and_without_gradients_are_equal() -> None:
    net = make_net(NetworkSettings(torso="pooled"), (42, 42))
    stacks = torch.randn(6, 4, 42, 42, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        quick = net.features(stacks)
    slow = net.features(stacks)
    assert slow.requires_grad
    assert torch.equal(quick, slow)


def numpy_pooling(x: Array) -> Array:
    """Maximum of 3x3 around every second pixel, beginning with the first."""
    room = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    patches = sliding_window_view(room, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    pooled: Array = patches.max(axis=(4, 5))
    return pooled


@pytest.mark.parametrize("side", [12, 21])
def test_resnet_is_the_plain_numpy_form(side: int) -> None:
    settings = NetworkSettings(torso="resnet", width=24, stack=2, layer_norm=False)
    net = make_net(settings, (side, side), HEADS)
    layers = with_biases(net.torso)
    stacks = torch.randn(3, 2, side, side, generator=torch.Generator().manual_seed(4))
    x = stacks.double().numpy()
    for section in range(3):

        def layer(number: int, x: Array, section: int = section) -> Array:
            return convolved(x, *layers[f"residual.sections.{section}.{number}"], pad=1)

        x = numpy_pooling(layer(0, x))
        for one in (1, 3):
            x = x + layer(one + 1, np.maximum(layer(one, np.maximum(x, 0.0)), 0.0))
    flat = np.maximum(x, 0.0).reshape(3, -1)
    weight, bias = layers["hidden"]
    want = np.maximum(flat @ weight.T + bias, 0.0)
    assert np.abs(want).mean() > 0.1
    np.testing.assert_allclose(net.features(stacks).detach(), want, rtol=1e-3, atol=1e-3)


def test_torsos_have_the_parameters_that_they_should() -> None:
    def count(torso: Any, width: int = 256, **heads: int) -> int:
        settings = NetworkSettings(torso=torso, width=width, layer_norm=False)
        net = make_net(settings, (84, 84), heads or {"policy": 18, "value": 1})
        return sum(p.numel() for p in net.parameters())

    nature = (32 * 4 * 64 + 32) + (64 * 32 * 16 + 64) + (64 * 64 * 9 + 64)
    # Mnih et al. 2015: 84 -> 20 -> 9 -> 7, four actions
    assert count("nature", 512, q=4) == nature + (7 * 7 * 64 + 1) * 512 + 513 * 4 == 1_686_180
    heads = 257 * 19
    sections = [(4, 16), (16, 32), (32, 32)]
    residual = sum(9 * a * b + b + 4 * (9 * b * b + b) for a, b in sections)
    assert count("resnet") == residual + (11 * 11 * 32 + 1) * 256 + heads
    first, second = 8 * 8 * 4 * 16 + 16, 4 * 4 * 16 * 32 + 32
    assert count("dqn2013") == first + second + (9 * 9 * 32 + 1) * 256 + heads
    convolutions = (16 * 4 + 1) * 16 + (9 * 16 + 1) * 32 + (9 * 32 + 1) * 64
    assert count("pooled") == convolutions + (7 * 7 * 64 + 1) * 256 + heads
    small = (4 * 25 + 1) * 16 + (16 * 16 + 1) * 32
    assert count("small") == small + (12 * 12 * 32 + 1) * 256 + heads


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 7), st.integers(1, 3))
def test_every_one_is_the_plain_stack(seed: int, depth: int, length: int, actors: int) -> None:
    rng = np.random.default_rng(seed)
    net = make_net(NetworkSettings(torso="tiny", width=4, stack=depth), (3, 4))
    how: Any = {"games": 2, "length": length, "stack": depth, "frame_shape": (3, 4)}
    sent = [random_trajectory(rng, i, **how) for i in range(actors)]
    batch = as_batch(sent)
    windows = Observations(net, batch.frames, batch.ages)
    assert windows.shape == (2 * actors, length + 1)
    plain = torch.cat([stacks_of(each, depth) for each in sent])
    want = net.preprocess(plain).flatten(0, 1)
    index = torch.from_numpy(rng.permutation(len(want)))
    assert torch.equal(windows.pick(index), want[index])
    assert torch.equal(windows.pick(index), want[index])  # asking changes nothing


def test_in_blocks_a_network_gives_the_same_values_and_gradients() -> None:
    rng = np.random.default_rng(3)
    shape = (20, 24)
    net = make_net(NetworkSettings(torso="dqn2013", width=16, stack=4), shape)
    assert net.block == 4
    batch = as_batch([random_trajectory(rng, games=3, length=6, stack=4, frame_shape=shape)])
    want = net.preprocess(stacks_of(batch, 4)).flatten(0, 1)
    found = Observations(net, batch.frames, batch.ages).pick(torch.arange(21))
    assert found.shape == (21, 4 * 16, 5, 6)
    channel, row, column = 2 * 16 + 3 * 4 + 1, 4, 5  # pixel (3, 1) of block (4, 5) of frame 2
    assert torch.equal(found[:, channel, row, column], want[:, 2, 4 * 4 + 3, 5 * 4 + 1])
    assert (batch.ages < 3).any()  # some stacks are black before their game

    def known_of(stacks: torch.Tensor) -> list[torch.Tensor]:
        net.zero_grad()
        outputs = torch.cat(list(net(stacks).values()), dim=1)
        outputs.square().mean().backward()
        gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        return [outputs.detach(), *gradients]

    known, expected = known_of(found), known_of(want)
    assert len(known) == len(expected) == 1 + len(list(net.parameters()))
    for one, other in zip(known, expected, strict=True):
        assert other.abs().max() > 1e-6
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_frames_and_filters_that_blocks_do_not_divide_stay_as_they_are() -> None:
    assert make_net(NetworkSettings(torso="dqn2013", width=16), (20, 22)).block == 1
    assert make_net(NetworkSettings(torso="small", width=16), (42, 42)).block == 1  # 5x5 by 3
    assert make_net(NetworkSettings(torso="tiny", width=16), (8, 8)).block == 1


def test_some_stacks_are_observations_of_the_batch_spread_over_it() -> None:
    sent = random_trajectory(np.random.default_rng(1), games=16, length=40)
    frames, ages = torch.from_numpy(sent.frames), torch.from_numpy(sent.ages)
    found = some_stacks(frames, ages, 3).numpy()
    assert len(found) == SHOWN
    every = stacks_of(sent, 3).numpy()
    places = [tuple(np.argwhere((every == stack).all(axis=(2, 3, 4)))[0]) for stack in found]
    assert len({game for game, _ in places}) == len({time for _, time in places}) == SHOWN
    kept = found.copy()
    one = some_stacks(frames[:1, :5], ages[:1, :3], 3)
    assert one.shape == (3, 3, 10, 5)  # of a single game there are several steps
    frames.zero_()
    np.testing.assert_array_equal(found, kept)  # a copy


def test_of_pictures_of_floats_the_largest_number_is_white() -> None:
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=2, autoencoder="auxiliary"))
    stacks = torch.from_numpy(np.random.default_rng(2).random((2, 2, 10, 5), dtype=np.float32) / 2)
    frames, reconstructions = reconstruct(net, stacks)
    want = (stacks[:, -1] / stacks[:, -1].max() * 255).round()
    np.testing.assert_array_equal(frames, want.numpy())
    assert frames.dtype == reconstructions.dtype == np.uint8


@pytest.mark.parametrize(("planes", "masks"), [(1, 0), (2, 0), (3, 0), (3, 85)])
def test_a_perfect_decoder_gives_the_frames_back(
    planes: int, masks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = NetworkSettings(torso="nature", width=8, stack=2, autoencoder="auxiliary")
    seen = 84 * planes
    shape = (seen + 2 * bool(masks), 84)  # a mask of 85 actions takes two rows
    rng = np.random.default_rng(2)
    mean, deviation = rng.uniform(100, 150, shape), rng.uniform(40, 60, shape)
    statistics = InputStatistics(mean.astype(np.float32), deviation.astype(np.float32))
    heads = heads_of({"policy": 3})
    net = Network(settings, shape, heads, statistics, "float32", planes=planes, masks=masks)
    decoder: Any = net.auxiliary
    stacks = torch.from_numpy(rng.integers(0, 256, (2, 2, *shape), dtype=np.uint8))
    pixels = net.preprocess(stacks)[:, :, :seen].unflatten(2, (planes, -1)).flatten(1, 2)
    monkeypatch.setattr(decoder, "forward", lambda code: pixels)
    frames, reconstructions = reconstruct(net, stacks)
    newest = stacks[:, -1, :seen].numpy()
    if planes == 3:
        newest = np.stack(np.split(newest, 3, axis=1), axis=-1)
    np.testing.assert_array_equal(frames, newest)
    np.testing.assert_array_equal(reconstructions, newest)


def test_what_is_brighter_than_white_is_white() -> None:
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=1, autoencoder="auxiliary"))
    stacks = torch.zeros(1, 1, 10, 5, dtype=torch.uint8)
    with torch.no_grad():
        for value, grey in [(1e4, 255), (-1e4, 0)]:
            for name, parameter in net.named_parameters():
                if name.startswith("auxiliary"):
                    parameter.fill_(value if name == "auxiliary.convolution.bias" else 0.0)
            assert set(reconstruct(net, stacks)[1].flatten()) == {grey}
