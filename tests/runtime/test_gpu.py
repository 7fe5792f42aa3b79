"""What a GPU must do as a CPU does it; `make test-gpu` runs these."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import colobus
from colobus.algorithms.appo import APPO
from colobus.core.checkpoint import newest_checkpoint
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import Optimizer, OptimizerSettings
from colobus.roles.backprop import Backprop, CudaGraphBackprop
from colobus.roles.replay.queue import as_batch
from colobus.runtime.devices import WARM_UP, Devices, Placement, Recorded, own_stream, prepare
from colobus.training.run import train
from conftest import make_net, random_trajectory, short_pong

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def gpu() -> torch.device:
    """Return the first GPU; without one a test is skipped, unless `make test-gpu` asks for it."""
    if not torch.cuda.is_available():
        if os.environ.get("COLOBUS_TEST_GPU"):
            pytest.fail("no CUDA device")
        pytest.skip("no CUDA device")
    return torch.device("cuda", 0)


QUIET: dict[str, Any] = {"tensorboard": False, "log": lambda _line: None}


def gradient_on(device: torch.device, algorithm: APPO) -> torch.Tensor:
    """Return the gradient of one minibatch, and the parameters after Adam's step, on the host."""
    net = make_net().to(device)
    flat, algorithm_state = FlatParameters(net), algorithm.start()
    batch = as_batch([random_trajectory(np.random.default_rng(3), games=6, length=20)])
    prepared = algorithm.prepare(net, batch.to(device), algorithm_state)
    index = torch.arange(0, prepared.size, 2, device=device)
    total, _ = algorithm.loss(net, prepared.select(index), algorithm_state)
    torch.autograd.backward(total)
    Optimizer(flat.values, OptimizerSettings()).step(flat.gradients, 1e-2)
    return torch.cat([flat.gradients, flat.values]).cpu()


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_a_step_is_that_of_the_cpu(gpu: torch.device, advantage: Any) -> None:
    prepare(Placement(gpu, gpu), deterministic=False)
    algorithm = APPO(advantage=advantage)
    want = gradient_on(torch.device("cpu"), algorithm)
    torch.testing.assert_close(gradient_on(gpu, algorithm), want, rtol=1e-4, atol=1e-4)


def test_nothing_waits_for_the_gpu_inside_a_round(gpu: torch.device) -> None:
    net, algorithm = make_net().to(gpu), APPO()
    flat, algorithm_state = FlatParameters(net), algorithm.start()
    optimizer = Optimizer(flat.values, OptimizerSettings())
    batch = as_batch([random_trajectory(np.random.default_rng(3), games=6, length=20)])
    moved = batch.to(gpu)
    with own_stream(gpu):
        torch.cuda.set_sync_debug_mode("error")
        try:
            prepared = algorithm.prepare(net, moved, algorithm_state)
            order = torch.randperm(prepared.size).to(gpu, non_blocking=True)
            for index in torch.split(order, 32):
                total, _ = algorithm.loss(net, prepared.select(index), algorithm_state)
                flat.zero_gradients()
                torch.autograd.backward(total)
                flat.clip(0.5)
                optimizer.step(flat.gradients, 1e-3)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert bool(flat.values.isfinite().all())


def learned(gpu: torch.device, graphs: bool, rounds: int) -> tuple[torch.Tensor, list[float]]:
    """Return the parameters after some rounds with other batches each, and all losses."""
    net, algorithm = make_net().to(gpu), APPO(advantage="vtrace", kl_coeff=0.1)
    flat, algorithm_state = FlatParameters(net), algorithm.start()
    optimizer = Optimizer(flat.values, OptimizerSettings())
    make = CudaGraphBackprop if graphs else Backprop
    backprop, random, found = make(algorithm, 0, 0), np.random.default_rng(3), list[torch.Tensor]()
    order = torch.Generator().manual_seed(3)
    for number in range(rounds):
        algorithm_state["entropy"].fill_(0.01 / (number + 1))  # as a schedule does
        batch = as_batch([random_trajectory(random, games=6, length=20)]).to(gpu)
        rows = torch.randperm(120, generator=order).to(gpu)
        recorded = graphs and number > WARM_UP
        torch.cuda.set_sync_debug_mode("error" if recorded else "default")
        try:
            prepared = backprop.prepare(net, batch, algorithm_state)
            for index in torch.split(rows, 50):  # the last is smaller
                found.append(
                    backprop.minibatch(flat, prepared, index, algorithm_state, None, None).values
                )
                optimizer.step(flat.gradients, 1e-3)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return flat.values.cpu(), torch.cat(found).tolist()


def test_learning_by_graphs_is_learning_without_bit_for_bit(gpu: torch.device) -> None:
    prepare(Placement(gpu, gpu), deterministic=True)
    try:
        with own_stream(gpu):
            want, found = (learned(gpu, graphs, WARM_UP + 3) for graphs in (False, True))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(want[0], found[0])
    assert want[1] == found[1]


def test_acting_by_graphs_is_acting_without_bit_for_bit(gpu: torch.device) -> None:
    prepare(Placement(gpu, gpu), deterministic=False)
    net, algorithm = make_net().for_acting(("policy",)).to(gpu), APPO()

    def act(stacks: torch.Tensor, state: torch.Tensor | None) -> Any:
        return algorithm.act(net, stacks, state)

    recorded, random = Recorded(act), torch.Generator().manual_seed(3)
    height, width = net.mean.shape
    with own_stream(gpu), torch.inference_mode():
        for step in range(WARM_UP + 3):
            stacks = torch.randn(8, net.stack, height, width, generator=random).to(gpu)
            scores = recorded(stacks, None)[0]
            assert torch.equal(scores, act(stacks, None)[0])
            assert recorded.recorded == (step >= WARM_UP)


def test_a_run_by_graphs_is_that_without_bit_for_bit(gpu: torch.device, tmp_path: Path) -> None:
    experiment = short_pong(WARM_UP + 8, deterministic=True)
    for name in ("without", "with"):
        devices = Devices("cuda", cuda_graphs=name == "with")
        train(experiment, tmp_path / name, log=lambda _: None, devices=devices)
    want, found = parameters_of(tmp_path / "without"), parameters_of(tmp_path / "with")
    assert all(torch.equal(want[name], found[name]) for name in want)


def parameters_of(folder: Path) -> dict[str, torch.Tensor]:
    return newest_checkpoint(folder / "checkpoints")[1].group("parameter")


def test_a_seed_gives_the_same_run_bit_for_bit(gpu: torch.device, tmp_path: Path) -> None:
    experiment = short_pong(10, deterministic=True)
    found = []
    for name in ("one", "two"):
        train(experiment, tmp_path / name, log=lambda _: None, devices=Devices("cuda"))
        found.append(parameters_of(tmp_path / name))
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize(("first", "then"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_run_goes_on_on_the_other_device(
    gpu: torch.device, tmp_path: Path, first: str, then: str
) -> None:
    run = tmp_path / "run"
    began = colobus.train("catch", run, steps=5_000, device=first, **QUIET)
    result = colobus.train(resume=run, steps=10_000, device=then, **QUIET)
    assert result.steps >= 10_000 > began.steps
    about = json.loads((run / "config.json").read_text())["about"]
    assert about["device"].startswith(first)


def test_catch_is_learned_and_played(gpu: torch.device, tmp_path: Path) -> None:
    result = colobus.train("catch", tmp_path / "run", device="cuda", **QUIET)
    assert result.score is not None
    assert result.score >= 0.9
    scores = [
        colobus.evaluate(colobus.load(result.folder, device=device), episodes=100).mean
        for device in ("cpu", "cuda")
    ]
    assert min(scores) > 0.8


def test_workers_learn_on_a_gpu(gpu: torch.device, tmp_path: Path) -> None:
    experiment = colobus.preset("dba3c-catch", steps=20_000)
    experiment = replace(experiment, tracker=replace(experiment.tracker, tensorboard=False))
    result = train(experiment, tmp_path / "run", log=lambda _: None, devices=Devices("cuda"))
    assert result.steps >= 20_000
