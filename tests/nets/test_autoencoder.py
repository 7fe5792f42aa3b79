"""The autoencoder's layers: against slow numpy forms, in every torso, and none of it when off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from colobus.nets.autoencoder import Decoder, Prediction
from colobus.nets.network import CODE, NetworkSettings
from colobus.nets.observations import Observations
from colobus.ops.flat import Layout
from colobus.roles.replay.queue import as_batch
from conftest import autoencoder_net, make_net, random_trajectory
from helpers.gradients import Array, as_array, convolved, with_biases

FORMS = ("latent", "auxiliary", "predict")

PLAIN = ["torso.hidden", "torso.norm", "heads.policy", "heads.value"]
LAYERS = {
    "off": PLAIN,
    "latent": ["encoder.convolution", *PLAIN, "auxiliary.convolution"],
    "auxiliary": [*PLAIN, "auxiliary.spread", "auxiliary.convolution"],
    "predict": [*PLAIN, *(f"auxiliary.{of}" for of in ("joint", "action", "latent", "outcome"))],
}


def slow_transposed(x: Array, weight: Array, bias: Array, side: tuple[int, int]) -> Array:
    """Each input pixel adds its 8x8 picture, 2 pixels further than the one before."""
    count, _, height, width = x.shape
    large = np.zeros((count, weight.shape[1], 2 * height + 8, 2 * width + 8))
    for i, j in np.ndindex(height, width):
        picture = np.einsum("mc,cfyx->mfyx", x[:, :, i, j], weight)
        large[:, :, 2 * i : 2 * i + 8, 2 * j : 2 * j + 8] += picture
    return large[:, :, 3 : 3 + side[0], 3 : 3 + side[1]] + bias[:, None, None]


@pytest.mark.parametrize("frame_shape", [(10, 5), (8, 12)])
def test_the_latent_form_is_the_slow_one(frame_shape: tuple[int, int]) -> None:
    net = autoencoder_net("latent", frame_shape=frame_shape)
    layers = with_biases(net)
    stacks = torch.randn(2, 3, *frame_shape, generator=torch.Generator().manual_seed(1))
    encoder = layers["encoder.convolution"]
    assert encoder[0].shape == (4, 3, 8, 8)
    latents = convolved(as_array(stacks), *encoder, pad=3, stride=2).clip(min=0.0)
    assert latents.shape == (2, 4, frame_shape[0] // 2, frame_shape[1] // 2)
    code = net(stacks)[CODE]
    np.testing.assert_allclose(as_array(code), latents, rtol=1e-4, atol=1e-5)
    want = slow_transposed(latents, *layers["auxiliary.convolution"], frame_shape)
    decoder: Any = net.auxiliary
    np.testing.assert_allclose(as_array(decoder(code)), want, rtol=1e-4, atol=1e-5)


def test_the_auxiliary_form_is_the_slow_one() -> None:
    net = autoencoder_net("auxiliary")
    decoder: Any = net.auxiliary
    layers = with_biases(net)
    hidden = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    weight, bias = layers["auxiliary.spread"]
    maps = (as_array(hidden) @ weight.T + bias).clip(min=0.0).reshape(3, 5, 2, 2)
    want = slow_transposed(maps.transpose(0, 3, 1, 2), *layers["auxiliary.convolution"], (10, 5))
    np.testing.assert_allclose(as_array(decoder(hidden)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", LAYERS)
def test_each_form_adds_its_layers_and_off_adds_none(form: str) -> None:
    parameters = autoencoder_net(form).named_parameters()
    names = [name.rpartition(".")[0] for name, _ in parameters]
    assert list(dict.fromkeys(names)) == LAYERS[form]


@pytest.mark.parametrize("form", FORMS)
def test_actors_hold_and_pull_no_decoder(form: Any) -> None:
    net = make_net(NetworkSettings(autoencoder=form), (42, 42))
    acting = net.for_acting(["policy"])
    assert acting.auxiliary is None
    names = [name for name, _ in acting.named_parameters()]
    assert [name for name in names if name.startswith(("auxiliary", "heads.value"))] == []
    assert any(name.startswith("encoder") for name in names) == (form == "latent")
    stacks = torch.randn(4, 4, 42, 42, generator=torch.Generator().manual_seed(2))
    assert torch.equal(acting.features(stacks), net.features(stacks))
    parts = list(range(8))
    held = Layout(net).owners(parts, names)
    assert (len(held) < 8) == (form != "latent")  # the decoder of latents is tiny
    last = max(e.offset for e in Layout(net).entries if e.name in names)
    first = min(e.offset for e in Layout(net).entries if e.name.startswith("auxiliary"))
    assert last < first


SIDES = {"small": 42, "dqn2013": 84, "nature": 84, "resnet": 42, "ba3c": 104, "pooled": 84}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("torso", SIDES)
def test_every_torso_has_every_form(torso: Any, form: Any) -> None:
    """The reconstruction has the size of the pixels, whether the torso takes blocks or not."""
    side = SIDES[torso]
    settings = NetworkSettings(torso=torso, width=8, stack=2, autoencoder=form)
    net = make_net(settings, (side, side))
    rng = np.random.default_rng(0)
    sent = random_trajectory(rng, games=1, length=1, stack=2, frame_shape=(side, side))
    batch = as_batch([sent])
    observations = Observations(net, batch.frames, batch.ages).pick(torch.tensor([0]))
    code = net(observations)[CODE]
    assert code.shape == ((1, 4, side // 2, side // 2) if form == "latent" else (1, 8))
    if isinstance(net.auxiliary, Decoder):
        wanted = net.auxiliary.wanted(observations)
        frames = batch.frames[:, :2].clone()
        frames[:, : max(1 - int(batch.ages[0, 0]), 0)] = 0
        np.testing.assert_allclose(wanted, net.preprocess(frames), rtol=1e-5, atol=1e-5)
        assert net.auxiliary(code).shape == wanted.shape == (1, 2, side, side)
        total = net.auxiliary(code).sum()
    else:
        assert isinstance(net.auxiliary, Prediction)
        total = net.auxiliary(code, torch.tensor([[1]]))[0].sum()
    torch.autograd.backward(total)
    first: Any = next(net.parameters()).grad
    assert first.abs().sum() > 0.0


@pytest.mark.parametrize("form", ["latent", "auxiliary"])
def test_colour_frames_are_reconstructed_plane_by_plane(form: Any) -> None:
    settings = NetworkSettings(torso="small", width=8, stack=2, autoencoder=form)
    net = make_net(settings, (126, 42), planes=3)
    stacks = torch.randn(2, 2, 126, 42, generator=torch.Generator().manual_seed(3))
    assert isinstance(net.auxiliary, Decoder)
    wanted = net.auxiliary.wanted(stacks)
    assert wanted.shape == net.auxiliary(net(stacks)[CODE]).shape == (2, 6, 42, 42)
    for frame, plane in np.ndindex(2, 3):
        rows = stacks[:, frame, 42 * plane : 42 * (plane + 1)]
        assert torch.equal(wanted[:, 3 * frame + plane], rows)
    assert torch.equal(net.auxiliary.stacks(wanted), stacks)
