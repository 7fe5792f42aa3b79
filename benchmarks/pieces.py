"""What single choices of the code gain, each against what it replaced: python benchmarks/pieces.py

Processor time of one thread, so a busy machine does not matter much; the best of several repeats.
Writes results/pieces.json; docs/results.md has its table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from gelada.core.types import Version
from gelada.experiment.presets import preset
from gelada.nets import torsos
from gelada.nets.config import TorsoName
from gelada.nets.network import InputStatistics, Network
from gelada.nets.observations import AT_ONCE, Observations, all_stacks
from gelada.nets.torsos import in_blocks
from gelada.ops.flat import FlatParameters
from gelada.ops.optimizers import Adam, OptimizerSettings
from gelada.runtime.system import describe_machine
from gelada.training.start import Start, make_network

WINDOWS, LENGTH, MINIBATCH, GAMES = 16, 64, 256, 8


def cost(work: Callable[[], object], repeats: int = 8, calls: int = 20) -> float:
    """Return the milliseconds of processor time of one call."""
    work()
    best = float("inf")
    for _ in range(repeats):
        start = time.thread_time()
        for _ in range(calls):
            work()
        best = min(best, (time.thread_time() - start) / calls)
    return round(1000 * best, 4)


def network(torso: TorsoName, side: int, width: int) -> Network:
    """Return a network for Pong in bfloat16."""
    experiment = preset("pong")[0]
    chosen = replace(experiment.network, torso=torso, width=width)
    levels = np.full((side, side), 90.0, np.float32)
    statistics = InputStatistics(levels, np.full((side, side), 20.0, np.float32))
    start = Start(statistics, 6, "bfloat16", Version(0, 0), 0, None, {}, None, {})
    return make_network(replace(experiment, network=chosen), start)


def gradient(net: nn.Module, stacks: torch.Tensor) -> None:
    """Look at stacks, and go the way back; gradients stay where they are in memory."""
    net.zero_grad(set_to_none=False)
    torch.autograd.backward(sum(out.square().mean() for out in net(stacks).values()))


def both(torso: TorsoName, side: int, width: int) -> dict[str, tuple[float, float]]:
    """Return what blocks gain for a network's gradient, and what compiling it does."""
    net = network(torso, side, width)
    pixels = net.preprocess(torch.randint(0, 255, (MINIBATCH, 4, side, side), dtype=torch.uint8))
    blocks = in_blocks(pixels, net.block).flatten(1, 3)
    pixels, blocks = (s.contiguous(memory_format=torch.channels_last) for s in (pixels, blocks))
    ours = cost(lambda: gradient(net, blocks), calls=5)
    found = {}
    if net.block > 1:
        plain = cost(lambda: gradient(net, pixels), calls=5)
        found[f"gradient of {torso} at {side}: blocks as channels, against pixels"] = (ours, plain)
    with patch.object(torsos, "in_channels_last", lambda gradient: gradient):
        name = f"gradient of {torso} at {side}: going back in the convolutions' order, or not"
        found[name] = ours, cost(lambda: gradient(net, blocks), calls=5)
    began = time.monotonic()
    compiled = cast(nn.Module, torch.compile(net))
    gradient(compiled, blocks)
    print(f"torch.compile of {torso} at {side}: {time.monotonic() - began:.0f} s at the start")
    name = f"gradient of {torso} at {side}: as it is, against torch.compile"
    found[name] = ours, cost(lambda: gradient(compiled, blocks), calls=5)
    return found


def layout() -> tuple[float, float]:
    """Return what laying out a batch costs at 84x84, and what it costs the plain way."""
    net = network("dqn2013", 84, 256)
    frames = torch.randint(0, 255, (WINDOWS, LENGTH + 4, 84, 84), dtype=torch.uint8)
    ages = torch.full((WINDOWS, LENGTH + 1), 9)

    def plain() -> torch.Tensor:
        seen = torch.stack([net.preprocess(window) for window in frames])
        blocks = in_blocks(all_stacks(seen, 4), net.block)
        return blocks.permute(0, 1, 5, 6, 2, 3, 4).contiguous()

    return cost(lambda: Observations(net, frames, ages), calls=5), cost(plain, calls=5)


def plain_adam(values: torch.Tensor, gradient: torch.Tensor) -> Callable[[], object]:
    """Return a step of Adam in plain operations."""
    mean, square, scratch = (torch.zeros_like(values) for _ in range(3))

    def step() -> None:
        mean.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        torch.sqrt(square, out=scratch).add_(1e-5)
        values.addcdiv_(mean, scratch, value=-1e-5)

    return step


def adam(torso: TorsoName, side: int, width: int) -> tuple[float, float]:
    """Return what Adam's step costs, and what it costs in plain operations."""
    flat = FlatParameters(network(torso, side, width))
    flat.gradients.normal_()
    ours = Adam(flat.values, OptimizerSettings())
    plain = plain_adam(flat.values.clone(), flat.gradients)
    return cost(lambda: ours.step(flat.gradients, 1e-5)), cost(plain)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = network("small", 42, 256)
    frames = torch.randint(0, 255, (WINDOWS, LENGTH + 4, 42, 42), dtype=torch.uint8)
    ages = torch.full((WINDOWS, LENGTH + 1), 9)
    index = torch.randperm(WINDOWS * LENGTH)[:MINIBATCH]
    views, windows = all_stacks(net.preprocess(frames), 4), Observations(net, frames, ages)

    acting = net.for_acting(["policy"])
    torso = acting.torso
    assert torso.norm is not None
    modules = nn.Sequential(
        torso.convolutions[0], nn.ReLU(), torso.convolutions[1], nn.ReLU(), nn.Flatten(),
        torso.hidden, torso.norm, nn.ReLU(),
    )  # fmt: skip
    seen = acting.preprocess(torch.randint(0, 255, (GAMES, 4, 42, 42), dtype=torch.uint8))
    with torch.inference_mode():
        act = cost(lambda: torso(seen), calls=200), cost(lambda: modules(seen), calls=200)
    pieces = {
        "standardise a batch: in parts that fit the cache, against at once": (
            cost(
                lambda: [
                    net.preprocess(part) for part in torch.split(frames.flatten(0, 1), AT_ONCE)
                ]
            ),
            cost(lambda: net.preprocess(frames)),
        ),
        "pick a minibatch: rows of channels-last stacks, against views of frames": (
            cost(lambda: windows.pick(index)),
            cost(lambda: views[index // LENGTH, index % LENGTH]),
        ),
        "forward and backward of a minibatch: channels-last stacks, against views": (
            cost(lambda: gradient(net, windows.pick(index)), calls=5),
            cost(lambda: gradient(net, views[index // LENGTH, index % LENGTH]), calls=5),
        ),
        f"torso for {GAMES} observations: calling functions, against modules": act,
        "Adam step of small: one kernel, against plain operations": adam("small", 42, 256),
        "Adam step of nature: one kernel, against plain operations": adam("nature", 84, 512),
        "lay out a batch at 84: rows as numbers into memory that is kept, against pixels": layout(),
        **both("small", 42, 256),
        **both("dqn2013", 84, 256),
        **both("nature", 84, 512),
    }
    result = {
        "unit": "milliseconds of processor time of one thread",
        "pieces": {name: {"ours": a, "instead": b} for name, (a, b) in pieces.items()},
        "machine": describe_machine(),
    }
    for name, (a, b) in pieces.items():
        print(f"{a:9.3f} {b:9.3f} ms   {name}")
    path = Path(__file__).parent / "results" / "pieces.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
