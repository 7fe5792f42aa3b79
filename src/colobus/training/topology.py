"""The graph of a run: which roles there are, and which of them call one another.

A run has one of four shapes. *Central* (APPO, DQN): several actors around one replay and one
learner, whose own memory the parameter servers step. *Replicas* (APPO, PQN): several such centres,
whose learners add up their gradients before each step. *Workers* (DBA3C, Gorila): each worker has
actors, a replay and a learner, around servers with memory of their own. *Separate* (Gorila):
actors, learners, replay buffers and servers each stand alone, as many of each as one likes.

Nothing is started here. `colobus.training.role_factory` has the arguments of each role.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from colobus.core.types import Version
from colobus.envs.api import Games
from colobus.envs.make import MakeGames, agents
from colobus.experiment.memory import sampling_of, shape_of
from colobus.experiment.settings import Experiment
from colobus.experiment.shape import Separate, Workers
from colobus.ops.flat import FlatParameters
from colobus.roles.actor import Pace
from colobus.roles.allreduce import Allreduce, Meeting, Member, ProcessAllreduce, ThreadAllreduce
from colobus.roles.parameters.published import KEPT
from colobus.roles.parameters.server import Admission, ParameterServer
from colobus.roles.replay.api import Replay, ReplayReader
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.in_rounds import BufferInRounds, SaveWithCheckpoints
from colobus.roles.replay.joined import JoinedQueues, ShardedReplay
from colobus.roles.replay.minibatch_buffer import Loader, PrefetchQueue
from colobus.roles.replay.queue import Fifo, Rounds, Selector, TrajectoryQueue
from colobus.roles.replay.sampling import RateLimiter
from colobus.runs.folder import BUFFERS, CHECKPOINTS
from colobus.runtime.devices import CPU, ON_CPU, Placement
from colobus.runtime.graph import RoleGraph, part
from colobus.training.role_factory import RoleFactory, add_tracker
from colobus.training.saving import update_schedule_of
from colobus.training.start import Start, games_maker, make_network

WAIT_SECONDS = 600.0
"""For which a role waits for another, unless ``deadline`` is longer."""


def add_buffer_in_rounds(roles: RoleFactory) -> BufferInRounds:
    """Add the only replay buffer of a deterministic run, to which all actors add."""
    experiment, (height, width) = roles.experiment, roles.net.mean.shape
    actors = experiment.shape.actors
    buffer = part(
        ReplayBuffer,
        shape_of(experiment, actors, (height, width)),
        sampling_of(experiment, actors, roles.start.origin.steps),
        RateLimiter(experiment.replay.minimum),
        roles.patience,
        experiment.seed,
    )
    return roles.graph.add(
        "replay",
        "replay",
        "main",
        BufferInRounds,
        buffer,
        range(actors),
        update_schedule_of(experiment),
        roles.patience,
    )


def make_graph(
    experiment: Experiment,
    start: Start,
    folder: Path | None,
    began: float | None = None,
    patience: float | None = None,
    games: Sequence[Games] | None = None,
    spread: bool = False,
    make: MakeGames | None = None,
    placement: Placement = ON_CPU,
    on_network: bool = False,
) -> RoleGraph:
    """Return the graph of a run, in the shape that the experiment asks for.

    Args:
        experiment: all settings.
        start: where the run begins.
        folder: of the run; None writes nothing.
        began: `time.monotonic` when the run began.
        patience: seconds that a role waits for another (0: never, for the inline runtime); by
            default `WAIT_SECONDS`, or longer if a role may be longer without progress.
        games: already loaded, one vector for each actor; actors load their own by default.
        spread: the roles run in several processes, of which some may be lost.
        make: loads the games that are not given (default: `games_maker`).
        placement: devices that learn and act.
        on_network: some of these processes may be on other hosts.
    """
    make = make or games_maker(experiment.shape)
    if patience is None:
        patience = max(WAIT_SECONDS, experiment.shape.deadline)
    # drawn on the CPU, so that the first parameters are the same on every device
    topology = experiment.shape.topology
    device = CPU if topology.remote_servers else placement.learn  # remote servers are on the host
    flat = FlatParameters(make_network(experiment, start).to(device))
    if start.parameters:
        flat.layout.fill(flat.values, start.parameters)
    graph = RoleGraph()
    tracker = add_tracker(graph, experiment, start, flat, folder, began)
    roles = RoleFactory(graph, experiment, start, flat, tracker, patience, games, make, placement)
    if isinstance(topology, Workers):
        servers = roles.servers(topology.admission, own_memory=True)
        for index in range(topology.learners):
            add_worker(roles, index, servers)
    elif isinstance(topology, Separate):
        add_separate(roles, topology)
    elif topology.replicas > 1:
        add_replicas(roles, spread, on_network)
    else:
        add_central(roles, spread, folder)
    return graph


def add_central(roles: RoleFactory, spread: bool, folder: Path | None = None) -> None:
    """Add actors around a replay and a learner; the servers step the memory of the learner."""
    experiment, shape = roles.experiment, roles.experiment.shape
    deterministic = experiment.deterministic
    replays: Sequence[Replay]
    before_save: Callable[[Version], None] | None = None
    if experiment.replay.capacity and deterministic:
        # an actor plays with what was learned from all rounds before, and the learner waits for it
        buffer = add_buffer_in_rounds(roles)
        replays = [buffer]
        if folder is not None:
            copies, checkpoints = folder / BUFFERS / "replay", folder / CHECKPOINTS
            before_save = part(SaveWithCheckpoints, buffer, copies, checkpoints)
        pace = Pace(
            0,
            exactly=True,
            update_schedule=update_schedule_of(experiment),
            every=shape.broadcast_every,
        )
    elif experiment.replay.capacity:
        replays, pace = [roles.buffer("replay", "main", shape.actors)], Pace(None)
    else:
        # an actor that counts its own rounds would wait for ever for those of a lost one
        counting = deterministic or not (spread or shape.batch)
        ahead, every = shape.ahead if counting else None, shape.broadcast_every
        pace = Pace(ahead, exactly=deterministic, every=every)
        several = range(shape.topology.queues)
        places = [f"replay-{index}" if len(several) > 1 else "main" for index in several]
        replays = [_central_queue(roles, index, counting, places[index]) for index in several]
    servers = roles.servers(Admission(1), own_memory=False)
    for index in range(shape.actors):
        own = replays[index * len(replays) // shape.actors]
        roles.actor(f"actor-{index}", index, servers, own, pace)
    read: ReplayReader = replays[0]
    if len(replays) > 1:
        queues = cast("list[TrajectoryQueue]", replays)
        read = roles.graph.add("replay", "replay", "main", JoinedQueues, queues, roles.patience)
    roles.central_learner(servers, _loaded(roles, read), before_save)


def _loaded(roles: RoleFactory, replay: ReplayReader) -> ReplayReader:
    """Return the replay, or with ``--loaders`` a queue of its batches that loaders fill."""
    count = roles.experiment.shape.loaders
    if not count:
        return replay
    prefetched = roles.graph.add(
        "prefetch", "replay", "main", PrefetchQueue, replay, count + 1, roles.patience
    )
    device = roles.placement.learn
    for index in range(count):
        roles.graph.add(f"loader-{index}", "loader", "main", Loader, index, prefetched, device)
    return prefetched


def add_replicas(roles: RoleFactory, spread: bool, on_network: bool) -> None:
    """Add learners that step alike, each with the actors, queue and servers of a central run."""
    shape, deterministic = roles.experiment.shape, roles.experiment.deterministic
    size, counting = shape.topology.replicas, deterministic or not (spread or shape.batch)
    pace = Pace(shape.ahead if counting else None, exactly=deterministic)
    sums: Sequence[Allreduce]
    if spread:
        meeting = roles.graph.add("meeting", "group", "main", Meeting, on_network)
        device = roles.placement.learn
        sums = [
            part(ProcessAllreduce, meeting, rank, size, roles.patience, device)
            for rank in range(size)
        ]
    else:
        joined = roles.graph.add("group", "group", "main", ThreadAllreduce, size, roles.patience)
        sums = [joined] * size
    for rank in range(size):
        own = roles
        if rank:  # a network of its own on its device; of Ray's GPUs a process sees its own only
            placement = roles.placement if spread else roles.placement.of(rank)
            flat = FlatParameters(copy.deepcopy(roles.net).to(placement.learn))
            own = replace(roles, flat=flat, placement=placement)
        queue = _central_queue(own, rank, counting, f"main-{rank}" if rank else "main")
        servers = own.servers(Admission(1), own_memory=False, rank=rank)
        for index in range(rank * shape.actors, (rank + 1) * shape.actors):
            own.actor(f"actor-{index}", index, servers, queue, pace)
        own.central_learner(servers, queue, rank=rank, member=part(Member, sums[rank], rank, size))


def _central_queue(roles: RoleFactory, index: int, counting: bool, process: str) -> Replay:
    """Add one of the trajectory queues around learners, for its part of the actors.

    If one learner has several, each is in a process of its own, and the run can go on without one
    of them, unless it counts rounds.
    """
    shape, deterministic = roles.experiment.shape, roles.experiment.deterministic
    queues = shape.topology.queues
    actors, several = shape.actors // queues, queues > 1
    played = actors * shape.games * agents(roles.experiment.games)  # by each actor once
    selector: Selector = Fifo(shape.windows // queues if shape.batch else played)
    if deterministic:
        selector = Rounds(actors, index * actors, roles.first_round)
    in_flight = shape.in_flight if shape.batch else 0
    return roles.graph.add(
        f"replay-{index}" if several or shape.topology.replicas > 1 else "replay",
        "queue" if several and not deterministic else "replay",
        process,
        TrajectoryQueue,
        selector,
        actors * (max(shape.ahead + shape.broadcast_every - 1, in_flight) + 2),
        roles.patience,
        full=None if counting else actors * max(shape.ahead, 1),
        in_flight=in_flight,
        replay_mix=roles.mix(index),
    )


def add_worker(roles: RoleFactory, index: int, servers: Sequence[ParameterServer]) -> None:
    """Add one worker: actors and a learner, with a replay and a cache of parameters between."""
    shape, name = roles.experiment.shape, f"worker-{index}"
    deterministic = roles.experiment.deterministic
    replay: Replay
    buffer: ReplayBuffer | None = None
    if roles.experiment.replay.capacity:
        replay = buffer = roles.buffer(f"replay-{index}", name, shape.actors, index)
    else:
        # enough trajectories for a batch, where the rest of one counts as one
        enough = -(-shape.windows // shape.games) + (shape.windows % shape.games > 0)
        room = max(shape.actors * max(shape.ahead, 1), enough)
        selector: Selector = Fifo(shape.windows)
        if deterministic:
            selector = Rounds(shape.actors, index * shape.actors, roles.first_round)
        replay = roles.graph.add(
            f"replay-{index}",
            "replay",
            name,
            TrajectoryQueue,
            selector,
            shape.actors * (shape.ahead + shape.broadcast_every + 1) + room,
            roles.patience,
            full=None if deterministic else room,
        )
    cache = roles.cache(f"cache-{index}", name, max(KEPT, shape.ahead + 1))
    pace = Pace(None)
    if deterministic:
        pace = Pace(shape.ahead, exactly=True, every=shape.broadcast_every)
    for actor in range(index * shape.actors, (index + 1) * shape.actors):
        roles.actor(name, actor, [cache], replay, pace)
    roles.learner(index, name, servers, replay, cache, buffer)


def add_separate(roles: RoleFactory, topology: Separate) -> None:
    """Add servers, replay buffers, actors and learners, each in a process of its own.

    An actor adds to one buffer. A learner samples from all.
    """
    shape, seed = roles.experiment.shape, roles.experiment.seed
    pace = Pace(None, mixed=shape.asynchronous)
    servers = roles.servers(topology.admission, own_memory=True)
    buffers = [
        roles.buffer(f"replay-{i}", f"replay-{i}", actors, i)
        for i, actors in enumerate(topology.buffers)
    ]
    for index in range(shape.actors):
        roles.actor(f"actor-{index}", index, servers, buffers[index % len(buffers)], pace)
    for index in range(topology.learners):
        name, patience = f"learner-{index}", roles.patience
        sharded = roles.graph.add(
            f"sharded-{index}", "replay", name, ShardedReplay, buffers, seed, index, patience
        )
        roles.learner(index, name, servers, sharded, roles.cache(f"cache-{index}", name, KEPT))
