"""Observations of a batch against the slow and plain stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colobus.nets.network import InputStatistics, Network, NetworkSettings
from colobus.nets.observations import SHOWN, Observations, reconstruct, some_stacks
from colobus.roles.replay.queue import as_batch
from conftest import heads_of, make_net, random_trajectory
from helpers.gradients import stacks_of


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
