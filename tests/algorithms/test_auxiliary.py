"""The autoencoder's losses against slow numpy forms, and that each form learns Catch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms import auxiliary
from colobus.algorithms.appo import APPO, Steps
from colobus.algorithms.auxiliary import HORIZON, Future
from colobus.algorithms.batches import Minibatch
from colobus.algorithms.dqn import DQN
from colobus.core.types import Batch
from colobus.experiment.presets import PRESETS
from colobus.nets.autoencoder import Decoder
from colobus.nets.network import CODE, Network
from colobus.nets.observations import Observations
from colobus.roles.replay.queue import as_batch
from colobus.runs.curves import read_metrics
from conftest import autoencoder_net, random_trajectory
from helpers.outcomes import learn
from helpers.outputs import whole
from helpers.variants import with_network

Array = np.ndarray[Any, Any]
FORMS = ("latent", "auxiliary", "predict")


def noise(length: int = 7, games: int = 3, seed: int = 0) -> Batch:
    """Return a batch of noise with ends of games, lost steps and weights of windows."""
    rng = np.random.default_rng(seed)
    sent = [random_trajectory(rng, actor, games=games, length=length) for actor in (0, 1)]
    weights = torch.from_numpy(rng.uniform(0.5, 2.0, 2 * games)).float()
    return as_batch(sent)._replace(weights=weights)


@pytest.mark.parametrize("seed", range(3))
def test_the_reconstruction_loss_is_half_the_mean_square(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found, wanted = rng.normal(size=(2, 5, 3, 6, 4)).astype(np.float32)
    weights = np.array([1.0, 0.0, 2.0, 0.5, 0.0], dtype=np.float32)
    squares = ((found - wanted).astype(np.float64) ** 2).mean(axis=(1, 2, 3))
    arrays = (torch.from_numpy(x) for x in (found, wanted, weights))
    loss = auxiliary.reconstruction_loss(*arrays)
    assert loss.item() == pytest.approx((weights * 0.5 * squares).sum() / 3.5, rel=1e-5)


def test_the_loss_is_that_of_the_first_part_of_a_minibatch() -> None:
    net = autoencoder_net("latent")
    stacks = torch.randn(10, 3, 10, 5, generator=torch.Generator().manual_seed(1))
    weights = torch.tensor([1.0, 0.5, 2.0] + [1.0] * 7)
    net.auxiliary_weight = 3.0
    code = net(stacks)[CODE]
    total, terms = auxiliary.loss(net, code, stacks, None, weights)
    assert isinstance(net.auxiliary, Decoder)
    want = auxiliary.reconstruction_loss(net.auxiliary(code[:3]), stacks[:3], weights[:3])
    assert terms["reconstruction_loss"].item() == pytest.approx(want.item(), rel=1e-5)
    assert total.item() == pytest.approx(3.0 * want.item(), rel=1e-5)


def slow_ahead(batch: Batch, latents: Array, n: int, t: int) -> list[dict[str, Any]]:
    """Walk on from step ``t`` of window ``n`` and note what is known of each step."""
    steps: list[dict[str, Any]] = []
    for at in range(t, t + HORIZON):
        if at == batch.actions.shape[1] or not batch.mask[n, at]:
            break
        over = bool(batch.terminated[n, at] or batch.truncated[n, at])
        step: dict[str, Any] = {
            "action": int(batch.actions[n, at]),
            "sign": int(np.sign(float(batch.rewards[n, at]))),
            "end": bool(batch.terminated[n, at]),
            "weight": float(batch.weights[n]),
            "latent": None if over else latents[n, at + 1],
        }
        steps.append(step)
        if over:
            break
    return steps


def slow_prediction(net: Network, hidden: Array, steps: list[dict[str, Any]]) -> list[Array]:
    """Return (weight, reward's, end's, latent's weight, latent's loss) of each known step."""
    assert net.auxiliary is not None
    named = {k: v.detach().double().numpy() for k, v in net.auxiliary.named_parameters()}
    rows = []
    for step in steps:
        joint = named["joint.weight"] @ hidden + named["joint.bias"]
        joint = np.maximum(joint + named["action.weight"][:, step["action"]], 0.0)
        hidden = named["latent.weight"] @ joint + named["latent.bias"]
        logits = named["outcome.weight"] @ joint + named["outcome.bias"]
        odds = np.exp(logits[:3]) / np.exp(logits[:3]).sum()
        ends = 1.0 / (1.0 + np.exp(-logits[3]))
        angle, known = 0.0, step["latent"] is not None
        if known:
            target = step["latent"].astype(np.float64)
            angle = 1.0 - hidden @ target / np.linalg.norm(hidden) / np.linalg.norm(target)
        row = (-np.log(odds[step["sign"] + 1]), -np.log(ends if step["end"] else 1.0 - ends))
        rows.append(np.array([step["weight"], *row, step["weight"] * known, angle]))
    return rows


def slow_losses(net: Network, batch: Batch, codes: torch.Tensor, places: Any) -> dict[str, float]:
    """Return the means over what follows the steps at (window, step)."""
    hidden, rows = codes.detach().numpy().reshape(*batch.ages.shape, -1), []
    for n, t in places:
        steps = slow_ahead(batch, hidden, n, t)
        rows += slow_prediction(net, hidden[n, t].astype(np.float64), steps)
    weights, rewards, ends, follows, latents = np.array(rows).T
    return {
        "reward_prediction_loss": (weights * rewards).sum() / weights.sum(),
        "end_prediction_loss": (weights * ends).sum() / weights.sum(),
        "latent_prediction_loss": (follows * latents).sum() / follows.sum(),
    }


def codes_of(net: Network, batch: Batch) -> torch.Tensor:
    every = Observations(net, batch.frames, batch.ages).pick(torch.arange(batch.ages.numel()))
    codes: torch.Tensor = net(every)[CODE]
    return codes


def own_loss(net: Network, minibatch: Minibatch[Steps]) -> Any:
    """Return the loss of the autoencoder alone, and its terms."""
    observations, steps, ahead, _ = minibatch
    return auxiliary.loss(net, net(observations)[CODE], observations, ahead, steps.weights)


@pytest.mark.parametrize("seed", range(3))
def test_the_prediction_loss_is_the_slow_one(seed: int) -> None:
    batch, net = noise(length=20, seed=seed), autoencoder_net("predict", seed=seed)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.startswith("auxiliary"):  # biases too, which are 0 at first
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    windows, length = batch.actions.shape
    algorithm = APPO(minibatch=5)
    prepared = algorithm.prepare(net, batch, algorithm.start())
    index = torch.randperm(windows * length, generator=torch.Generator().manual_seed(seed))
    places = [divmod(i, length) for i in index.tolist()[: len(index) // 4]]
    want = slow_losses(net, batch, codes_of(net, batch), places)
    minibatch = prepared.select(index)
    net.auxiliary_weight = 0.3
    total, terms = own_loss(net, minibatch)
    for name, value in want.items():
        assert terms[name].item() == pytest.approx(value, rel=1e-4), name
    assert terms["prediction_loss"].item() == pytest.approx(sum(want.values()), rel=1e-4)
    assert total.item() == pytest.approx(0.3 * sum(want.values()), rel=1e-4)


def test_the_targets_have_no_gradient_and_are_those_of_the_prepared_network() -> None:
    net, algorithm = autoencoder_net("predict"), APPO()
    prepared = algorithm.prepare(net, noise(), algorithm.start())
    first: Any = prepared.select(torch.arange(42)).ahead
    assert not first.latents.requires_grad
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.5)
    again: Any = prepared.select(torch.arange(42)).ahead
    assert torch.equal(first.latents, again.latents)


def test_a_batch_in_which_nothing_is_known_has_the_loss_0() -> None:
    batch = noise()
    net, unknown = autoencoder_net("predict"), batch._replace(mask=torch.zeros_like(batch.mask))
    total, _ = own_loss(net, whole(APPO(), net, unknown))
    torch.autograd.backward(total)
    assert total.item() == 0.0


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e30])
def test_rewards_of_steps_without_loss_move_nothing(garbage: float) -> None:
    batch = noise(seed=2)
    assert (~batch.mask).any()
    spoilt = batch._replace(rewards=batch.rewards.masked_fill(~batch.mask, garbage))
    latents = torch.zeros(len(batch.ages.flatten()), 16)
    index = torch.arange(batch.actions.numel())
    given, same = (Future(each, latents, 0.5).select(index) for each in (batch, spoilt))
    assert all(torch.equal(one, other) for one, other in zip(given, same, strict=True))


def gradient(net: Network, total: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the first layer."""
    found: torch.Tensor = torch.autograd.grad(total, next(net.parameters()), retain_graph=True)[0]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_the_first_layer_has_a_gradient_from_both_losses(form: str) -> None:
    """The branches that the paper's autoencoder is known from may have used only one of them."""
    batch, net, algorithm = noise(), autoencoder_net(form), APPO(minibatch=64)
    algorithm_state, minibatch = algorithm.start(), whole(algorithm, net, batch)
    first = next(iter(dict(net.named_parameters())))
    assert first == ("encoder.convolution.weight" if form == "latent" else "torso.hidden.weight")
    net.auxiliary_weight = 0.0
    without, _ = algorithm.loss(net, minibatch, algorithm_state)
    net.auxiliary_weight = 2.0
    both, terms = algorithm.loss(net, minibatch, algorithm_state)
    own, more = own_loss(net, minibatch)
    policy, decoder = gradient(net, without), gradient(net, own)
    assert min(policy.abs().max(), decoder.abs().max()) > 1e-4
    torch.testing.assert_close(gradient(net, both), policy + decoder, rtol=1e-3, atol=1e-6)
    name = "prediction_loss" if form == "predict" else "reconstruction_loss"
    assert terms[name] == more[name]
    assert (both - without).item() == pytest.approx(2.0 * terms[name].item(), rel=1e-4)


def test_dqn_predicts_from_steps_spread_over_all_windows() -> None:
    batch, algorithm = noise(length=8), DQN(returns="q_lambda", target_every=0)
    net = autoencoder_net("predict", heads=partial(algorithm.heads, 3))
    algorithm_state = algorithm.start()
    prepared = whole(algorithm, net, batch)
    places = [(n, t) for n in range(len(batch.actions)) for t in (0, 4)]  # each fourth of all
    want = sum(slow_losses(net, batch, codes_of(net, batch), places).values())
    net.auxiliary_weight = 0.0
    without, _ = algorithm.loss(net, prepared, algorithm_state)
    net.auxiliary_weight = 2.0
    both, terms = algorithm.loss(net, prepared, algorithm_state)
    assert terms["prediction_loss"].item() == pytest.approx(want, rel=1e-4)
    assert (both - without).item() == pytest.approx(2.0 * want, rel=1e-3)
    own, _ = auxiliary.window_loss(net, codes_of(net, batch), batch)
    assert gradient(net, own).abs().max() > 1e-4
    parts = gradient(net, without) + gradient(net, own)
    torch.testing.assert_close(gradient(net, both), parts, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_each_form_learns_catch(form: Any, tmp_path: Path) -> None:
    experiment = replace(with_network(PRESETS["catch"], autoencoder=form), deterministic=True)
    learn(experiment, tmp_path / "run", log=pytest.fail)
    rows = read_metrics(tmp_path / "run")
    name = "prediction_loss" if form == "predict" else "reconstruction_loss"
    assert rows[-1][name] < 0.95 * rows[0][name]
    assert (tmp_path / "run" / "reconstruction.png").exists() == (form != "predict")
