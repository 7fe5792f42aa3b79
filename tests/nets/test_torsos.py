"""The ba3c torso against numpy, planes of colour as channels, and what layers put out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view

from colobus.nets.network import Network, NetworkSettings
from colobus.nets.torsos import TORSOS, largest, smallest_side
from conftest import make_net
from helpers.gradients import Array, as_array, convolved, with_biases

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
