"""The nodes of a run's graph: each role with the arguments that the experiment gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from colobus.core.types import Params, Version
from colobus.envs.api import Games
from colobus.envs.make import MakeGames, agents, can_resume, resume_games
from colobus.experiment.memory import limiter_of, sampling_of, shape_of
from colobus.experiment.settings import Experiment, settings
from colobus.nets.network import Network
from colobus.ops.flat import FlatParameters
from colobus.roles.actor import Actor, ActorSettings, Pace
from colobus.roles.allreduce import Member
from colobus.roles.backprop import Backprop, CudaGraphBackprop
from colobus.roles.learner import Learner
from colobus.roles.parameters.client import LocalClient, RemoteClient
from colobus.roles.parameters.published import PublishedParameters
from colobus.roles.parameters.server import PREVIOUS, Admission, ParameterServer, ServerSettings
from colobus.roles.policy import make_policy
from colobus.roles.replay.api import ReplayReader, ReplayWriter
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.minibatch_buffer import MinibatchBuffer
from colobus.roles.replay.queue import ReplayMix
from colobus.roles.schedule import Schedule, SharedSchedule
from colobus.roles.tracker import Exactly, Resume, RunFacts, Tracker, TrackerFiles
from colobus.runs.folder import CHECKPOINTS, EPISODES, METRICS, RECONSTRUCTION, TENSORBOARD
from colobus.runtime.devices import ON_CPU, Placement
from colobus.runtime.graph import RoleGraph, part
from colobus.training.saving import DETERMINISTIC_EVERY, update_schedule_of
from colobus.training.start import Start

if TYPE_CHECKING:
    from colobus.roles.probe import Probe


def by_name(tensors: dict[str, torch.Tensor]) -> list[tuple[str, dict[str, torch.Tensor]]]:
    """Group "mean/torso.0.weight" and the like by their first part; scalars have no second."""
    groups: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, parameter = name.partition("/")
        groups.setdefault(kind, {})[parameter] = tensor
    return list(groups.items())


def slice_of(flat: FlatParameters, cut: slice, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return one server's part of an optimizer state that is stored by parameter name."""
    if "" in tensors:
        return tensors[""]
    whole = torch.zeros_like(flat.values)
    flat.layout.fill(whole, tensors)
    return whole[cut]


def tracker_files(folder: Path) -> TrackerFiles:
    """Return where the tracker of a run writes."""
    names = (METRICS, EPISODES, CHECKPOINTS, TENSORBOARD, RECONSTRUCTION)
    return TrackerFiles(*(folder / name for name in names))


def add_tracker(
    graph: RoleGraph,
    experiment: Experiment,
    start: Start,
    flat: FlatParameters,
    folder: Path | None,
    began: float | None,
) -> Tracker:
    """Add the tracker. The checkpoints that it writes hold the input statistics too."""
    topology = experiment.shape.topology
    statistics = {
        "input/mean": torch.from_numpy(start.statistics.mean),
        "input/deviation": torch.from_numpy(start.statistics.deviation),
    }
    return graph.add(
        "tracker",
        "tracker",
        "tracker",
        Tracker,
        None if folder is None else tracker_files(folder),
        experiment.tracker,
        experiment.stop,
        flat.layout,
        statistics,
        RunFacts(
            began,
            start.counters,
            start.version.number,
            start.steps,
            learners=topology.learners if topology.remote_servers else 1,
            every=DETERMINISTIC_EVERY if experiment.deterministic else None,
            marked=experiment.shape.keep_every if topology.remote_servers else 0,
            resume=Resume(
                topology.players,
                start.saved or {},
                Exactly(start.origin, update_schedule_of(experiment))
                if experiment.deterministic
                else None,
            ),
            settings=settings(experiment),
            about=start.run,
        ),
    )


@dataclass(frozen=True)
class RoleFactory:
    """Adds roles to a graph; each method returns the handle of the role that it adds.

    The fields are what several roles need: the graph, the settings, where the run begins, the
    parameters, the tracker, how long a role waits for another, the games, and the devices.
    """

    graph: RoleGraph
    experiment: Experiment
    start: Start
    flat: FlatParameters
    tracker: Tracker
    patience: float
    games: Sequence[Games] | None
    make: MakeGames
    placement: Placement = ON_CPU

    @property
    def net(self) -> Network:
        """The network whose parameters the run learns."""
        assert isinstance(self.flat.module, Network)
        return self.flat.module

    def mix(self, index: int) -> ReplayMix | None:
        """Return what adds old windows to the batches of a queue; None if nothing does."""
        reuse, shape = self.experiment.reuse, self.experiment.shape
        if not reuse.replay_proportion:
            return None
        seeds = (self.experiment.seed, index, self.start.version.incarnation)
        rows, together = agents(self.experiment.games), self.net.policies
        windows = shape.windows // shape.topology.queues
        batch = windows if shape.batch else windows * rows  # it counts each
        kept = reuse.replay_slots * shape.games * rows
        sizes = (kept // together, reuse.replay_proportion, batch // together)
        return part(ReplayMix, *sizes, seeds, together)

    def buffer(self, name: str, process: str, actors: int, index: int = 0) -> ReplayBuffer:
        """Add a replay buffer for so many actors."""
        height, width = self.net.mean.shape
        return self.graph.add(
            name,
            "replay",
            process,
            ReplayBuffer,
            shape_of(self.experiment, actors, (height, width)),
            sampling_of(self.experiment, actors, self.start.steps),
            limiter_of(self.experiment, actors),
            self.patience,
            self.experiment.seed,
            index,
        )

    def cache(self, name: str, process: str, kept: int) -> PublishedParameters:
        """Add what publishes the parameters that a learner has pulled; it keeps some versions."""
        version, before = self.start.version, None
        if previous := dict(by_name(self.start.optimizer)).get(PREVIOUS):
            values = slice_of(self.flat, slice(None), previous)
            before = Params(version._replace(number=version.number - 1), values)
        # copied where it is built: the graph is made in every process, with the caches of all
        params = part(Params, version, part(self.flat.values.clone))
        return self.graph.add(
            name, "cache", process, PublishedParameters, params, kept, self.patience, before
        )

    def actor(
        self,
        process: str,
        index: int,
        sources: Sequence[ParameterServer] | Sequence[PublishedParameters],
        replay: ReplayWriter,
        pace: Pace,
    ) -> None:
        """Add an actor that pulls from the sources and adds to the replay."""
        experiment, games, start = self.experiment, self.games, self.start
        shape = experiment.shape
        first = start.version._replace(number=start.origin.version)  # that of round 0
        goes_on = experiment.games_go_on and can_resume(experiment.games.game)
        self.graph.add(
            f"actor-{index}",
            "actor",
            process,
            Actor,
            ActorSettings(
                index,
                shape.topology.players,
                shape.games,
                shape.length,
                experiment.seed,
                pace,
                first if experiment.deterministic else None,
                self._streams,
            ),
            partial(self.make, experiment.games),
            part(
                make_policy,
                self.net,
                experiment.algorithm,
                self.placement.act,
                self.placement.acts_by_graph,
                self.placement.act_with,
            ),
            experiment.algorithm,
            sources,
            replay,
            self.tracker,
            games[index] if games else None,
            partial(resume_games, experiment.games) if goes_on else None,
        )

    def _probe(self, index: int) -> Probe | None:
        """Return what looks into the network of the first learner, if that is asked for."""
        if index or not self.experiment.tracker.probe_every:
            return None
        from colobus.roles.probe import Probe  # other runs do not need it

        return part(Probe, self.experiment.algorithm, self.experiment.tracker.probe_every)

    def _backprop(self, index: int) -> Backprop:
        """Return what a learner computes gradients with."""
        algorithm = self.experiment.algorithm
        by_graph = self.placement.cuda_graphs and algorithm.fits_cuda_graph
        make = CudaGraphBackprop if by_graph else Backprop
        return make(algorithm, index, self.experiment.seed, self._streams)

    @property
    def first_round(self) -> int:
        """The round that the learner of a trajectory queue begins with in a deterministic run."""
        return self.start.version.number - self.start.origin.version

    @property
    def _streams(self) -> int | None:
        """The incarnation in the seeds of a deterministic run."""
        return self.start.origin.incarnation if self.experiment.deterministic else None

    def servers(
        self, admission: Admission, own_memory: bool, rank: int = 0
    ) -> list[ParameterServer]:
        """Add the parameter servers, over slices of the flat vector or over copies of them.

        In a group, those of its learner ``rank``.
        """
        prefix, process = (f"replica-{rank}-", f"main-{rank}") if rank else ("", "main")
        flat, start, experiment = self.flat, self.start, self.experiment
        shape = experiment.shape
        # actors of a group wait for each version, so an interval of its preset does not count
        every = 1 if own_memory or shape.learners else shape.broadcast_every
        scales = flat.layout.scales(experiment.algorithm.rate_scale)
        return [
            self.graph.add(
                f"{prefix}server-{i}",
                "server",
                f"server-{i}" if own_memory else process,
                ParameterServer,
                flat.values[cut].clone() if own_memory else flat.values[cut],
                experiment.optimizer,
                admission,
                start.version,
                ServerSettings(
                    f"{prefix}server-{i}",
                    self.patience,
                    shape.keep_every if own_memory else 0,
                    experiment.algorithm.target_every,
                    experiment.algorithm.target_tau,
                    previous=experiment.deterministic
                    and not experiment.replay.capacity
                    and shape.broadcast_every == 1,
                    broadcast_every=every,
                ),
                {k: slice_of(flat, cut, tensors) for k, tensors in by_name(start.optimizer)},
                None if scales is None else scales[cut].to(flat.values.device),
            )
            for i, cut in enumerate(flat.layout.cut(shape.servers))
        ]

    def central_learner(
        self,
        servers: Sequence[ParameterServer],
        replay: ReplayReader,
        before_save: Callable[[Version], None] | None = None,
        rank: int = 0,
        member: Member | None = None,
    ) -> None:
        """Add the learner whose own memory the servers step; one of a group if it is a member."""
        algorithm, start, reuse = self.experiment.algorithm, self.start, self.experiment.reuse
        seeds, every = (self.experiment.seed, start.version.incarnation), algorithm.target_every
        algorithm_state = {
            name: value.clone()
            for name, value in (start.algorithm_state or algorithm.start()).items()
        }
        self.graph.add(
            f"learner-{rank}",
            "learner",
            f"main-{rank}" if rank else "main",
            Learner,
            rank,
            algorithm,
            client=part(LocalClient, rank, self.flat, servers, start.version, every, member),
            compute=self._backprop(rank),
            schedule=part(
                Schedule, algorithm, algorithm_state, start.steps, self.experiment.budget
            ),
            replay=replay,
            tracker=self.tracker,
            threads=self.experiment.shape.learner_threads,
            saves=rank == 0,
            reuse=part(
                MinibatchBuffer,
                reuse.buffer_batches,
                algorithm.epochs,
                reuse.ramp_up,
                reuse.buffer_order,
                seeds,
            ),
            before_save=before_save,
            probe=self._probe(rank),
        )

    def learner(
        self,
        index: int,
        process: str,
        servers: Sequence[ParameterServer],
        replay: ReplayReader,
        cache: PublishedParameters,
        buffer: ReplayBuffer | None = None,
    ) -> None:
        """Add one of several learners, which pull from servers and push to them.

        ``buffer`` is the replay if that is a buffer in the same process; see `SharedSchedule`.
        """
        shape, algorithm, start = self.experiment.shape, self.experiment.algorithm, self.start
        topology = shape.topology
        every = not shape.asynchronous and topology.gradients == topology.learners
        told = not every or algorithm.source == "buffer"
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
                algorithm.target_every,
                cache=cache,
                asynchronous=shape.asynchronous,
                broadcast_every=shape.broadcast_every,
                device=self.placement.learn,
            ),
            compute=self._backprop(index),
            schedule=part(
                SharedSchedule,
                algorithm,
                part(algorithm.start),
                start.steps,
                self.experiment.budget,
                first=start.version,
                learners=topology.learners,
                told=told,
                buffer=buffer,
            ),
            replay=replay,
            tracker=self.tracker,
            threads=self.experiment.shape.learner_threads,
            probe=self._probe(index),
        )
