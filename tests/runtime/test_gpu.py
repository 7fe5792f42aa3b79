"""What a GPU must do as a CPU does it; `make test-gpu` runs these."""

from __future__ import annotations

import json
import os
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
from colobus.roles.replay.queue import as_batch
from colobus.runtime.devices import WARM_UP, Devices, Placement, prepare
from colobus.training.run import train
from conftest import make_net, random_trajectory, short_pong
from helpers.launching import QUIET

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def gpu() -> torch.device:
    """Return the first GPU; without one a test is skipped, unless `make test-gpu` asks for it."""
    if not torch.cuda.is_available():
        if os.environ.get("COLOBUS_TEST_GPU"):
            pytest.fail("no CUDA device")
        pytest.skip("no CUDA device")
    return torch.device("cuda", 0)


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


def test_a_run_by_graphs_is_that_without_bit_for_bit(gpu: torch.device, tmp_path: Path) -> None:
    """With minibatches of two sizes, and a weight of the entropy that moves."""
    algorithm = APPO(advantage="vtrace", minibatch=50, kl_adjust=1.0, kl_coeff=0.1)
    experiment = short_pong(WARM_UP + 8, deterministic=True, algorithm=algorithm)
    for name in ("without", "with"):
        devices = Devices("cuda", cuda_graphs=name == "with")
        train(experiment, tmp_path / name, log=lambda _: None, devices=devices)
    want, found = parameters_of(tmp_path / "without"), parameters_of(tmp_path / "with")
    assert all(torch.equal(want[name], found[name]) for name in want)


def parameters_of(folder: Path) -> dict[str, torch.Tensor]:
    return newest_checkpoint(folder / "checkpoints")[1].group("parameter")


@pytest.mark.parametrize(("first", "then"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_run_goes_on_on_the_other_device(tmp_path: Path, first: str, then: str) -> None:
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
    run = tmp_path / "run"
    assert colobus.train("dba3c-catch", run, steps=20_000, device="cuda", **QUIET).steps >= 20_000
