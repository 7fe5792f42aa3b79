"""How fast this machine could train at most: the three raw stages, each alone on all cores.

The limit is ``1 / (1 / R_emulate + 1 / R_act + 1 / R_learn)``, with the rate of each stage in steps
(agent decisions) a second while a process on every core runs that stage. The stages use the
emulator, the network, its observations and the optimizer, and nothing else of Gelada: no roles and
no algorithm, so what those cost counts against Gelada. With a process for each core not even
Python's lock is shared.

With a GPU, host and GPU work at the same time, so the limit is the lesser of two: that of the
stages on the cores, which are then emulating, joining trajectories to batches (feed) and perhaps
acting, and that of the stages on the GPU, measured in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch

from gelada.core.seeding import game_seeds
from gelada.envs.make import make_games
from gelada.experiment.memory import batch_of
from gelada.experiment.settings import Experiment
from gelada.nets.network import Network
from gelada.nets.observations import Observations
from gelada.ops.flat import FlatParameters
from gelada.ops.optimizers import Optimizer
from gelada.runtime.devices import CPU, ON_CPU, Placement
from gelada.runtime.system import keep_freed_memory, usable_cores
from gelada.training.start import Start, make_network

Work = Callable[[], int]
"""Does a piece of a stage; returns the steps in it."""

Progress = Callable[[str, float], None]
"""Takes the stage and the share of the whole that is done."""

AT_ONCE = 16
"""Vector steps in a piece of emulating or acting."""

PATIENCE = 120.0
"""Seconds that the processes wait for the slowest of them to be ready."""


class Stages(NamedTuple):
    """Names of the stages by where they run."""

    host: tuple[str, ...]
    device: tuple[str, ...]


def stages_of(placement: Placement) -> Stages:
    """Return which stages run on the cores, and which on another device."""
    acts, learns = (device.type != "cpu" for device in (placement.act, placement.learn))
    host = ["emulate", *([] if acts else ["act"]), "feed" if learns else "learn"]
    device = [*(["act"] if acts else []), *(["learn"] if learns else [])]
    return Stages(tuple(host), tuple(device))


def stage_rates(
    experiment: Experiment,
    start: Start,
    seconds: float,
    tell: Progress,
    placement: Placement = ON_CPU,
) -> dict[str, float]:
    """Return the rate of each stage in steps a second, on all cores together or on the device.

    Args:
        experiment: all settings.
        start: input statistics, actions and precision of the network.
        seconds: of measuring each stage.
        tell: told before each stage.
        placement: devices that learn and act.
    """
    stages = stages_of(placement)
    count = len(stages.host) + len(stages.device)
    cores, context = usable_cores(), get_context("spawn")
    ready = context.Barrier(cores)
    rates = {}
    with ProcessPoolExecutor(cores, context, initializer=_begin, initargs=(ready,)) as pool:
        for done, stage in enumerate(stages.host):
            tell(stage, done / count)
            tasks = [
                pool.submit(_rate, stage, experiment, start, index, seconds)
                for index in range(cores)
            ]
            rates[stage] = sum(task.result() for task in tasks)
    for done, stage in enumerate(stages.device, len(stages.host)):
        tell(stage, done / count)
        device = placement.act if stage == "act" else placement.learn
        rates[stage] = _rate_on(device, STAGES[stage](experiment, start, 0, device), seconds)
    return rates


def limit_of(rates: dict[str, float], placement: Placement = ON_CPU) -> float:
    """Return the limit in steps a second from the rates of the stages."""
    parts = [part for part in stages_of(placement) if part]
    return min(1.0 / sum(1.0 / rates[stage] for stage in part) for part in parts)


def emulate(experiment: Experiment, _start: Start, index: int, _device: torch.device = CPU) -> Work:
    """Return a piece that plays random actions in as many games as an actor has."""
    count = experiment.shape.games
    games = make_games(experiment.games, game_seeds(experiment.seed, "bench", count, index))
    games.reset()
    random = np.random.default_rng(index)

    def work() -> int:
        for _ in range(AT_ONCE):
            games.step(random.integers(games.actions, size=games.count))
        return AT_ONCE * games.count

    return work


def feed(experiment: Experiment, start: Start, _index: int, _device: torch.device = CPU) -> Work:
    """Return a piece that joins the frames of a batch, as a learner on another device gets them."""
    windows, length = batch_of(experiment)
    shape = (1, length + experiment.network.stack, *start.statistics.mean.shape)
    parts = [np.zeros(shape, dtype=np.uint8) for _ in range(windows)]

    def work() -> int:
        np.concatenate(parts)
        return windows * length

    return work


def act(experiment: Experiment, start: Start, _index: int, device: torch.device = CPU) -> Work:
    """Return a piece that chooses actions for ready-made observations of an actor's games."""
    net = make_network(experiment, start).for_acting(experiment.algorithm.acting_heads).to(device)
    count = experiment.shape.games
    size = (count, net.stack, *net.mean.shape)
    frames = torch.randint(0, 255, size, dtype=torch.uint8).to(device)
    policy = net.heads[next(iter(net.heads))]
    seen, first = net.preprocess(frames), net.initial_state(count)

    def work() -> int:
        state = first
        with torch.inference_mode():
            for _ in range(AT_ONCE):
                hidden, state = net.step(seen, state)
                policy(hidden).argmax(dim=1)
        return AT_ONCE * count

    return work


def learn(experiment: Experiment, start: Start, _index: int, device: torch.device = CPU) -> Work:
    """Return a piece that assembles one batch and learns from it in all epochs.

    A batch from a replay buffer counts as the steps that are played for it.
    """
    algorithm = experiment.algorithm
    net: Network = make_network(experiment, start).to(device)
    flat = FlatParameters(net)
    optimizer = Optimizer(flat.values, experiment.optimizer)
    windows, length = batch_of(experiment)
    length = algorithm.learned(length)
    steps = windows * length
    windows = round(windows * (1.0 + experiment.reuse.replay_proportion))
    size = (windows, length + net.stack, *net.mean.shape)
    frames = torch.randint(0, 255, size, dtype=torch.uint8).to(device)
    ages = torch.full((windows, length + 1), net.stack, device=device)
    samples = windows * length
    sequence = getattr(algorithm, "sequence", 1) if net.recurrent else 1
    if algorithm.source == "buffer":
        steps = round(windows / experiment.replay.samples_per_insert)

    prepared = min(experiment.reuse.buffer_batches, algorithm.epochs)  # batches of a round
    steps_of_one = torch.arange(sequence, device=device)

    def work() -> int:
        for _ in range(prepared):
            observations = Observations(net, frames, ages)
            if algorithm.evaluates_first:  # all observations, for the targets
                with torch.no_grad():
                    for stacks in observations.chunks(algorithm.minibatch):
                        net(net.as_sequences(stacks, 1))
        for _ in range(algorithm.epochs):
            rows = torch.randperm(samples // sequence).to(device, non_blocking=True)
            for row in torch.split(rows, max(algorithm.minibatch // sequence, 1)):
                index = (row.unsqueeze(1) * sequence + steps_of_one).flatten()
                outputs = net(net.as_sequences(observations.pick(index), sequence))
                flat.zero_gradients()
                torch.autograd.backward(sum(out.square().mean() for out in outputs.values()))
                optimizer.step(flat.gradients, 1e-4)
        return steps

    return work


STAGES: dict[str, Callable[[Experiment, Start, int, torch.device], Work]] = {
    "emulate": emulate,
    "feed": feed,
    "act": act,
    "learn": learn,
}


_ready: Any = None  # in each process: lets all of them measure at the same time


def _begin(ready: Any) -> None:
    global _ready
    _ready = ready
    keep_freed_memory()
    torch.set_num_threads(1)


def _rate(stage: str, experiment: Experiment, start: Start, index: int, seconds: float) -> float:
    """Repeat a stage in this process for so long; return its steps a second."""
    work, steps = STAGES[stage](experiment, start, index, CPU), 0
    work()  # the first one builds kernels
    _ready.wait(PATIENCE)
    began = time.monotonic()
    while (spent := time.monotonic() - began) < seconds:
        steps += work()
    return steps / spent


def _rate_on(device: torch.device, work: Work, seconds: float) -> float:
    """Repeat a stage in this process for so long; return its steps a second on the device."""

    def finished() -> None:
        if device.type == "cuda":  # until then it has only been queued
            torch.cuda.synchronize(device)

    work()  # the first one builds kernels
    finished()
    steps, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        steps += work()
        finished()
    return steps / (time.monotonic() - began)
