"""Draws the circle: which roles a run has, and who knows whom. Nothing is started here.

    Actor ──Trajectory──> Replay ──Batch──> Learner ──Gradient──> ParameterServer ──Params──> Actor

Three shapes. *Centred* (APPO, DQN): many actors around one replay and one learner, whose own
memory the servers step. *Bundled* (DBA3C, Gorila): several workers of actors, a replay and a
learner around servers with memory of their own. *Apart* (Gorila): actors, learners,
stores and servers, each for itself and as many as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from gelada.core.types import Params
from gelada.envs.api import Games
from gelada.envs.make import MakeGames, make_games
from gelada.nets.network import Network
from gelada.ops.flat import FlatParameters
from gelada.roles.actor import Actor, ActorSettings, Pace
from gelada.roles.backprop import Backprop, Compute
from gelada.roles.learner import Learner
from gelada.roles.parameters.admission import Admission, Async, Quorum
from gelada.roles.parameters.client import LocalClient, RemoteClient
from gelada.roles.parameters.published import KEPT, PublishedParameters
from gelada.roles.parameters.server import ParameterServer
from gelada.roles.replay.api import ReplayReader
from gelada.roles.replay.buffer import ReplayBuffer
from gelada.roles.replay.queue import Fifo, FifoWindows, Rounds, Selector, TrajectoryQueue
from gelada.roles.replay.sharded import ShardedReplay
from gelada.roles.schedule import OwnSchedule, SharedSchedule
from gelada.roles.tracker import Tracker
from gelada.runtime.graph import Graph, part
from gelada.training.buffers import limiter_of, sampling_of, shape_of
from gelada.training.experiment import Experiment
from gelada.training.faults import NONE, Faults, Link, NoExperience, Sleeper, Straggler
from gelada.training.start import Start, make_network

DETERMINISTIC_EVERY = 10
"""Versions between metrics lines in the deterministic mode."""


def make_graph(
    experiment: Experiment,
    start: Start,
    folder: Path | None,
    began: float | None = None,
    patience: float = 600.0,
    games: Sequence[Games] | None = None,
    faults: Faults = NONE,
    spread: bool = False,
    make: MakeGames | None = None,
) -> Graph:
    """Draw the circle of an experiment, in the shape that it asks for.

    Args:
        experiment: all settings.
        start: where the run begins.
        folder: of the run; None writes nothing.
        began: `time.monotonic` at the run's beginning.
        patience: seconds that a role waits for another (0: never, for the inline place).
        games: already loaded, one vector for each actor; the actors load their own by default.
        faults: trouble on purpose (workers only).
        spread: over processes, of which some may be lost while the others go on.
        make: loads the games that are not given (default: `make_games`).
    """
    net = make_network(experiment, start)
    flat = FlatParameters(net)
    if start.parameters:
        flat.layout.fill(flat.values, start.parameters)
    graph = Graph()
    tracker = _draw_tracker(graph, experiment, start, flat, folder, began)
    circle = Circle(graph, experiment, start, flat, tracker, patience, games, faults, spread, make)
    if experiment.shape.workers:
        circle.draw_workers()
    elif experiment.shape.learners:
        circle.draw_apart()
    else:
        circle.draw_centred()
    return graph


@dataclass(frozen=True)
class Circle:
    """A graph with its tracker, to be filled with the roles of the circle."""

    graph: Graph
    experiment: Experiment
    start: Start
    flat: FlatParameters
    tracker: Tracker
    patience: float
    games: Sequence[Games] | None
    faults: Faults
    spread: bool
    make: MakeGames | None

    def draw_centred(self) -> None:
        """Draw actors around a replay and a learner; the servers step the learner's memory."""
        shape, start = self.experiment.shape, self.start
        deterministic = self.experiment.deterministic
        select = Rounds(shape.actors) if deterministic else Fifo(shape.actors)
        capacity = shape.actors * (shape.ahead + 2)
        # an actor that counts its own rounds would wait for ever for those of a lost one
        counting = deterministic or not self.spread
        pace = Pace(shape.ahead if counting else None, exactly=deterministic)
        room = None if counting else shape.actors * max(shape.ahead, 1)
        replay: TrajectoryQueue | ReplayBuffer
        if self.experiment.replay.capacity:
            replay, pace = self._draw_store("replay", "main", shape.actors), Pace(None)
        else:
            replay = self.graph.add(
                "replay",
                "replay",
                "main",
                TrajectoryQueue,
                select,
                capacity,
                self.patience,
                full=room,
            )
        servers = self._draw_servers(Quorum(1), own_memory=False)
        for index in range(shape.actors):
            self._draw_actor(f"actor-{index}", index, servers, replay, pace)
        algorithm = self.experiment.algorithm
        self.graph.add(
            "learner-0",
            "learner",
            "main",
            Learner,
            0,
            algorithm,
            client=part(LocalClient, self.flat, servers, start.version, algorithm.target_every),
            compute=Backprop(algorithm, 0, self.experiment.seed),
            schedule=part(OwnSchedule, algorithm, start.aux or algorithm.start(), start.steps),
            replay=replay,
            tracker=self.tracker,
            saves=True,
        )

    def draw_workers(self) -> None:
        """Draw the servers, then workers of actors, a replay and a learner around them."""
        shape = self.experiment.shape
        servers = self._draw_servers(self._admission(), own_memory=True)
        if self.faults.link:
            links = [
                self.graph.add(f"link-{i}", "server", f"server-{i}", Link, server, self.faults.link)
                for i, server in enumerate(servers)
            ]
            servers = cast("list[ParameterServer]", links)
        for index in range(shape.workers):
            self._draw_one_worker(index, servers)

    def draw_apart(self) -> None:
        """Draw servers and stores that stand alone, and actors and learners around them.

        An actor adds to one store. A learner draws from all.
        """
        experiment, shape = self.experiment, self.experiment.shape
        servers = self._draw_servers(self._admission(), own_memory=True)
        stores = [
            self._draw_store(
                f"store-{i}", f"store-{i}", len(range(i, shape.actors, shape.replays)), i
            )
            for i in range(shape.replays)
        ]
        for index in range(shape.actors):
            own = stores[index % shape.replays]
            self._draw_actor(f"actor-{index}", index, servers, own, Pace(None))
        for index in range(shape.learners):
            process, seed = f"learner-{index}", experiment.seed
            replay = self.graph.add(
                f"stores-{index}",
                "replay",
                process,
                ShardedReplay,
                stores,
                seed,
                index,
                patience=self.patience,
            )
            cache = self._draw_cache(f"cache-{index}", process, KEPT)
            self._draw_learner(index, process, servers, replay, cache)

    def _admission(self) -> Admission:
        """Return which gradients count at servers with memory of their own."""
        shape = self.experiment.shape
        if shape.asynchronous:
            return Async(shape.max_staleness)
        return Quorum(shape.gradients)

    def _draw_one_worker(self, index: int, servers: Sequence[ParameterServer]) -> None:
        """Draw one worker: actors, a replay, a learner and a cache of parameters."""
        shape, process = self.experiment.shape, f"worker-{index}"
        deterministic = self.experiment.deterministic
        ahead = shape.ahead + self.faults.delay
        replay: TrajectoryQueue | ReplayBuffer
        if self.experiment.replay.capacity:
            replay = self._draw_store(f"replay-{index}", process, shape.actors, index)
        else:
            replay = self._draw_queue(index)
        cache = self._draw_cache(f"cache-{index}", process, max(KEPT, ahead + 1))
        pace = Pace(ahead, exactly=True) if deterministic else Pace(None)
        if not self.faults.compute:
            for actor in range(index * shape.actors, (index + 1) * shape.actors):
                self._draw_actor(process, actor, [cache], replay, pace)
        self._draw_learner(index, process, servers, replay, cache)

    def _draw_queue(self, index: int) -> TrajectoryQueue:
        """Draw a worker's replay, from which each trajectory is learned once."""
        shape, deterministic = self.experiment.shape, self.experiment.deterministic
        ahead = shape.ahead + self.faults.delay
        select: Selector = Rounds(shape.actors, first=index * shape.actors)
        if not deterministic:
            select = FifoWindows(shape.windows)
        # enough trajectories for a batch, where what is left of one counts as one
        enough = -(-shape.windows // shape.games) + (shape.windows % shape.games > 0)
        room = max(shape.actors * max(shape.ahead, 1), enough)
        capacity = shape.actors * (ahead + 2) + room
        return self.graph.add(
            f"replay-{index}",
            "replay",
            f"worker-{index}",
            TrajectoryQueue,
            select,
            capacity,
            self.patience,
            full=None if deterministic else room,
        )

    def _draw_store(self, name: str, process: str, actors: int, index: int = 0) -> ReplayBuffer:
        """Draw an experience store for so many actors."""
        experiment, net = self.experiment, self.flat.module
        assert isinstance(net, Network)
        height, width = net.mean.shape
        return self.graph.add(
            name,
            "replay",
            process,
            ReplayBuffer,
            shape_of(experiment, actors, (height, width)),
            sampling_of(experiment, self.start.steps),
            limiter_of(experiment, actors),
            self.patience,
            experiment.seed,
            index,
        )

    def _draw_cache(self, name: str, process: str, kept: int) -> PublishedParameters:
        """Draw where a learner publishes what it pulled."""
        params = Params(self.start.version, self.flat.values.clone())
        return self.graph.add(
            name, "cache", process, PublishedParameters, params, kept=kept, patience=self.patience
        )

    def _draw_learner(
        self,
        index: int,
        process: str,
        servers: Sequence[ParameterServer],
        replay: ReplayReader,
        cache: PublishedParameters,
    ) -> None:
        """Draw one of several learners, with its faults."""
        shape, algorithm, start = self.experiment.shape, self.experiment.algorithm, self.start
        faults, batches = self.faults, replay
        share = 1 if shape.asynchronous else shape.gradients
        if algorithm.source == "buffer":
            share = shape.learning
        compute: Compute = Backprop(algorithm, index, self.experiment.seed)
        slow = faults.straggler if index == 0 else 0.0
        if faults.compute:
            compute = Sleeper(slow or faults.compute, algorithm)
            batches = part(NoExperience, shape.datapoints, cache)
        elif slow:
            compute = Straggler(slow, compute)
        self.graph.add(
            f"learner-{index}",
            "learner",
            process,
            Learner,
            index,
            algorithm,
            client=part(
                RemoteClient,
                index,
                self.flat,
                servers,
                start.version,
                cache,
                shape.asynchronous,
                algorithm.target_every,
            ),
            compute=compute,
            schedule=part(SharedSchedule, algorithm, start.steps, start.version, share),
            replay=batches,
            tracker=self.tracker,
        )

    def _draw_actor(
        self,
        process: str,
        index: int,
        sources: Sequence[ParameterServer] | Sequence[PublishedParameters],
        replay: TrajectoryQueue | ReplayBuffer,
        pace: Pace,
    ) -> None:
        experiment, games, make = self.experiment, self.games, self.make or make_games
        net = self.flat.module
        assert isinstance(net, Network)
        self.graph.add(
            f"actor-{index}",
            "actor",
            process,
            Actor,
            ActorSettings(
                index,
                experiment.shape.players,
                experiment.shape.games,
                experiment.shape.length,
                experiment.seed,
                pace,
            ),
            lambda seeds: make(experiment.games, seeds),
            net,
            experiment.algorithm,
            sources,
            replay,
            self.tracker,
            games[index] if games else None,
        )

    def _draw_servers(self, admission: Admission, own_memory: bool) -> list[ParameterServer]:
        """Draw the parameter servers, over slices of the flat vector or of their own copies."""
        flat, start, experiment = self.flat, self.start, self.experiment
        return [
            self.graph.add(
                f"server-{i}",
                "server",
                f"server-{i}" if own_memory else "main",
                ParameterServer,
                flat.values[cut].clone() if own_memory else flat.values[cut],
                experiment.optimizer,
                admission,
                start.version,
                self.patience,
                {k: _slice_of(flat, cut, tensors) for k, tensors in _by_name(start.optimizer)},
                experiment.shape.keep_every if own_memory else 0,
                experiment.algorithm.target_every,
                f"server-{i}",
            )
            for i, cut in enumerate(flat.layout.cut(experiment.shape.servers))
        ]


def _draw_tracker(
    graph: Graph,
    experiment: Experiment,
    start: Start,
    flat: FlatParameters,
    folder: Path | None,
    began: float | None,
) -> Tracker:
    """Draw the tracker; every checkpoint of it will hold the input statistics too."""
    statistics = {
        "input/mean": torch.from_numpy(start.statistics.mean),
        "input/deviation": torch.from_numpy(start.statistics.deviation),
    }
    return graph.add(
        "tracker",
        "tracker",
        "tracker",
        Tracker,
        folder,
        experiment.tracker,
        experiment.stop,
        flat.layout,
        statistics,
        began=began,
        counters=start.counters,
        every=DETERMINISTIC_EVERY if experiment.deterministic else None,
        first_version=start.version.number,
        steps=start.steps,
        learners=experiment.shape.learning,
        marked=experiment.shape.keep_every if experiment.shape.apart else 0,
    )


def _by_name(tensors: dict[str, torch.Tensor]) -> list[tuple[str, dict[str, torch.Tensor]]]:
    """Group "mean/torso.0.weight" and the like by their first part; scalars have no second."""
    groups: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, parameter = name.partition("/")
        groups.setdefault(kind, {})[parameter] = tensor
    return list(groups.items())


def _slice_of(flat: FlatParameters, cut: slice, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return one server's part of an optimizer state that is stored by parameter name."""
    if "" in tensors:
        return tensors[""]
    whole = torch.zeros_like(flat.values)
    flat.layout.fill(whole, tensors)
    return whole[cut]
