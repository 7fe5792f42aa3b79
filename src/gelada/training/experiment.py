"""All settings of a run, as frozen dataclasses, and the table of algorithms."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

from gelada.algorithms.a3c import A3C
from gelada.algorithms.api import Algorithm
from gelada.algorithms.appo import APPO
from gelada.algorithms.dqn import DQN
from gelada.algorithms.pqn import PQN
from gelada.core.settings import POSITIVE, SHARE, OnlyWith, Range
from gelada.envs.api import GameSettings
from gelada.nets.config import NetworkSettings
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.tracker import StopRule, TrackerSettings

APART = OnlyWith("with --workers or --learners", lambda shape: shape.apart)
WORKERS = OnlyWith("with --workers", lambda shape: shape.workers > 0)
LEARNERS = OnlyWith("with --learners", lambda shape: shape.learners > 0)
ASYNCHRONOUS = OnlyWith("with --asynchronous", lambda shape: shape.asynchronous)
PRIORITIZED = OnlyWith("with --prioritized", lambda replay: replay.prioritized)
RECORDER = OnlyWith("with --recorder", lambda sidecars: sidecars.recorder)


@dataclass(frozen=True)
class Shape:
    """How many roles, and how experience is cut."""

    workers: Annotated[int, Range(0, 256)] = 0
    """Workers of DBA3C, each with actors, a replay and a learner of its own, around servers with
    memory of their own (0: one learner, whose memory the servers step)."""
    quorum: Annotated[int, Range(0, 256), APART] = 0
    """Workers: gradients that make a step; the workers beyond are backups (0: all of them)."""
    asynchronous: Annotated[bool, APART] = False
    """Workers: every gradient makes a step of its own."""
    max_staleness: Annotated[int, Range(0), ASYNCHRONOUS] = 100
    """Asynchronous: drop a gradient if others have made more steps since."""
    batch: Annotated[int, Range(0), WORKERS] = 0
    """Workers: steps in a learner's batch, cut down to whole windows of ``length`` (0: one
    trajectory of each actor)."""
    keep_every: Annotated[int, Range(1), APART] = 50
    """Workers: versions between the copies that servers put aside for checkpoints."""
    actors: Annotated[int, Range(1, 256)] = 2
    """Actor threads, each with one emulator thread of its own (with workers: in each)."""
    games: Annotated[int, Range(1, 4096)] = 8
    """Games that each actor plays side by side."""
    length: Annotated[int, Range(1, 65536)] = 128
    """Steps of a trajectory."""
    servers: Annotated[int, Range(1, 32)] = 1
    """Parameter servers, each with a slice of the parameters."""
    ahead: Annotated[int, Range(0, 64)] = 1
    """Rounds that an actor may be ahead of the learner (deterministic runs: at most 1)."""
    random_steps: Annotated[int, Range(0)] = 4096
    """Steps of random play that measure the input's mean and deviation; they count as steps."""
    deadline: Annotated[float, POSITIVE] = 120.0
    """Seconds after which a role that is stuck in its work is named and the run stopped."""
    learners: Annotated[int, Range(0, 256)] = 0
    """Learners apart from the actors, around stores and servers that stand alone (0: they live in
    workers, or there is one)."""
    replays: Annotated[int, Range(1, 256), LEARNERS] = 1
    """Experience stores between actors and learners that are apart."""

    @property
    def apart(self) -> bool:
        """Whether servers have memory of their own, apart from any learner's."""
        return bool(self.workers or self.learners)

    @property
    def learning(self) -> int:
        """Learners of the run."""
        return max(self.workers, self.learners, 1)

    @property
    def players(self) -> int:
        """Actors in all workers."""
        return self.actors * max(self.workers, 1)

    @property
    def gradients(self) -> int:
        """Gradients that make a synchronous step."""
        return self.quorum or self.learning

    @property
    def windows(self) -> int:
        """Windows of ``length`` steps in a learner's batch."""
        return self.batch // self.length if self.batch else self.actors * self.games

    @property
    def datapoints(self) -> int:
        """Steps in a learner's batch."""
        return self.windows * self.length


@dataclass(frozen=True)
class ReplaySettings:
    """The experience store of algorithms that learn from each step again and again (Gorila)."""

    capacity: Annotated[int, Range(0)] = 0
    """Steps kept, of all games of a store together (0: no store, each step is learned once)."""
    minimum: Annotated[int, Range(1)] = 10_000
    """Steps in a store before learning begins."""
    windows: Annotated[int, Range(1)] = 32
    """Windows in a learner's batch: as many steps with n-step returns."""
    samples_per_insert: Annotated[float, Range(0)] = 0.0
    """Windows learned for each step played; who is ahead waits (0: as it comes)."""
    prioritized: bool = False
    """Draw windows by their errors (Schaul et al. 2016) instead of all alike."""
    alpha: Annotated[float, Range(0), PRIORITIZED] = 0.6
    """prioritized: exponent of the priorities (0: all alike)."""
    beta: Annotated[float, SHARE, PRIORITIZED] = 0.4
    """prioritized: exponent of the importance weights at the start …"""
    beta_end: Annotated[float, SHARE, PRIORITIZED] = 1.0
    """… and after beta_steps (1: the weights undo the bias of the draw)."""
    beta_steps: Annotated[int, Range(0), PRIORITIZED] = 1_000_000
    """prioritized: environment steps over which the exponent moves in a straight line (0:
    beta_end from the start)."""
    keep: bool = False
    """Save the stores at the end of the run, and go on with them after --resume."""


@dataclass(frozen=True)
class Sidecars:
    """Processes of low priority that follow a run's checkpoints; they take time from training."""

    evaluator: bool = False
    """Play 50 full games with the newest checkpoint, again and again."""
    recorder: bool = False
    """Film the newest checkpoint, again and again."""
    record_length: Annotated[float, POSITIVE, RECORDER] = 120.0
    """Seconds of each film."""


@dataclass(frozen=True)
class Experiment:
    """All settings of a run: what ``config.json`` holds."""

    games: GameSettings = field(default_factory=GameSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    algorithm: Algorithm = field(default_factory=APPO)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    shape: Shape = field(default_factory=Shape)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    stop: StopRule = field(default_factory=StopRule)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    sidecars: Sidecars = field(default_factory=Sidecars)
    seed: Annotated[int, Range(0, 2**31 - 1)] = 1
    """Of everything random."""
    deterministic: bool = False
    """The same seed gives the same run, bit for bit: actors play with parameters exactly one
    round old, and nothing timed touches training."""


ALGORITHMS: dict[str, type[Algorithm]] = {
    "appo": APPO,
    "a3c": A3C,
    "dqn": DQN,
    "pqn": PQN,
}
"""By the name that ``config.json`` has for them."""

MISTAKABLE = {"epsilon"}
"""Names of settings that are taken for another: the optimizer's for that of exploration."""


def groups_of(experiment: Experiment) -> dict[str, Any]:
    """Return the groups of settings of an experiment, dataclasses by name."""
    return {k: v for k, v in vars(experiment).items() if dataclasses.is_dataclass(v)}


@cache
def shared_names() -> frozenset[str]:
    """Return the names that settings of two groups have, with any algorithm."""
    shared = set(MISTAKABLE)
    for algorithm in ALGORITHMS.values():
        groups = groups_of(Experiment(algorithm=algorithm())).values()
        count = Counter(each.name for group in groups for each in dataclasses.fields(group))
        shared |= {name for name, times in count.items() if times > 1}
    return frozenset(shared)


def flag(name: str, group: str = "") -> str:
    """Return the flag of a setting; the group stands before a name that is not its own."""
    own = f"{group}-{name}" if group and name in shared_names() else name
    return "--" + own.replace("_", "-")
