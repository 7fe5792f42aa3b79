"""Frames beside their reconstructions: which ones, and in which colours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import heads_of, make_net, random_trajectory
from gelada.nets.autoencoder import Decoder
from gelada.nets.network import InputStatistics, Network, NetworkSettings
from gelada.nets.observations import SHOWN, reconstruct, some_stacks
from helpers.stacking import stack_at


def test_some_stacks_are_observations_of_the_batch_spread_over_it() -> None:
    sent = random_trajectory(np.random.default_rng(1), games=16, length=40)
    frames, ages = torch.from_numpy(sent.frames), torch.from_numpy(sent.ages)
    found = some_stacks(frames, ages, 3).numpy()
    assert len(found) == SHOWN
    every = np.stack([stack_at(sent.frames, sent.ages, t, 3) for t in range(41)], axis=1)
    places = [
        tuple(map(int, np.argwhere((every == stack).all(axis=(2, 3, 4)))[0])) for stack in found
    ]
    assert len({game for game, _ in places}) == len({time for _, time in places}) == SHOWN
    kept = found.copy()
    frames.zero_()
    np.testing.assert_array_equal(found, kept)  # a copy


def test_of_a_single_game_there_are_several_steps() -> None:
    sent = random_trajectory(np.random.default_rng(1), games=1, length=2)
    found = some_stacks(torch.from_numpy(sent.frames), torch.from_numpy(sent.ages), 3)
    assert found.shape == (3, 3, 10, 5)


@pytest.mark.parametrize("planes", [1, 3])
def test_a_perfect_decoder_gives_the_frames_back(
    planes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = NetworkSettings(torso="nature", width=8, stack=2, autoencoder="auxiliary")
    shape = (84 * planes, 84)
    rng = np.random.default_rng(2)
    statistics = InputStatistics(
        rng.uniform(100, 150, shape).astype(np.float32),
        rng.uniform(40, 60, shape).astype(np.float32),
    )
    heads = heads_of({"policy": 3})
    net = Network(settings, shape, heads, statistics, "float32", planes=planes)
    decoder = net.auxiliary
    assert isinstance(decoder, Decoder)
    stacks = torch.from_numpy(rng.integers(0, 256, (2, 2, *shape), dtype=np.uint8))
    pixels = net.preprocess(stacks).unflatten(2, (planes, -1)).flatten(1, 2)
    monkeypatch.setattr(decoder, "forward", lambda code: pixels)
    found = reconstruct(net, stacks)
    newest = stacks[:, -1].numpy()
    if planes == 3:
        newest = np.stack(np.split(newest, 3, axis=1), axis=-1)
    np.testing.assert_array_equal(found.frames, newest)
    np.testing.assert_array_equal(found.reconstructions, newest)


def test_what_is_brighter_than_white_is_white() -> None:
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=1, autoencoder="auxiliary"))
    stacks = torch.zeros(1, 1, 10, 5, dtype=torch.uint8)
    with torch.no_grad():
        for value, grey in [(1e4, 255), (-1e4, 0)]:
            for name, parameter in net.named_parameters():
                if name.startswith("auxiliary"):
                    parameter.fill_(value if name == "auxiliary.convolution.bias" else 0.0)
            assert set(reconstruct(net, stacks).reconstructions.flatten()) == {grey}
