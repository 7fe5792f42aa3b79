"""How fast this machine could train, and how fast it does: ``gelada bench``.

The limit is ``1 / (1/R_emulate + 1/R_act + 1/R_learn)``: each rate is that of a raw stage with all
cores running that stage alone. The stages use the emulator and the network and nothing else of
Gelada (no roles, no algorithm), so its own overhead counts against it.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gelada.core.seeding import game_seeds
from gelada.envs.make import make_games
from gelada.nets.network import Network
from gelada.nets.observations import Observations
from gelada.ops.flat import FlatParameters
from gelada.ops.optimizers import make_optimizer
from gelada.roles.tracker import Status, StopRule
from gelada.runtime.api import Active
from gelada.runtime.groups import Cluster
from gelada.runtime.system import describe_machine, keep_freed_memory
from gelada.training.buffers import batch_of
from gelada.training.experiment import Experiment
from gelada.training.run import train
from gelada.training.start import Start, begin, make_network, open_games

Progress = Callable[[str, float], None]
"""Told the stage and the share of the whole that is done."""

SETTLED = 0.3
"""Share of the training time that is not counted: loading, first kernels, filling queues."""


def bench(
    experiment: Experiment,
    seconds: float = 40.0,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Measure the limit, train, measure the limit again, and return rates and their ratio.

    The limit is always that of this machine; with a ``cluster``, training lives in its processes.

    Rates are steps (agent decisions) per second; ``act`` and ``learn`` samples are steps too, a
    learned one with all its passes, or as often as an experience store is drawn from for it. Half
    the time goes to training. The limit is the mean of before and after, because shared machines
    drift.
    """
    tell = progress or (lambda _stage, _share: None)
    keep_freed_memory()
    torch.set_num_threads(1)
    experiment = replace(
        experiment,
        stop=StopRule(minutes=seconds / 2 / 60),
        tracker=replace(experiment.tracker, tensorboard=False, checkpoint_seconds=1e9),
    )
    start = begin(experiment, open_games(experiment))
    share = seconds / 12
    before = _limit(experiment, start, share, lambda stage, part: tell(stage, 0.25 * part))
    with tempfile.TemporaryDirectory() as folder:
        counts: list[tuple[float, int]] = []

        def watch(status: Status, _active: Sequence[Active]) -> None:
            counts.append((status.seconds, status.steps))
            tell("train", 0.25 + 0.5 * min(status.seconds / (seconds / 2), 1.0))

        result = train(
            experiment,
            Path(folder) / "run",
            "bench",
            watch=watch,
            log=lambda _: None,
            cluster=cluster,
        )
        counts.append((result.status.seconds, result.status.steps))
    after = _limit(experiment, start, share, lambda stage, part: tell(stage, 0.75 + 0.25 * part))
    rates = {name: (before[name] + after[name]) / 2 for name in before}
    limit = 1.0 / sum(1.0 / rate for rate in rates.values())
    achieved = steady_rate(counts)
    return {
        "game": experiment.games.game,
        "precision": start.precision,
        "emulate_steps_per_s": round(rates["emulate"], 1),
        "act_samples_per_s": round(rates["act"], 1),
        "learn_samples_per_s": round(rates["learn"], 1),
        "limit_steps_per_s": round(limit, 1),
        "limit_before_after": [
            round(1.0 / sum(1.0 / rate for rate in part.values()), 1) for part in (before, after)
        ],
        "achieved_steps_per_s": round(achieved, 1),
        "share_of_limit": round(achieved / limit, 3),
        "machine": describe_machine(),
    }


def steady_rate(counts: Sequence[tuple[float, int]]) -> float:
    """Return steps per second from (seconds, steps) pairs, without the first `SETTLED` part."""
    end_seconds, end_steps = counts[-1]
    since = [(s, n) for s, n in counts if n > 0 and s >= SETTLED * end_seconds]
    first_seconds, first_steps = since[0]
    return (end_steps - first_steps) / max(end_seconds - first_seconds, 1e-9)


def _limit(
    experiment: Experiment, start: Start, seconds: float, tell: Progress
) -> dict[str, float]:
    """Return the rate of each raw stage with all cores on it alone."""
    stages: dict[str, Callable[[int], Callable[[], int]]] = {
        "emulate": lambda i: _emulate(experiment, i),
        "act": lambda _: _act(experiment, start),
        "learn": lambda _: _learn(experiment, start),
    }
    rates = {}
    for done, (name, make) in enumerate(stages.items()):
        tell(name, done / len(stages))
        rates[name] = _rate([make(i) for i in range(os.cpu_count() or 1)], seconds)
    return rates


def _rate(works: Sequence[Callable[[], int]], seconds: float) -> float:
    """Repeat each work on a thread of its own for so long; return what they count, per second."""
    totals = [0] * len(works)
    ready = threading.Barrier(len(works) + 1)
    until = [0.0]

    def run(index: int) -> None:
        torch.set_num_threads(1)
        works[index]()  # warm up
        ready.wait()
        ready.wait()
        while time.monotonic() < until[0]:
            totals[index] += works[index]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.monotonic()
    until[0] = start + seconds
    ready.wait()
    for thread in threads:
        thread.join()
    return sum(totals) / (time.monotonic() - start)


def _emulate(experiment: Experiment, index: int) -> Callable[[], int]:
    """Return a work that plays 16 steps of random actions in as many games as an actor has."""
    count = experiment.shape.games
    games = make_games(experiment.games, game_seeds(experiment.seed, "bench", count, index))
    games.reset()
    random = np.random.default_rng(index)

    def work() -> int:
        for _ in range(16):
            games.step(random.integers(games.actions, size=count))
        return 16 * count

    return work


def _act(experiment: Experiment, start: Start) -> Callable[[], int]:
    """Return a work that looks at as many observations as an actor has games, 16 times."""
    net = make_network(experiment, start).for_acting(experiment.algorithm.acting_heads)
    count = experiment.shape.games
    frames = torch.randint(0, 255, (count, net.stack, *net.mean.shape), dtype=torch.uint8)
    policy = net.heads[next(iter(net.heads))]
    seen = net.preprocess(frames)

    def work() -> int:
        with torch.inference_mode():
            for _ in range(16):
                policy(net.features(seen)).argmax(dim=1)
        return 16 * count

    return work


def _learn(experiment: Experiment, start: Start) -> Callable[[], int]:
    """Return a work that assembles one batch and makes all passes of learning on it.

    What comes from an experience store counts as the steps that are played for it.
    """
    algorithm = experiment.algorithm
    net: Network = make_network(experiment, start)
    flat = FlatParameters(net)
    optimizer = make_optimizer(flat.values, experiment.optimizer)
    windows, length = batch_of(experiment)
    length = algorithm.learned(length)
    size = (windows, length + net.stack, *net.mean.shape)
    frames = torch.randint(0, 255, size, dtype=torch.uint8)
    ages = torch.full((windows, length + 1), net.stack)
    samples = windows * length
    steps = samples
    if algorithm.source == "buffer":
        steps = round(windows / experiment.replay.samples_per_insert)

    def work() -> int:
        observations = Observations(net, frames, ages)
        if algorithm.evaluates_first:  # all observations, for the targets
            with torch.no_grad():
                for stacks in observations.chunks(algorithm.minibatch):
                    net(stacks)
        for _ in range(algorithm.epochs):
            for index in torch.split(torch.randperm(samples), algorithm.minibatch):
                outputs = net(observations.pick(index))
                flat.zero_gradients()
                torch.autograd.backward(sum(out.square().mean() for out in outputs.values()))
                optimizer.step(flat.gradients, 1e-4)
        return steps

    return work
