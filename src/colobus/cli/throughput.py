"""How fast this machine could train at most, and how fast it does: ``colobus bench``.

The limit is ``1 / (1 / R_emulate + 1 / R_act + 1 / R_learn)``, with the rate of each stage in steps
(agent decisions) a second while a process on every core runs that stage. The stages use the
emulator, the network, its observations and the optimizer, and nothing else of Colobus: no roles and
no algorithm, so what those cost counts against Colobus. With a process for each core not even
Python's lock is shared.

With a GPU, host and GPU work at the same time, so the limit is the lesser of two: that of the
stages on the cores, which are then emulating, joining trajectories to batches (feed) and perhaps
acting, and that of the stages on the GPU, measured in this process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colobus.core.seeding import game_seeds
from colobus.core.timing import WAIT
from colobus.envs.frames import random_actions
from colobus.envs.make import environment_of, make_games
from colobus.experiment.memory import batch_of
from colobus.experiment.settings import Experiment
from colobus.nets.network import Network
from colobus.nets.observations import Observations
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import Optimizer
from colobus.roles.tracker import Status, StopRule
from colobus.runtime.api import RoleState
from colobus.runtime.devices import (
    CPU,
    ON_CPU,
    Devices,
    Placement,
    describe_devices,
    find_device,
    place,
    prepare,
)
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Cluster
from colobus.runtime.system import describe_machine, keep_freed_memory, usable_cores
from colobus.training.callbacks import StopTraining
from colobus.training.run import train
from colobus.training.start import Start, begin, make_network, open_games
from colobus.training.topology import make_graph

Work = Callable[[], int]
"""Does a piece of a stage; returns the steps in it."""

Progress = Callable[[float], None]
"""Takes the share of the whole that is done."""

AT_ONCE = 16
"""Vector steps in a piece of emulating or acting."""

PATIENCE = 120.0
"""Seconds that the processes wait for the slowest of them to be ready."""

SETTLED = 0.3
"""Share of the training time that is not counted: loading, first kernels, filling queues."""


def bench(
    experiment: Experiment,
    seconds: float,
    tell: Progress,
    cluster: Cluster | None,
    devices: Devices,
) -> dict[str, Any]:
    """Measure the limit, train, measure the limit again, and return rates and their ratio.

    The limit is always that of this machine, on devices as training has them; with a ``cluster``,
    training lives in its processes.

    Rates are steps (agent decisions) per second. ``act`` and ``learn`` samples are steps too: a
    learned one with all its epochs, or as often as a replay buffer is sampled for it. Half the time
    goes to training. The rates of the limit are means of before and after, because shared machines
    drift.
    """
    keep_freed_memory()
    torch.set_num_threads(1)
    placement = place(devices, on_ray=cluster is not None)
    for gpu in placement.gpus:
        find_device(str(gpu))  # those of a training on Ray may be on other hosts
    start = begin(experiment, open_games(experiment), placement.learn)
    prepare(placement, experiment.deterministic)

    each = seconds / 12
    before = stage_rates(experiment, start, each, lambda share: tell(share / 4), placement)
    counts, waits = trained(
        experiment, seconds / 2, cluster, devices, lambda share: tell(0.25 + share / 2)
    )
    after = stage_rates(experiment, start, each, lambda share: tell(0.75 + share / 4), placement)
    rates = {name: (before[name] + after[name]) / 2 for name in before}
    limit = limit_of(rates, placement)
    achieved = steady_rate(counts)
    return {
        "game": experiment.games.game,
        "precision": start.precision,
        "emulate_steps_per_s": round(rates.pop("emulate"), 1),
        **{f"{stage}_samples_per_s": round(rate, 1) for stage, rate in rates.items()},
        "limit_steps_per_s": round(limit, 1),
        "limit_before_after": [round(limit_of(part, placement), 1) for part in (before, after)],
        "achieved_steps_per_s": round(achieved, 1),
        "share_of_limit": round(achieved / limit, 3),
        **waits,
        "machine": describe_machine() | describe_devices(placement),
    }


def measured(experiment: Experiment, stop: StopRule, **shape: Any) -> Experiment:
    """Return the experiment as it is measured: with another end, and writing next to nothing."""
    tracker = replace(experiment.tracker, tensorboard=False, checkpoint_seconds=1e9)
    return replace(experiment, stop=stop, tracker=tracker, shape=replace(experiment.shape, **shape))


def trained(
    experiment: Experiment,
    seconds: float,
    cluster: Cluster | None,
    devices: Devices | None,
    tell: Progress,
    make: Callable[..., RoleGraph] = make_graph,
) -> tuple[list[tuple[float, int]], dict[str, float]]:
    """Train for so long, into a folder that is deleted; return what was seen.

    Args:
        experiment: all settings; its stop rule and what it writes do not count.
        seconds: of training, since the first version.
        cluster: of processes (None: threads).
        devices: of the networks (None: the CPU).
        tell: takes the share of the time that is over.
        make: makes the graph of the roles.

    Returns:
        (seconds, steps), about twice a second since then and at the end, and `waiting_shares`.

    Raises:
        KeyboardInterrupt: if Ctrl-C has ended it.
    """
    counts: list[tuple[float, int]] = []
    roles: list[RoleState] = []

    def watch(status: Status, now: Sequence[RoleState]) -> None:
        roles[:] = now
        if status.version:  # processes of Ray take their time to begin
            counts.append((status.seconds, status.steps))
            share = (status.seconds - counts[0][0]) / seconds
            tell(min(share, 1.0))
            if share >= 1.0:
                raise StopTraining

    with tempfile.TemporaryDirectory() as folder:
        result = train(
            measured(experiment, StopRule(minutes=seconds / 60 + 8)),  # if there is no version
            Path(folder) / "run",
            "bench",
            watch=watch,
            log=lambda _: None,
            cluster=cluster,
            devices=devices,
            make=make,
        )
    if result.interrupted:
        raise KeyboardInterrupt
    counts.append((result.status.seconds, result.status.steps))
    return counts, waiting_shares(roles)


def waiting_shares(roles: Sequence[RoleState]) -> dict[str, float]:
    """Return for which share of its time the first learner waited, and the first loader if any.

    Returns:
        ``learner_waits`` and ``loader_waits``, for any other role, and ``learner_waits_for_batch``.
        A learner without a loader joins its batch in that time too.
    """
    found = dict[str, float]()
    for role in roles:
        if role.name not in ("loader-0", "learner-0"):
            continue
        seconds, name = role.seconds, role.name.removesuffix("-0")
        total = max(sum(seconds.values()), 1e-9)
        waited = sum(spent for stage, spent in seconds.items() if stage.startswith(WAIT))
        found[f"{name}_waits"] = round(waited / total, 3)
        if name == "learner":
            batch = seconds.get("wait for experience", 0.0)
            found["learner_waits_for_batch"] = round(batch / total, 3)
    return found


def steady_rate(counts: Sequence[tuple[float, int]]) -> float:
    """Return steps per second from (seconds, steps) pairs, without the first `SETTLED` part."""
    began, (end_seconds, end_steps) = counts[0][0], counts[-1]
    settled = began + SETTLED * (end_seconds - began)
    first_seconds, first_steps = next((s, n) for s, n in counts if s >= settled)
    return (end_steps - first_steps) / max(end_seconds - first_seconds, 1e-9)


def stages_of(placement: Placement) -> tuple[list[str], list[str]]:
    """Return which stages run on the cores, and which on another device."""
    acts, learns = (device.type != "cpu" for device in (placement.act, placement.learn))
    host = ["emulate", *([] if acts else ["act"]), "feed" if learns else "learn"]
    device = [*(["act"] if acts else []), *(["learn"] if learns else [])]
    return host, device


def stage_rates(
    experiment: Experiment,
    start: Start,
    seconds: float,
    tell: Progress,
    placement: Placement = ON_CPU,
) -> dict[str, float]:
    """Return the rate of each stage in steps a second, on all cores together or on the device.

    Each is measured for so many ``seconds``, and ``tell`` is told before each.
    """
    host, device_stages = stages_of(placement)
    count = len(host) + len(device_stages)
    cores, context = usable_cores(), get_context("spawn")
    ready = context.Barrier(cores)
    rates = {}
    with ProcessPoolExecutor(cores, context, initializer=_begin, initargs=(ready,)) as pool:
        for done, stage in enumerate(host):
            tell(done / count)
            rate = partial(_rate, stage, experiment, start, seconds=seconds, device=CPU)
            rates[stage] = sum(pool.map(rate, range(cores)))
    for done, stage in enumerate(device_stages, len(host)):
        tell(done / count)
        device = placement.act if stage == "act" else placement.learn
        rates[stage] = _rate(stage, experiment, start, 0, seconds, device)
    return rates


def limit_of(rates: dict[str, float], placement: Placement = ON_CPU) -> float:
    """Return the limit in steps a second from the rates of the stages."""
    parts = [part for part in stages_of(placement) if part]
    return min(1.0 / sum(1.0 / rates[stage] for stage in part) for part in parts)


def emulate(experiment: Experiment, _start: Start, index: int, _device: torch.device = CPU) -> Work:
    """Return a piece that plays random actions in as many games as an actor has."""
    count = experiment.shape.games
    games = make_games(experiment.games, game_seeds(experiment.seed, "bench", count, index))
    frames, count = [games.reset()], environment_of(experiment.games).masks
    random = np.random.default_rng(index)

    def work() -> int:
        for _ in range(AT_ONCE):
            actions = random_actions(random, games, frames[0], count)
            frames[0] = games.step(actions).frames
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
    name = next(iter(net.heads))
    seen, first = net.apart(net.preprocess(frames))[0], net.initial_state(count)

    def work() -> int:
        state = first
        with torch.inference_mode():
            for _ in range(AT_ONCE):
                hidden, state = net.step(seen, state)
                net.outputs(hidden)[name].argmax(dim=1)
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


STAGES: dict[str, Callable[[Experiment, Start, int, torch.device], Work]]
STAGES = {stage.__name__: stage for stage in (emulate, feed, act, learn)}

_ready: Any = None  # in each process: lets all of them measure at the same time


def _begin(ready: Any) -> None:
    global _ready
    _ready = ready
    keep_freed_memory()
    torch.set_num_threads(1)


def _rate(
    stage: str,
    experiment: Experiment,
    start: Start,
    index: int,
    seconds: float,
    device: torch.device,
) -> float:
    """Repeat a stage in this process for so long; return its steps a second."""

    def finished() -> None:
        if device.type == "cuda":  # until then it has only been queued
            torch.cuda.synchronize(device)

    work, steps = STAGES[stage](experiment, start, index, device), 0
    work()  # the first one builds kernels
    finished()
    if _ready:
        _ready.wait(PATIENCE)
    began = time.monotonic()
    while (spent := time.monotonic() - began) < seconds:
        steps += work()
        finished()
    return steps / spent
