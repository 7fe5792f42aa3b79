"""The shape of a run: its roles, how they are arranged, and how experience is kept and used again.

Flags and ``config.json`` have one flat `Shape`; of the four topologies, each a class, it says one.
Each part states its rules beside its settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

from colobus.algorithms.api import Algorithm
from colobus.algorithms.api import Topology as TopologyName
from colobus.core.errors import ColobusError
from colobus.core.fields import SHARE, OnlyWith, Range, given, hints_of, only_with
from colobus.envs.api import GameSettings
from colobus.envs.make import agents
from colobus.roles.parameters.published import KEPT
from colobus.roles.parameters.server import Admission
from colobus.roles.replay.minibatch_buffer import Order

REMOTE = OnlyWith("with --workers or --learners", lambda shape: shape.topology.remote_servers)
SEVERAL = OnlyWith("with --learners", lambda shape: shape.learners > 0)
PACED = OnlyWith(
    "with --workers, or without --batch", lambda shape: shape.workers > 0 or not shape.batch
)
UNPACED = OnlyWith(
    "with --batch and without --workers", lambda shape: bool(shape.batch) and not shape.workers
)
NOT_WORKERS = OnlyWith("without --workers", lambda shape: not shape.workers)
TOGETHER = OnlyWith("without --learners", lambda shape: not shape.learners)
ALONE = OnlyWith(
    "without --workers and --learners", lambda shape: not (shape.workers or shape.learners)
)
ASYNCHRONOUS = OnlyWith("with --asynchronous", lambda shape: shape.asynchronous)
MIXED = OnlyWith("with --replay-proportion above 0", lambda reuse: reuse.replay_proportion > 0)
BUFFERED = OnlyWith("with --buffer-batches above 1", lambda reuse: reuse.buffer_batches > 1)
PRIORITIZED = OnlyWith("with --prioritized", lambda replay: replay.prioritized)

MOST = 1024
"""Roles of a kind. So many were tested in a simulation: real roles that run one after the other."""


@dataclass(frozen=True)
class Shape:
    """How many roles a run has, and the size of rollouts and batches."""

    workers: Annotated[int, Range(0, MOST)] = 0
    """Number of workers, each with its own actors, replay and learner, around parameter servers
    (0: none; the actors are those of one learner, or of several with --learners)."""
    quorum: Annotated[int, Range(0, MOST), REMOTE] = 0
    """Gradients that make a synchronous step; further workers are backups (0: all workers)."""
    asynchronous: Annotated[bool, REMOTE] = False
    """Apply every gradient as soon as it arrives."""
    max_staleness: Annotated[int, Range(0), ASYNCHRONOUS] = 100
    """Drop a gradient that was computed more than this many steps ago."""
    batch: Annotated[int, Range(0)] = 0
    """Steps in a learner's batch, rounded down to whole windows of ``length``; the oldest windows
    come first, whichever actor sent them (0: one trajectory of each actor)."""
    keep_every: Annotated[int, Range(1), REMOTE] = 50
    """Versions between the copies that the servers keep for checkpoints."""
    actors: Annotated[int, Range(1, MOST)] = 2
    """Actors, or with workers the actors of each."""
    games: Annotated[int, Range(1, 4096)] = 8
    """Games that each actor plays at the same time."""
    length: Annotated[int, Range(1, 65536)] = 128
    """Steps of a rollout."""
    servers: Annotated[int, Range(1, 128)] = 1
    """Parameter servers, each with a slice of the parameters."""
    ahead: Annotated[int, Range(0, 64), PACED] = 1
    """Rollouts that an actor may be ahead of the learner (with --deterministic and without
    --workers at most 1)."""
    in_flight: Annotated[int, Range(1, 64), UNPACED] = 2
    """Trajectories of an actor that no batch has taken yet, the one that it plays included."""
    emulators: Annotated[int, Range(1, 256)] = 1
    """Emulator threads of each actor. They share its games."""
    env_processes: Annotated[int, Range(0, 256)] = 0
    """Processes of each actor in which environments of Gymnasium step, for slow ones (0: none, they
    step in the actor's thread)."""
    broadcast_every: Annotated[int, Range(1, 1000), TOGETHER] = 1
    """Versions between those that the actors get; they play with the newest of these."""
    random_steps: Annotated[int, Range(0, 10**12)] = 4096
    """Steps of random play that measure the mean and deviation of the frames. They count as steps
    of the run."""
    deadline: Annotated[float, Range(above=0, high=10_000_000)] = 120.0
    """Seconds without progress of a role after which the run stops and names the role."""
    learners: Annotated[int, Range(0, MOST)] = 0
    """Number of learners that run apart from actors, replay buffers and servers, or with --reduce
    group that step alike (0: learners are part of workers, or there is a single one)."""
    reduce: Annotated[Literal["servers", "group"], SEVERAL] = "servers"
    """How several learners join their gradients: at parameter servers, or (group) by adding them up
    before each step. In a group each learner has the actors, games and batch that are given."""
    replays: Annotated[int, Range(1, MOST), NOT_WORKERS] = 1
    """Replay buffers between the actors and the learners; without --learners, trajectory queues
    between the actors and the learner, each in a process of its own on Ray."""

    learner_threads: Annotated[int, Range(1, 256)] = 1
    """Torch threads of each learner on a CPU; an actor has one."""
    loaders: Annotated[int, Range(0, 16), ALONE] = 0
    """Threads that join trajectories to batches, and copy them to a GPU, while the learner learns
    (0: the learner does that itself)."""

    @property
    def windows(self) -> int:
        """Windows of ``length`` steps in a learner's batch."""
        return self.batch // self.length if self.batch else self.actors * self.games

    @property
    def datapoints(self) -> int:
        """Steps in a learner's batch."""
        return self.windows * self.length

    @property
    def topology(self) -> Topology:
        """How the roles are arranged, and how many there are."""
        actors, workers, learners = self.actors, self.workers, self.learners
        if workers:
            buffers = (actors,) * workers
            return Workers(self, workers, actors * workers, buffers, workers, self.servers)
        if not learners:
            queues = self.replays
            alone = 1 + (queues if queues > 1 else 0)
            return Central(self, 1, actors, (actors,), actors, alone, queues)
        if self.reduce == "group":
            players, queues = actors * learners, self.replays
            return Replicas(self, learners, players, (actors,), players, learners, queues)
        buffers = tuple(len(range(index, actors, self.replays)) for index in range(self.replays))
        alone = self.servers + self.replays
        return Separate(self, learners, actors, buffers, actors + learners, alone)


class Beside(NamedTuple):
    """What the rules of a part depend on in other parts."""

    algorithm: Algorithm
    games: GameSettings
    deterministic: bool

    @property
    def name(self) -> str:
        """Of the algorithm, in messages."""
        return type(self.algorithm).__name__

    @property
    def sampled(self) -> bool:
        """Whether batches come from replay buffers."""
        return self.algorithm.source == "buffer"


@dataclass(frozen=True)
class Topology:
    """How many of each role a run has, and which rules hold there."""

    shape: Shape
    learners: int
    players: int
    """Actors of all learners."""
    buffers: tuple[int, ...]
    """How many actors add to each replay buffer, if learners learn from those."""
    shared: int
    """Workers, or actors and learners that stand alone, of which several may share a process."""
    alone: int
    """Other processes, besides the tracker's."""
    queues: int = 1
    """Trajectory queues between the actors and one learner, if it learns from queues."""

    name: ClassVar[TopologyName]
    instead: ClassVar[str]
    """How to get it, in messages."""
    remote_servers: ClassVar[bool] = False
    """Whether servers have memory of their own, apart from any learner's."""

    @property
    def replicas(self) -> int:
        """Learners that step alike, each with actors, a queue and servers of its own."""
        return 1 if self.remote_servers else self.learners

    @property
    def gradients(self) -> int:
        """Gradients that make a synchronous step."""
        return self.shape.quorum or self.learners

    def processes(self, per_process: int) -> int:
        """Return how many processes a run has on a cluster; see `colobus.runtime.groups`."""
        return 1 + self.alone - (-self.shared // per_process)

    def check(self, beside: Beside) -> None:
        """Raise ColobusError if a run of this topology could make no step, or is not tested."""
        shape, (algorithm, _, deterministic) = self.shape, beside
        if shape.learners and shape.workers:
            raise ColobusError(
                f"--learners {shape.learners} with --workers {shape.workers}: a worker has its own "
                "learner; use one of the two"
            )
        if self.name not in algorithm.topologies:
            group = " --reduce group" if self.name == "replicas" else ""
            count = (
                f"--learners {shape.learners}" if shape.learners else f"--workers {shape.workers}"
            )
            fixes = [
                kind.instead
                for kind in (Central, Replicas, Workers, Separate)
                if kind.name in algorithm.topologies
                and (kind is not Replicas or self.name == "separate")
            ]
            if group and "separate" in algorithm.topologies:
                fixes = ["leave out --reduce group"]
            raise ColobusError(
                f"{count}{group} with {beside.name}: not tested; {' or '.join(fixes)}"
            )
        if deterministic and shape.batch:
            raise ColobusError(
                f"--batch {shape.batch} with --deterministic: a batch is one trajectory of each "
                "actor there; use --batch 0"
            )
        if shape.batch and shape.windows < 1:
            raise ColobusError(
                f"--batch {shape.batch}: must be at least one window of --length {shape.length} "
                "steps"
            )
        if shape.emulators > shape.games:
            raise ColobusError(
                f"--emulators {shape.emulators} with --games {shape.games}: each thread needs a "
                f"game; use at most {shape.games}"
            )
        if shape.env_processes and shape.games % shape.env_processes:
            fits = max(n for n in range(1, shape.env_processes) if shape.games % n == 0)
            raise ColobusError(
                f"--env-processes {shape.env_processes} with --games {shape.games}: each process "
                f"plays equally many games; use {fits}"
            )


@dataclass(frozen=True)
class Central(Topology):
    """Actors around one replay and one learner, whose own memory the parameter servers step."""

    name: ClassVar[TopologyName] = "central"
    instead = "leave out --workers and --learners"

    def check(self, beside: Beside) -> None:
        """Also refuse queues that could not give their part of a batch."""
        super().check(beside)
        shape, queues = self.shape, self.queues
        if beside.deterministic and shape.ahead >= KEPT:
            raise ColobusError(
                f"--ahead {shape.ahead} with --deterministic: servers keep {KEPT} versions; "
                f"use at most {KEPT - 1}"
            )
        if shape.loaders and beside.sampled:
            raise ColobusError(
                f"--loaders {shape.loaders} with {beside.name}: not tested where a replay "
                "buffer is sampled; leave it out"
            )
        if queues > 1 and self.replicas > 1:
            raise ColobusError(
                f"--replays {queues} with --reduce group: each learner has one queue; leave it out"
            )
        if queues > 1 and beside.sampled:
            raise ColobusError(
                f"--replays {queues} with a single learner: it has one replay buffer; add "
                "--learners"
            )
        for what, count in (("actors", shape.actors), ("windows in a batch", shape.windows)):
            if count % queues:
                fits = [n for n in range(1, queues) if not (shape.actors % n or shape.windows % n)]
                raise ColobusError(
                    f"--replays {queues}: {count} {what} cannot be shared equally by so many "
                    f"queues; use {fits[-1]}"
                )
        # one trajectory may be down to a last window while its actor waits for room
        rows = shape.games * agents(beside.games)
        lacking = rows - 1 if shape.windows // queues % rows else 0
        most = shape.actors // queues * shape.in_flight * rows - lacking
        if shape.batch and shape.windows // queues > most:
            raise ColobusError(
                f"--in-flight {shape.in_flight}: the actors of a queue send at most "
                f"{most * shape.length:,} steps ahead, fewer than its "
                f"{shape.windows // queues * shape.length:,} of a batch; raise it or lower --batch"
            )


@dataclass(frozen=True)
class Replicas(Central):
    """Several such centres, whose learners add up their gradients before each step."""

    name = "replicas"
    instead = "add --reduce group"


@dataclass(frozen=True)
class Remote(Topology):
    """Several learners around servers with memory of their own."""

    remote_servers = True

    @property
    def admission(self) -> Admission:
        """Which gradients count."""
        if self.shape.asynchronous:
            return Admission(1, self.shape.max_staleness)
        return Admission(self.gradients)

    def check(self, beside: Beside) -> None:
        """Also refuse steps that would need too many gradients, or depend on who is faster."""
        super().check(beside)
        shape = self.shape
        if self.gradients > self.learners:
            raise ColobusError(
                f"quorum {self.gradients} with {self.learners} learner(s): a step would never be "
                f"complete; ask for at most {self.learners}"
            )
        if shape.asynchronous and shape.quorum:
            raise ColobusError(
                f"--quorum {shape.quorum} with --asynchronous: every gradient makes a step; leave "
                "out one of them"
            )
        if beside.deterministic and (shape.asynchronous or self.gradients < self.learners):
            what = "--asynchronous" if shape.asynchronous else f"--quorum {shape.quorum}"
            raise ColobusError(
                f"{what} with --deterministic: which gradients count depends on who is faster; use "
                f"a quorum of all {shape.workers} workers"
            )


@dataclass(frozen=True)
class Workers(Remote):
    """Workers, each with actors, a replay and a learner."""

    name = "workers"
    instead = "use --workers 1 or more"


@dataclass(frozen=True)
class Separate(Remote):
    """Actors, learners, replay buffers and servers that each stand alone."""

    name = "separate"
    instead = "use --learners 1 or more"

    def processes(self, per_process: int) -> int:
        """See `Topology`; an actor and a learner share none."""
        shared = -(-self.players // per_process) - (-self.learners // per_process)
        return 1 + self.alone + shared


@dataclass(frozen=True)
class ReplaySettings:
    """Settings of the replay buffers."""

    capacity: Annotated[int, Range(0)] = 0
    """Steps that a replay buffer holds, over all its games (0: no replay buffer)."""
    minimum: Annotated[int, Range(1)] = 10_000
    """Steps in a replay buffer before learning begins."""
    windows: Annotated[int, Range(1)] = 32
    """Windows in a learner's batch. N-step returns learn only the first step of a window."""
    samples_per_insert: Annotated[float, Range(0)] = 0.0
    """Windows sampled for each step played. Actors or learners wait to keep this ratio (0: they do
    not wait)."""
    prioritized: bool = False
    """Sample windows by their errors (Schaul et al. 2016) instead of uniformly."""
    alpha: Annotated[float, Range(0), PRIORITIZED] = 0.6
    """Exponent of the priorities (0: uniform)."""
    beta: Annotated[float, SHARE, PRIORITIZED] = 0.4
    """Exponent of the importance sampling weights at the start …"""
    beta_end: Annotated[float, SHARE, PRIORITIZED] = 1.0
    """… and after beta_steps (1: the weights remove the bias of prioritized sampling)."""
    beta_steps: Annotated[int, Range(0), PRIORITIZED] = 1_000_000
    """Environment steps over which the exponent changes linearly (0: it is beta_end from the
    start)."""
    keep: bool = False
    """Save the replay buffers at the end of the run, and use them again after --resume."""

    def check(self, beside: Beside, topology: Topology) -> None:
        """Raise ColobusError for what a replay buffer, or learning from one, cannot do."""
        algorithm, _, deterministic = beside
        shape, count = topology.shape, len(topology.buffers)
        if not beside.sampled:
            if self != ReplaySettings():
                raise ColobusError(
                    f"a replay buffer with {beside.name}: it learns from each step once; leave out "
                    "--capacity and the like, or take a preset without a buffer, such as ppo-pong"
                )
            return
        if not self.capacity:
            raise ColobusError(
                f"--capacity 0 with {beside.name}: it learns from a replay buffer; use 100000 or "
                "more"
            )
        if deterministic:
            self._check_repeatable(algorithm, topology)
        if isinstance(topology, Separate) and count > shape.actors:
            raise ColobusError(
                f"--replays {count} with {shape.actors} actors: each replay buffer needs an actor "
                f"that adds to it; use at most {shape.actors}"
            )
        if algorithm.drops_outliers and topology.remote_servers and not shape.asynchronous:
            outlier = getattr(algorithm, "outlier", 0.0)
            raise ColobusError(
                f"--outlier {outlier:g} without --asynchronous: a step would wait for the gradient "
                "that was dropped"
            )
        each = shape.games * max(topology.buffers)
        longest = max(shape.length, algorithm.window(shape.length)) + 1
        if self.capacity < each * longest:
            raise ColobusError(
                f"--capacity {self.capacity}: must be at least {each * longest}: of each of {each} "
                f"games {longest} steps (a rollout or a window, and one more)"
            )
        if self.minimum > self.capacity:
            raise ColobusError(
                f"--minimum {self.minimum}: must not be above --capacity {self.capacity}: the "
                "buffer would never be full enough to learn from"
            )

    def _check_repeatable(self, algorithm: Algorithm, topology: Topology) -> None:
        """Refuse a buffer of a deterministic run of which who is faster would decide, or a flag
        that would do nothing."""
        if topology.remote_servers:
            raise ColobusError(
                "--deterministic with a replay buffer and several learners: what is sampled "
                "depends on who is faster; leave it out, or use a single learner"
            )
        if not self.samples_per_insert:
            raise ColobusError(
                "--deterministic with a replay buffer: how much is sampled depends on who is "
                "faster; give --samples-per-insert"
            )
        if self.keep:
            raise ColobusError(
                "--keep with --deterministic: the replay buffer is saved with every checkpoint "
                "there; leave it out"
            )
        if algorithm.drops_outliers:
            raise ColobusError(
                "--outlier with --deterministic: actors count versions, and a dropped gradient "
                "makes none; use --outlier 0"
            )


@dataclass(frozen=True)
class ReuseSettings:
    """How experience from a trajectory queue is used again."""

    replay_proportion: Annotated[float, Range(0, 64)] = 0.0
    """Old windows in a batch for each fresh one, drawn at random (0: none)."""
    replay_slots: Annotated[int, Range(1), MIXED] = 100
    """Newest trajectories from which each queue draws old windows."""
    buffer_batches: Annotated[int, Range(1, 1024)] = 1
    """Batches that the learner holds. The epochs over a batch are spread over as many rounds."""
    buffer_order: Annotated[Order, BUFFERED] = "ring"
    """Spread the epochs evenly (ring), or draw when a held batch is used again (random)."""
    ramp_up: bool = False
    """Use the first batch for one epoch, the second for two, up to all epochs."""

    def check(self, beside: Beside, topology: Topology) -> None:
        """Raise ColobusError where experience cannot be used again, or nothing would be."""
        shape, epochs = topology.shape, beside.algorithm.epochs
        usual = ReuseSettings()
        rules = {name: only_with(hint) for name, hint in hints_of(ReuseSettings).items()}
        changed = [
            name
            for name, rule in rules.items()
            if getattr(self, name) != getattr(usual, name) and (rule is None or rule.holds(self))
        ]
        if not changed:
            return
        what = given("--" + changed[0].replace("_", "-"), getattr(self, changed[0]))
        if beside.sampled:
            raise ColobusError(f"{what} with {beside.name}: it has a replay buffer; leave it out")
        if topology.remote_servers:
            raise ColobusError(
                f"{what} with {beside.name}: it learns from each step once; leave it out"
            )
        if topology.replicas > 1:
            raise ColobusError(
                f"{what} with --reduce group: not tested, and old windows would make the learners' "
                "batches differ in size; leave one of the two out"
            )
        if epochs < 2 and (self.buffer_batches > 1 or self.ramp_up):
            what = "--ramp-up" if self.ramp_up else f"--buffer-batches {self.buffer_batches}"
            raise ColobusError(
                f"{what} with --epochs {epochs}: a batch is used once; raise --epochs or leave it "
                "out"
            )
        rows = agents(beside.games)
        trajectory = shape.games * shape.length * rows
        kept = self.replay_slots * trajectory
        batch = shape.datapoints // topology.queues * (1 if shape.batch else rows)
        if self.replay_proportion and kept <= batch:
            raise ColobusError(
                f"--replay-slots {self.replay_slots}: they hold {kept:,} steps, no more than the "
                f"{batch:,} of a batch, so nothing would be replayed; raise it to at least "
                f"{batch // trajectory + 1}"
            )
