"""All settings of a run, as frozen dataclasses, and the table of algorithms."""

from __future__ import annotations

from dataclasses import dataclass, field

from gelada.algorithms.a3c import A3C
from gelada.algorithms.appo import APPO
from gelada.algorithms.dqn import DQN
from gelada.envs.api import GameSettings
from gelada.nets.config import NetworkSettings
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.tracker import StopRule, TrackerSettings


@dataclass(frozen=True)
class Shape:
    """How many roles, and how experience is cut."""

    workers: int = 0
    """Workers of DBA3C, each with actors, a replay and a learner of its own, around servers with
    memory of their own (0: one learner, whose memory the servers step)."""
    quorum: int = 0
    """Workers: gradients that make a step; the workers beyond are backups (0: all of them)."""
    asynchronous: bool = False
    """Workers: every gradient makes a step of its own."""
    max_staleness: int = 100
    """Asynchronous: drop a gradient if others have made more steps since."""
    batch: int = 0
    """Workers: steps in a learner's batch, cut down to whole windows of ``length`` (0: one
    trajectory of each actor)."""
    keep_every: int = 50
    """Workers: versions between the copies that servers put aside for checkpoints."""
    actors: int = 2
    """Actor threads, each with one emulator thread of its own (with workers: in each)."""
    games: int = 8
    """Games that each actor plays side by side."""
    length: int = 128
    """Steps of a trajectory."""
    servers: int = 1
    """Parameter servers, each with a slice of the parameters."""
    ahead: int = 1
    """Rounds that an actor may be ahead of the learner (deterministic runs: at most 1)."""
    random_steps: int = 4096
    """Steps of random play that measure the input's mean and deviation; they count as steps."""
    deadline: float = 120.0
    """Seconds after which a role that is stuck in its work is named and the run stopped."""
    learners: int = 0
    """Learners apart from the actors, around stores and servers that stand alone (0: they live in
    workers, or there is one)."""
    replays: int = 1
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

    capacity: int = 0
    """Steps kept, of all games of a store together (0: no store, each step is learned once)."""
    minimum: int = 10_000
    """Steps in a store before learning begins."""
    windows: int = 32
    """Windows in a learner's batch: as many steps with n-step returns."""
    samples_per_insert: float = 0.0
    """Windows learned for each step played; who is ahead waits (0: as it comes)."""
    prioritized: bool = False
    """Draw windows by their errors (Schaul et al. 2016) instead of all alike."""
    alpha: float = 0.6
    """prioritized: exponent of the priorities (0: all alike)."""
    beta: float = 0.4
    """prioritized: exponent of the importance weights at the start …"""
    beta_end: float = 1.0
    """… and after beta_steps (1: the weights undo the bias of the draw)."""
    beta_steps: int = 1_000_000
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
    record_length: float = 120.0
    """Seconds of each film."""


@dataclass(frozen=True)
class Experiment:
    """All settings of a run: what ``config.json`` holds."""

    games: GameSettings = field(default_factory=GameSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    algorithm: APPO | A3C | DQN = field(default_factory=APPO)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    shape: Shape = field(default_factory=Shape)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    stop: StopRule = field(default_factory=StopRule)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    sidecars: Sidecars = field(default_factory=Sidecars)
    seed: int = 1
    """Of everything random."""
    deterministic: bool = False
    """The same seed gives the same run, bit for bit: actors play with parameters exactly one
    round old, and nothing timed touches training."""


ALGORITHMS: dict[str, type[APPO] | type[A3C] | type[DQN]] = {
    "appo": APPO,
    "a3c": A3C,
    "dqn": DQN,
}
"""By the name that ``config.json`` has for them."""
