"""All settings of a run, as frozen dataclasses, and the table of algorithms."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from gelada.algorithms.a3c import A3C
from gelada.algorithms.api import Algorithm
from gelada.algorithms.appo import APPO
from gelada.algorithms.dqn import DQN
from gelada.algorithms.pqn import PQN
from gelada.core.fields import POSITIVE, SHARE, OnlyWith, Range, shown
from gelada.envs.api import GameSettings
from gelada.nets.config import NetworkSettings
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.replay.minibatch_buffer import Order
from gelada.roles.tracker import StopRule, TrackerSettings

APART = OnlyWith("with --workers or --learners", lambda shape: shape.apart)
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
RECORDER = OnlyWith("with --recorder", lambda sidecars: sidecars.recorder)


@dataclass(frozen=True)
class Shape:
    """How many roles a run has, and the size of rollouts and batches."""

    workers: Annotated[int, Range(0, 256)] = 0
    """Number of workers, each with its own actors, replay and learner, around parameter servers
    (0: none; the actors are those of one learner, or of several with --learners)."""
    quorum: Annotated[int, Range(0, 256), APART] = 0
    """Gradients that make a synchronous step; further workers are backups (0: all workers)."""
    asynchronous: Annotated[bool, APART] = False
    """Apply every gradient as soon as it arrives."""
    max_staleness: Annotated[int, Range(0), ASYNCHRONOUS] = 100
    """Drop a gradient that was computed more than this many steps ago."""
    batch: Annotated[int, Range(0)] = 0
    """Steps in a learner's batch, rounded down to whole windows of ``length``; the oldest windows
    come first, whichever actor sent them (0: one trajectory of each actor)."""
    keep_every: Annotated[int, Range(1), APART] = 50
    """Versions between the copies that the servers keep for checkpoints."""
    actors: Annotated[int, Range(1, 256)] = 2
    """Actors, or with workers the actors of each."""
    games: Annotated[int, Range(1, 4096)] = 8
    """Games that each actor plays at the same time."""
    length: Annotated[int, Range(1, 65536)] = 128
    """Steps of a rollout."""
    servers: Annotated[int, Range(1, 32)] = 1
    """Parameter servers, each with a slice of the parameters."""
    ahead: Annotated[int, Range(0, 64), PACED] = 1
    """Rollouts that an actor may be ahead of the learner (with --deterministic at most 1)."""
    in_flight: Annotated[int, Range(1, 64), UNPACED] = 2
    """Trajectories of an actor that no batch has taken yet, the one that it plays included."""
    emulators: Annotated[int, Range(1, 256)] = 1
    """Emulator threads of each actor. They share its games."""
    broadcast_every: Annotated[int, Range(1, 1000), TOGETHER] = 1
    """Versions between those that the actors get; they play with the newest of these."""
    random_steps: Annotated[int, Range(0, 10**12)] = 4096
    """Steps of random play that measure the mean and deviation of the frames. They count as steps
    of the run."""
    deadline: Annotated[float, Range(above=0, high=10_000_000)] = 120.0
    """Seconds without progress of a role after which the run stops and names the role."""
    learners: Annotated[int, Range(0, 256)] = 0
    """Number of learners that run apart from actors, replay buffers and servers, or with --reduce
    group that step alike (0: learners are part of workers, or there is a single one)."""
    reduce: Annotated[Literal["servers", "group"], SEVERAL] = "servers"
    """How several learners join their gradients: at parameter servers, or (group) by adding them up
    before each step. In a group each learner has the actors, games and batch that are given."""
    replays: Annotated[int, Range(1, 256), NOT_WORKERS] = 1
    """Replay buffers between the actors and the learners; without --learners, trajectory queues
    between the actors and the learner, each in a process of its own on Ray."""

    loaders: Annotated[int, Range(0, 16), ALONE] = 0
    """Threads that join trajectories to batches, and copy them to a GPU, while the learner learns
    (0: the learner does that itself)."""

    @property
    def apart(self) -> bool:
        """Whether servers have memory of their own, apart from any learner's."""
        return bool(self.workers or (self.learners and self.reduce == "servers"))

    @property
    def replicas(self) -> int:
        """Learners that step alike, each with actors, a queue and servers of its own."""
        return self.learners if self.reduce == "group" and self.learners else 1

    @property
    def learning(self) -> int:
        """Learners of the run."""
        return max(self.workers, self.learners, 1)

    @property
    def players(self) -> int:
        """Actors of the run."""
        return self.actors * max(self.workers, self.replicas)

    @property
    def gradients(self) -> int:
        """Gradients that make a synchronous step."""
        return self.quorum or self.learning

    @property
    def windows(self) -> int:
        """Windows of ``length`` steps in a learner's batch."""
        return self.batch // self.length if self.batch else self.actors * self.games

    @property
    def queues(self) -> int:
        """Trajectory queues between the actors and the only learner, if it learns from queues."""
        return 1 if self.apart else self.replays

    @property
    def datapoints(self) -> int:
        """Steps in a learner's batch."""
        return self.windows * self.length


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


@dataclass(frozen=True)
class Sidecars:
    """Processes of low priority beside a run. They take some of the processors' time."""

    evaluator: bool = False
    """Evaluate each new checkpoint in 50 full games."""
    recorder: bool = False
    """Film each new checkpoint."""
    record_length: Annotated[float, POSITIVE, RECORDER] = 120.0
    """Length of a film in seconds."""


@dataclass(frozen=True)
class Experiment:
    """All settings of a run, as saved in ``config.json``."""

    games: GameSettings = field(default_factory=GameSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    algorithm: Algorithm = field(default_factory=APPO)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    shape: Shape = field(default_factory=Shape)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    reuse: ReuseSettings = field(default_factory=ReuseSettings)
    stop: StopRule = field(default_factory=StopRule)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    sidecars: Sidecars = field(default_factory=Sidecars)
    seed: Annotated[int, Range(0, 2**31 - 1)] = 1
    """Seed of all random numbers."""
    deterministic: bool = False
    """The same seed gives the same run, bit for bit: the number of a rollout decides which
    parameters play it, and nothing in training depends on time."""


ALGORITHMS: dict[str, type[Algorithm]] = {
    "appo": APPO,
    "a3c": A3C,
    "dqn": DQN,
    "pqn": PQN,
}
"""Algorithms by their names in ``config.json``."""

MISTAKABLE = {"epsilon"}
"""Names of settings that are easily mistaken: the optimizer's epsilon for that of exploration.
Their flags begin with the group."""


def groups_of(experiment: Experiment) -> dict[str, Any]:
    """Return the groups of settings of an experiment, dataclasses by name."""
    return {k: v for k, v in vars(experiment).items() if dataclasses.is_dataclass(v)}


@cache
def shared_names() -> frozenset[str]:
    """Return the names of settings that occur in two groups with some algorithm."""
    shared = set(MISTAKABLE)
    for algorithm in ALGORITHMS.values():
        groups = groups_of(Experiment(algorithm=algorithm())).values()
        count = Counter(each.name for group in groups for each in dataclasses.fields(group))
        shared |= {name for name, times in count.items() if times > 1}
    return frozenset(shared)


def flag(name: str, group: str = "") -> str:
    """Return the flag of a setting. It begins with the group if the name is not unique."""
    own = f"{group}-{name}" if group and name in shared_names() else name
    return "--" + own.replace("_", "-")


def argument(name: str, group: str = "") -> str:
    """Return the name of a setting as an argument in Python: that of its flag, with underscores."""
    return flag(name, group).removeprefix("--").replace("-", "_")


def algorithm_name(experiment: Experiment) -> str:
    """Return the name of its algorithm in `ALGORITHMS`."""
    return {kind: name for name, kind in ALGORITHMS.items()}[type(experiment.algorithm)]


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return all settings of an experiment by their names in Python, for a tracker."""
    found: dict[str, Any] = {"algorithm": type(experiment.algorithm).__name__}
    for group, values in groups_of(experiment).items():
        found |= {argument(name, group): value for name, value in vars(values).items()}
    return found | {"seed": experiment.seed, "deterministic": experiment.deterministic}


def given(flag_name: str, value: Any) -> str:
    """Return a flag as it is given: ``--lr 0.1``, ``--colour`` or ``--no-colour``."""
    if isinstance(value, bool):
        return flag_name if value else f"--no-{flag_name.removeprefix('--')}"
    return f"{flag_name} {shown(value)}"
