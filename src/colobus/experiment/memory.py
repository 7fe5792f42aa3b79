"""What a run takes of its machine, estimated before anything is started, and its replay buffers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from colobus.core.errors import ColobusError
from colobus.envs.make import agents, environment_of, frame_shape, frame_type, is_atari
from colobus.experiment.check import check_onnx
from colobus.experiment.settings import Experiment
from colobus.nets.network import InputStatistics, Network, Precision
from colobus.ops.flat import Layout
from colobus.ops.optimizers import RULES
from colobus.roles.parameters.published import KEPT
from colobus.roles.replay.frame_ring import BufferShape
from colobus.roles.replay.sampling import Prioritized, RateLimiter, bytes_needed
from colobus.runtime.devices import ON_CPU, Placement
from colobus.runtime.groups import Cluster
from colobus.runtime.system import available_memory, available_threads, process_limit


def batch_of(experiment: Experiment) -> tuple[int, int]:
    """Return the windows of a learner's batch, and the steps of a window."""
    shape, algorithm = experiment.shape, experiment.algorithm
    if algorithm.source == "buffer":
        return experiment.replay.windows, algorithm.window(shape.length)
    return shape.windows, shape.length


def shape_of(experiment: Experiment, actors: int, frame_shape: tuple[int, int]) -> BufferShape:
    """Return the shape of a buffer to which so many actors add frames [H, W]."""
    algorithm = experiment.algorithm
    windows, length = batch_of(experiment)
    return BufferShape(
        experiment.replay.capacity,
        streams=actors * experiment.shape.games,
        windows=windows,
        length=length,
        stack=experiment.network.stack,
        frame_shape=frame_shape,
        frame_type=frame_type(experiment.games).name,
        first_only=algorithm.learned(length) == 1,
    )


def sampling_of(experiment: Experiment, actors: int, steps: int) -> Prioritized | None:
    """Return how a buffer of so many actors samples in a run that goes on after so many steps.

    None is uniformly.
    """
    memory, share = experiment.replay, actors / experiment.shape.topology.players
    if not memory.prioritized:
        return None
    whole = Prioritized(memory.alpha, memory.beta, memory.beta_end, memory.beta_steps)
    # a buffer sees its own share of what is played from now on
    left = max(memory.beta_steps - steps, 0) * share
    return Prioritized(memory.alpha, whole.exponent(steps), memory.beta_end, left)


def limiter_of(experiment: Experiment, actors: int) -> RateLimiter:
    """Return what keeps learners in step with the so many actors of a buffer."""
    memory, shape = experiment.replay, experiment.shape
    if not memory.samples_per_insert:
        return RateLimiter(memory.minimum)
    trajectory = shape.games * shape.length
    tolerance = max(memory.samples_per_insert * trajectory * actors, memory.windows)
    return RateLimiter(
        memory.minimum, memory.samples_per_insert, tolerance, trajectory, memory.windows
    )


def buffer_bytes(experiment: Experiment, frame_shape: tuple[int, int]) -> int:
    """Return the bytes that experience takes that is used again, for frames [H, W].

    With trajectory queues these are the frames of the windows that they keep and of the batches
    that the learner holds.
    """
    if not experiment.replay.capacity:
        shape, reuse = experiment.shape, experiment.reuse
        pixels = frame_shape[0] * frame_shape[1] * frame_type(experiment.games).itemsize
        batch = shape.windows * (1 + reuse.replay_proportion)
        windows = round((reuse.buffer_batches - 1) * batch)
        if reuse.replay_proportion:
            windows += shape.topology.queues * reuse.replay_slots * shape.games
        windows *= agents(experiment.games)
        return windows * (shape.length + experiment.network.stack) * pixels
    return sum(
        bytes_needed(shape_of(experiment, actors, frame_shape), experiment.replay.prioritized)
        for actors in experiment.shape.topology.buffers
    )


HELPER_BYTES, HELPER_THREADS = 40 * 2**20, 3
"""Of a process that plays the games of an actor on (`colobus.envs.replayed_process`), measured with
eight games: 33 MiB that are its own."""

FLAGS = {
    "emulators": "--actors or --games",
    "parameters": "--width or --actors",
    "experience": "--capacity, --replay-slots or --buffer-batches",
    "trajectories": "--actors, --games or --length",
    "action scores": "--actors, --games or --length (with a replay buffer --windows)",
    "standardised frames": "--actors, --games or --length (with a replay buffer --windows)",
    "stacks": "--actors, --games or --length (with a replay buffer --windows)",
    "minibatch with gradients": "--minibatch or --games (with a replay buffer --windows)",
    "input statistics": "--random-steps",
    "processes": "--workers or --actors, or raise --per-process",
    "continued games": "--actors in a new run",
}
"""What lowers each part of the memory."""


def check_limits(
    experiment: Experiment,
    cluster: Cluster | None = None,
    placement: Placement = ON_CPU,
    resumed: bool = False,
) -> None:
    """Refuse a run that could not be held on this machine; see `memory`.

    Args:
        experiment: all settings.
        cluster: in which the roles run (None: on threads of this process). For one that is there
            already `check_cluster_memory` checks the rest.
        placement: the devices of the run.
        resumed: games go on, which processes of their own play.

    Raises:
        ColobusError: if there are more servers than parts of the network, or the run needs more
            memory or threads than are left, or more open files than the process may have, or a
            group has more learners than there are GPUs, or ONNX Runtime cannot compute its policy.
    """
    if placement.act_with == "onnx":
        check_onnx(experiment)
    if cluster is None:
        _check_gpus(experiment, placement)
    if experiment.network.own_torso or experiment.network.own_heads:
        return  # a function of the user may take real tensors only
    net = imagined_network(experiment)
    Layout(net).cut(experiment.shape.servers)
    if cluster is not None and cluster.joined:
        return
    topology = experiment.shape.topology
    goes_on = resumed and experiment.games_go_on and is_atari(experiment.games.game)
    helpers = topology.players if goes_on else 0
    parts = parts_of(experiment, net, cluster) | {"continued games": helpers * HELPER_BYTES}
    if placement.learn.type == "cuda" and cluster is None:
        learning = ("parameters", "standardised frames", "stacks", "minibatch with gradients")
        share = {name: parts.pop(name) // topology.replicas for name in learning}
        for rank in range(topology.replicas):
            _check_gpu(share, placement.of(rank).learn)
    available = available_memory()
    if available is not None:
        check_parts(parts, available, "are available")
    if cluster is None:  # else each process has its own threads and files
        _check_process(experiment, helpers)


def _check_process(experiment: Experiment, helpers: int) -> None:
    """Raise ColobusError if this process may not have the threads or files of a run and helpers."""
    shape, topology = experiment.shape, experiment.shape.topology
    threads = (1 + shape.emulators) * topology.players + topology.learners
    threads += HELPER_THREADS * helpers + 16
    left = available_threads()
    if left is not None and threads > left:
        raise ColobusError(
            f"--actors {shape.actors}: the run needs about {threads} threads, and {left} are left "
            "to this process; use fewer actors"
        )
    # libraries, the run's files and pipes to sidecars need 64
    files, needed = process_limit("NOFILE"), 64 + 2 * helpers
    if files is not None and files < needed:
        raise ColobusError(
            f"this process may open {files} files, and this run needs {needed}; raise the limit "
            "with ulimit -n"
        )


def check_cluster_memory(experiment: Experiment, cluster: Cluster, available: int) -> None:
    """Raise ColobusError if a run needs more memory than all hosts of a cluster have together."""
    if available and not (experiment.network.own_torso or experiment.network.own_heads):
        parts = parts_of(experiment, imagined_network(experiment), cluster)
        check_parts(parts, available, "are there for processes in the whole cluster")


def parts_of(experiment: Experiment, net: Network, cluster: Cluster | None) -> dict[str, int]:
    """Return the bytes that a run needs, by part, with those of its processes."""
    count = experiment.shape.topology.processes(cluster.per_process) if cluster else 0
    return memory(experiment, net) | {"processes": count * PROCESS_BYTES}


PROCESS_BYTES = 200 * 2**20
"""Of a process without its roles, measured: Python, torch and Ray."""


def store_bytes(experiment: Experiment) -> int:
    """Return the bytes of Ray's object store: what crosses between processes, twice over.

    These are the newest snapshots, a gradient of each learner, and with actors in processes of
    their own a trajectory of each.
    """
    if experiment.network.own_torso or experiment.network.own_heads:
        return 500 * 10**6
    net, shape, topology = imagined_network(experiment), experiment.shape, experiment.shape.topology
    vectors = 2 * KEPT + (topology.learners if topology.remote_servers else topology.replicas)
    crossing = 0 if shape.workers else topology.players
    pixels = net.mean.shape[0] * net.mean.shape[1] * frame_type(experiment.games).itemsize
    frames = crossing * shape.games * (shape.length + net.stack) * pixels
    return 200 * 2**20 + 2 * (vectors * 4 * Layout(net).size + frames)


def role_memory(experiment: Experiment) -> dict[str, int]:
    """Return the bytes of a role by its kind, for Ray; {} where a network of the user's is unknown.

    Those of "process" are what each process has besides.
    """
    if experiment.network.own_torso or experiment.network.own_heads:
        return {}
    parts, topology = memory(experiment, imagined_network(experiment)), experiment.shape.topology
    learning = ("parameters", "standardised frames", "stacks", "minibatch with gradients")
    acting = ("emulators", "trajectories", "action scores")
    buffers = max(len(topology.buffers), topology.queues)
    return {
        "process": PROCESS_BYTES,
        "actor": sum(parts[name] for name in acting) // topology.players,
        "learner": sum(parts[name] for name in learning) // topology.learners,
        "replay": parts["experience"] // buffers,
    }


def check_parts(parts: dict[str, int], available: int, where: str) -> None:
    """Raise ColobusError if the parts of a run need more memory than is ``available``."""
    start = parts["input statistics"]
    needed = max(sum(parts.values()) - start, parts["emulators"] + start)
    if needed > available:
        first = max(parts, key=lambda name: parts[name])
        raise ColobusError(
            f"this run needs about {needed / 2**30:,.1f} GiB of memory, most of it for {first}, "
            f"and {available / 2**30:,.1f} GiB {where}; lower {FLAGS[first]}"
        )


def _check_gpus(experiment: Experiment, placement: Placement) -> None:
    """Raise ColobusError if a group on GPUs has more learners than there are."""
    size, first = experiment.shape.topology.replicas, placement.learn.index or 0
    if placement.learn.type != "cuda" or size <= 1:
        return
    if size > (there := torch.cuda.device_count() - first):
        raise ColobusError(
            f"--learners {size} with --device {placement.learn}: each learner of a group has a GPU "
            f"of its own, {size} in all, and from this one on there are {there}; use fewer "
            "learners, or --device cpu"
        )


def _check_gpu(parts: dict[str, int], device: torch.device) -> None:
    """Raise ColobusError if a GPU has less free memory than so many bytes by part."""
    free, _ = torch.cuda.mem_get_info(device)
    if (needed := sum(parts.values())) > free:
        first = max(parts, key=lambda name: parts[name])
        raise ColobusError(
            f"--device {device}: the run needs about {needed / 2**20:,.0f} MiB of its memory, most "
            f"of it for {first}, and {free / 2**20:,.0f} MiB are free; lower {FLAGS[first]}"
        )


def network_of(
    experiment: Experiment, statistics: InputStatistics, actions: int, precision: Precision
) -> Network:
    """Return a network with the settings of an experiment, for so many actions."""
    return Network(
        experiment.network,
        statistics.mean.shape,
        partial(experiment.algorithm.heads, actions),
        statistics,
        precision,
        planes=environment_of(experiment.games).planes,
        masks=environment_of(experiment.games).masks,
        agents=agents(experiment.games),
    )


def imagined_network(experiment: Experiment) -> Network:
    """Return the network without memory for its parameters, to ask for shapes."""
    flat = np.ones(frame_shape(experiment.games), dtype=np.float32)
    network = replace(experiment.network, conv_init="uniform", fc_init="uniform")
    precision = "float32" if network.precision == "auto" else network.precision
    actions = max(len(environment_of(experiment.games).action_names), 18)  # of Atari 18 at most
    with torch.device("meta"):
        imagined = replace(experiment, network=network)
        return network_of(imagined, InputStatistics(flat, flat), actions, precision)


def memory(experiment: Experiment, net: Network) -> dict[str, int]:
    """Return an estimate in bytes by part; with workers, of all in one process.

    Counted from the shapes in the code. "input statistics" are needed at the start only.
    """
    shape, topology = experiment.shape, experiment.shape.topology
    height, width = net.mean.shape
    games = topology.players * shape.games
    pixels, raw = height * width, frame_type(experiment.games).itemsize
    frames = raw * games * (shape.length + net.stack) * pixels  # one trajectory of each actor
    # of each actor, kept at most by the replays
    paced = shape.ahead + shape.broadcast_every - 1
    trajectories = (shape.in_flight if shape.batch and not topology.remote_servers else paced) + 2
    each, length = batch_of(experiment)
    mixed = 1.0 + experiment.reuse.replay_proportion
    batch = round(topology.learners * each * mixed) * (length + net.stack) * pixels
    seen = 2 if net.precision == "bfloat16" else 4
    actions = len(environment_of(experiment.games).action_names) or 18
    sample = 4 * (net.memory + 3 * actions) + seen * net.stack * pixels
    observations = each * (length + 1)
    learners, minibatch = topology.learners, experiment.algorithm.minibatch
    chunk = learners * max(min(minibatch, observations), shape.games)
    return {
        # one of ale-py, measured: its state, screens and thread
        "emulators": games * 2 * 2**20 if is_atari(experiment.games.game) else 0,
        "parameters": copies(experiment) * 4 * Layout(net).size,
        "experience": buffer_bytes(experiment, (height, width)),
        # one is being played; a loader has a batch in its hands and one on the prefetch queue
        "trajectories": (trajectories + 1) * frames + (1 + 2 * shape.loaders) * raw * batch,
        # of a rollout, step by step and joined, with noise and logarithms; and of a batch
        "action scores": 4 * actions * (4 * games * shape.length + learners * observations),
        "standardised frames": seen * batch,
        "stacks": learners * observations * seen * net.stack * pixels,
        "minibatch with gradients": 2 * chunk * sample,
        "input statistics": 2 * raw * shape.random_steps * pixels,  # parts and the whole
    }


def copies(experiment: Experiment) -> int:
    """Return how many vectors of all parameters a run holds, the servers' slices added up."""
    topology = experiment.shape.topology
    slots = len(RULES[experiment.optimizer.optimizer].starts) + (experiment.optimizer.average > 0)
    shape, target = experiment.shape, bool(experiment.algorithm.target_every)
    if not topology.remote_servers:
        return topology.replicas * (2 + slots + KEPT + shape.actors + 2 * target)
    waiting = 0 if shape.asynchronous else topology.gradients - 1
    servers = (1 + slots) + KEPT + (1 + slots) + waiting + target  # own, published, put aside
    cache = max(KEPT, shape.ahead + 1)
    return 2 + servers + topology.learners * (2 + cache + target) + topology.players
