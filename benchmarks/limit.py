"""How fast this machine could learn at most: python benchmarks/limit.py pong breakout

The limit is ``1 / (1 / R_emulate + 1 / R_act + 1 / R_learn)``. Each rate is that of a raw stage,
with all cores running that stage alone, a process on each. Of Gelada only the network is used; the
emulator is ale-py's, assembling a batch and the optimizer's step are written down here with torch.
So whatever the roles, their waiting and their bookkeeping cost counts against Gelada.

Rates are steps a second (a step is an agent's decision, four frames). A learned one has all its
epochs in it, and the look at all observations before them that gives the targets their values.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from ale_py import ALEInterface, ALEVectorInterface, LoggerMode, roms

from gelada.nets.heads import Linear, MakeHeads
from gelada.nets.network import InputStatistics, Network, NetworkSettings, Precision
from gelada.nets.precision import faster_precision

Work = Callable[[], int]
"""Does a piece of a stage; returns the steps in it."""

AT_ONCE = 16
"""Vector steps in a piece of emulating or acting."""

PATIENCE = 120.0
"""Seconds that the processes wait for the slowest of them to be ready."""


@dataclass(frozen=True)
class What:
    """What is learned, with the default recipe's numbers."""

    game: str = "pong"
    torso: Any = "small"
    width: int = 256  # units of the hidden layer
    size: int = 42  # side of the frames
    epochs: int = 3  # times each sample is learned from
    minibatch: int = 256  # samples in a gradient
    games: int = 8  # played side by side
    windows: int = 16  # in a batch: trajectories of two actors with eight games each
    length: int = 128  # steps of a window
    actions: int = 6
    precision: Precision = "float32"

    @property
    def heads(self) -> MakeHeads:
        return lambda width: {"policy": Linear(width, self.actions), "value": Linear(width, 1)}

    def network(self) -> Network:
        levels = np.full((self.size, self.size), 90.0, np.float32)
        statistics = InputStatistics(levels, np.full_like(levels, 20.0))
        settings = NetworkSettings(torso=self.torso, width=self.width)
        return Network(settings, levels.shape, self.heads, statistics, self.precision)


def emulator(what: What) -> Any:
    """Return the games, played as Gelada plays them."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    rom = roms.get_rom_path(what.game)
    assert rom is not None, what.game
    return ALEVectorInterface(
        rom_path=rom,
        num_envs=what.games,
        frame_skip=4,
        stack_num=1,
        img_height=what.size,
        img_width=what.size,
        grayscale=True,
        maxpool=True,
        noop_max=30,
        use_fire_reset=True,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        max_episode_steps=108_000,
        repeat_action_probability=0.0,
        full_action_space=False,
        batch_size=0,
        num_threads=1,
        thread_affinity_offset=-1,
        autoreset_mode="SameStep",
    )


def emulate(what: What, index: int) -> Work:
    """Return a piece of playing random actions."""
    ale = emulator(what)
    random = np.random.default_rng(index)
    ale.reset(np.arange(what.games), random.integers(1, 2**31 - 1, what.games))
    strength = np.ones(what.games, dtype=np.float32)

    def work() -> int:
        for _ in range(AT_ONCE):
            ale.send(random.integers(what.actions, size=what.games), strength)
            ale.recv()
        return AT_ONCE * what.games

    return work


def act(what: What, index: int) -> Work:
    """Return a piece of choosing actions for ready-made observations of all games."""
    net = what.network().for_acting(["policy"])
    frames = noise((what.games, net.stack, what.size, what.size), index)
    policy, seen = net.heads["policy"], net.preprocess(frames)

    def work() -> int:
        with torch.inference_mode():
            for _ in range(AT_ONCE):
                policy(net.features(seen)).argmax(dim=1)
        return AT_ONCE * what.games

    return work


def learn(what: What, index: int) -> Work:
    """Return a piece that assembles one batch and makes all epochs of learning on it."""
    net = what.network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    frames = noise((what.windows, what.length + net.stack, what.size, what.size), index)
    samples = what.windows * what.length

    def work() -> int:
        rows = assemble(net, frames)
        with torch.no_grad():
            for stacks in rows.split(what.minibatch):
                net(stacks.permute(0, 3, 1, 2))
        for _ in range(what.epochs):
            for chosen in torch.randperm(samples).split(what.minibatch):
                observations = chosen + chosen // what.length  # a window has one more than steps
                outputs = net(rows[observations].permute(0, 3, 1, 2))
                optimizer.zero_grad()
                torch.autograd.backward(sum(out.square().mean() for out in outputs.values()))
                optimizer.step()
        return samples

    return work


def assemble(net: Network, frames: torch.Tensor) -> torch.Tensor:
    """Return all stacks [N (T + 1), H, W, K], standardised, of frames uint8[N, T + K, H, W]."""
    seen = torch.stack([net.preprocess(window) for window in frames])
    return seen.unfold(1, net.stack, 1).contiguous().flatten(0, 1)


def noise(shape: Sequence[int], seed: int) -> torch.Tensor:
    """Return random grey levels, uint8."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, tuple(shape), dtype=torch.uint8, generator=random)


STAGES: dict[str, Callable[[What, int], Work]] = {"emulate": emulate, "act": act, "learn": learn}


def measure(what: What, seconds: float, cores: int) -> dict[str, float]:
    """Return the rate of each stage and the limit, in steps a second.

    Args:
        what: is learned.
        seconds: of measuring, shared by the stages.
        cores: processes that run a stage side by side.
    """
    context = get_context("spawn")
    ready = context.Barrier(cores)
    rates = {}
    with ProcessPoolExecutor(cores, context, initializer=_begin, initargs=(ready,)) as pool:
        for stage in STAGES:
            tasks = [
                pool.submit(_rate, stage, what, index, seconds / len(STAGES))
                for index in range(cores)
            ]
            rates[stage] = sum(task.result() for task in tasks)
    return rates | {"limit": 1.0 / sum(1.0 / rate for rate in rates.values())}


_ready: Any = None  # in each process: lets all of them measure at the same time


def _begin(ready: Any) -> None:
    global _ready
    _ready = ready
    torch.set_num_threads(1)


def _rate(stage: str, what: What, index: int, seconds: float) -> float:
    """Repeat a stage in this process for so long; return its steps a second."""
    work, steps = STAGES[stage](what, index), 0
    work()  # the first one builds kernels
    _ready.wait(PATIENCE)
    start = time.monotonic()
    while (spent := time.monotonic() - start) < seconds:
        steps += work()
    return steps / spent


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the words of the command line."""
    usual = What()
    parser = argparse.ArgumentParser(description="Measure how fast this machine could learn.")
    parser.add_argument("names", nargs="+", metavar="GAME", help="such as pong")
    parser.add_argument("--torso", default=usual.torso, choices=("small", "dqn2013", "nature"))
    parser.add_argument("--width", type=int, default=usual.width, help="of the hidden layer")
    parser.add_argument("--size", type=int, default=usual.size, help="side of the frames")
    parser.add_argument("--epochs", type=int, default=usual.epochs)
    parser.add_argument("--minibatch", type=int, default=usual.minibatch)
    parser.add_argument("--games", type=int, default=usual.games, help="played side by side")
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring for each game")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    flags = parser.parse_args(words)
    for name in flags.names:
        if name not in roms.get_all_rom_ids():
            parser.error(f"unknown game {name!r}; names are like pong or space_invaders")
    return flags


def main(words: Sequence[str] | None = None) -> None:
    flags = parse(words)
    torch.set_num_threads(1)
    shape = {
        name: getattr(flags, name) for name in ("torso", "width", "size", "epochs", "minibatch")
    }
    plain = What(**shape, games=flags.games)
    settings, frame = (
        NetworkSettings(torso=flags.torso, width=flags.width),
        (flags.size, flags.size),
    )
    precision = faster_precision(settings, frame, plain.heads)
    cores, results = os.cpu_count() or 1, []
    if not flags.json:
        print(f"{flags.torso}, {flags.size}x{flags.size}, {precision}, {cores} cores; steps/s")
        print(f"{'game':<20}" + "".join(f"{name:>10}" for name in (*STAGES, "limit")))
    for name in flags.names:
        actions = len(emulator(What(game=name)).get_action_set())
        what = What(name, **shape, games=flags.games, actions=actions, precision=precision)
        rates = measure(what, flags.seconds, cores)
        results.append(
            {**asdict(what), "cores": cores, **{k: round(v, 1) for k, v in rates.items()}}
        )
        if not flags.json:
            print(f"{name:<20}" + "".join(f"{rate:>10,.0f}" for rate in rates.values()))
    if flags.json:
        sys.stdout.write(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
