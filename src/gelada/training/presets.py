"""Named experiments, in Python. One recipe for all games; a preset says where it differs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gelada.algorithms.a3c import A3C
from gelada.algorithms.appo import APPO
from gelada.algorithms.dqn import DQN
from gelada.core.errors import GeladaError, nearest
from gelada.envs.api import GameSettings
from gelada.envs.names import known_games, parse_game
from gelada.nets.network import NetworkSettings
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
    """prioritized: exponent of the weights that undo the bias (1: all of it)."""
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

TARGETS = {"breakout": 300, "pong": 10, "riverraid": 4000, "seaquest": 1830, "space_invaders": 700}
"""Mean evaluated scores at which Distributed-BA3C stops early, by game (its run_job.py)."""

DEFAULT_STOP = {"pong": StopRule(steps=1_000_000, until_score=18.0)}
"""When a game's run ends if nobody says: here, or after ten million frames."""


def with_target(experiment: Experiment) -> Experiment:
    """Return the experiment with ``--until-evaluated auto`` as the game's number.

    Raises:
        GeladaError: if the game has none.
    """
    if experiment.stop.until_evaluated != "auto":
        return experiment
    game = experiment.games.game
    if game not in TARGETS:
        raise GeladaError(
            f"--until-evaluated auto: there is no target for {game} (there are: "
            f"{', '.join(TARGETS)}); give a number"
        )
    stop = replace(experiment.stop, until_evaluated=float(TARGETS[game]))
    return replace(experiment, stop=stop)


def preset(name: str) -> tuple[Experiment, str]:
    """Return the experiment of a preset or game, and a sentence about its name ("" if none).

    A game may follow the name of a family: ``gorila-seaquest``.

    Raises:
        GeladaError: if there is none; the message has the nearest known names.
    """
    if name in PRESETS:
        return PRESETS[name], ""
    family, _, rest = name.partition("-")
    own = family in FAMILIES
    try:
        game, sticky, note = parse_game(rest if own else name)
    except GeladaError:
        known = [*PRESETS, *(f"{family}-{game}" for game in known_games() if own), *known_games()]
        raise GeladaError(
            f"unknown game or preset {name!r}: {nearest(name.lower(), known)}"
        ) from None
    if own:
        base = PRESETS.get(f"{family}-{game}", FAMILIES[family])
    else:
        base = PRESETS.get(game, GENERAL)
    base = replace(base, games=replace(base.games, game=game))
    if sticky is not None:
        base = replace(base, games=replace(base.games, sticky=sticky))
    return base, note


GENERAL = Experiment(
    games=GameSettings(size=84, life_loss_ends=True),
    network=NetworkSettings(torso="dqn2013"),
    algorithm=APPO(
        entropy=0.01, entropy_end=0.01, lr=1e-3, kl=0.02, kl_end=0.01, anneal_steps=6_000_000
    ),
    stop=StopRule(steps=2_500_000),
)
"""The recipe of a game that has no preset of its own. It looks closer than that of Pong, and goes
on learning for hours."""

DBA3C_PONG = Experiment(
    algorithm=A3C(
        n=20,
        entropy=0.02,
        entropy_end=0.002,
        gradient_clip=0.3,
        lr=3e-3,
        lr_end=1e-3,
        anneal_steps=700_000,
    ),
    shape=Shape(workers=2, servers=2, actors=1, games=8, length=20),
    stop=StopRule(steps=3_000_000, until_score=18.0),
)

SMALL_DQN = DQN(
    returns="q_lambda",
    lam=0.95,
    target_every=100,
    epsilon_end=0.005,
    epsilon_steps=10_000,
    lr=2e-3,
    lr_end=2e-4,
    anneal_steps=350_000,
)
"""Long returns over windows that are still young: with n-step returns and a large store the same
network has learned nothing of Pong after 100,000 steps, with these it plays well after 300,000."""

DQN_PONG = Experiment(
    algorithm=SMALL_DQN,
    shape=Shape(actors=2, games=8, length=32),
    replay=ReplaySettings(capacity=8_000, minimum=3_000, windows=8, samples_per_insert=0.125),
    stop=StopRule(steps=2_000_000, until_score=18.0),
)

GORILA_PONG = replace(
    DQN_PONG,
    algorithm=replace(SMALL_DQN, outlier=3.0),
    shape=Shape(workers=2, asynchronous=True, servers=2, actors=1, games=8, length=32),
    replay=replace(DQN_PONG.replay, capacity=4_000, minimum=1_500),
)

APEX_PONG = replace(
    DQN_PONG,
    algorithm=replace(SMALL_DQN, explore="ladder"),
    replay=replace(DQN_PONG.replay, prioritized=True),
    stop=StopRule(steps=400_000),
)
"""No stop at a score: with a ladder some games explore to the end, and their scores count."""


def for_any_game(pong: Experiment) -> Experiment:
    """Return a DQN preset of Pong with schedules for games that take longer to learn."""
    assert isinstance(pong.algorithm, DQN)
    algorithm = replace(pong.algorithm, epsilon_steps=100_000, anneal_steps=1_500_000)
    return replace(pong, algorithm=algorithm, stop=StopRule(steps=2_500_000))


PRESETS: dict[str, Experiment] = {
    "pong": Experiment(stop=DEFAULT_STOP["pong"]),
    "catch": Experiment(
        games=GameSettings(game="catch", size=10),
        network=NetworkSettings(torso="tiny", width=64, stack=1, precision="float32"),
        algorithm=APPO(anneal_steps=50_000),
        shape=Shape(actors=2, games=8, length=32, random_steps=512),
        stop=StopRule(steps=150_000, until_score=0.95),
    ),
    "dba3c-pong": DBA3C_PONG,
    "a3c-pong": replace(
        DBA3C_PONG, shape=replace(DBA3C_PONG.shape, workers=1, servers=1, actors=2)
    ),
    "dba3c-breakout": replace(
        DBA3C_PONG,
        games=GameSettings(game="breakout"),
        algorithm=replace(DBA3C_PONG.algorithm, anneal_steps=10_000_000),
        stop=StopRule(steps=10_000_000),
    ),
    "dba3c-catch": Experiment(
        games=GameSettings(game="catch", size=10),
        network=NetworkSettings(torso="tiny", width=64, stack=1, precision="float32"),
        algorithm=A3C(n=9, gradient_clip=1.0, lr=4e-3, anneal_steps=150_000),
        shape=Shape(workers=2, servers=2, actors=1, games=8, length=9, random_steps=512),
        stop=StopRule(steps=300_000, until_score=0.95),
    ),
    "dqn-pong": DQN_PONG,
    "apex-pong": APEX_PONG,
    "gorila-pong": GORILA_PONG,
    "gorila-breakout": replace(for_any_game(GORILA_PONG), games=GameSettings(game="breakout")),
    "gorila-catch": Experiment(
        games=GameSettings(game="catch", size=10),
        network=NetworkSettings(torso="tiny", width=64, stack=1, precision="float32"),
        algorithm=DQN(
            n=3,
            target_every=50,
            epsilon_end=0.01,
            epsilon_steps=6_000,
            lr=2e-3,
            lr_end=5e-4,
            anneal_steps=16_000,
        ),
        shape=Shape(
            workers=2, asynchronous=True, servers=2, actors=1, games=8, length=16, random_steps=512
        ),
        replay=ReplaySettings(capacity=20_000, minimum=500, windows=64, samples_per_insert=2.0),
        stop=StopRule(steps=150_000, until_score=0.95),
    ),
    "gorila-paper": Experiment(
        games=GameSettings(game="breakout", size=84, noop_max=31),
        network=NetworkSettings(torso="nature", width=512, layer_norm=False),
        algorithm=DQN(
            target_every=60_000, outlier=3.0, epsilon_steps=1_000_000, lr=1e-3, lr_end=1e-3
        ),
        optimizer=OptimizerSettings(optimizer="adagrad"),
        shape=Shape(
            workers=100,
            asynchronous=True,
            max_staleness=100,
            servers=31,
            actors=1,
            games=1,
            length=4,
            keep_every=1000,
        ),
        replay=ReplaySettings(capacity=1_000_000, minimum=50_000, samples_per_insert=8.0),
        stop=StopRule(steps=50_000_000),
        tracker=TrackerSettings(keep_checkpoints=0),
    ),
    "dba3c-breakout-paper": Experiment(
        games=GameSettings(
            game="breakout",
            size=84,
            colour=True,
            noop_max=0,
            max_frames=160_000,
            fire_on_life_loss=False,
        ),
        network=NetworkSettings(
            torso="ba3c",
            width=128,
            hidden="linear",
            layer_norm=False,
            conv_init="normal",
            fc_init="uniform",
            pad_channels=16,
        ),
        algorithm=A3C(lr=1e-3, lr_end=1e-3, anneal_steps=0),
        optimizer=OptimizerSettings(beta1=0.8, beta2=0.75, epsilon=1e-8),
        shape=Shape(
            workers=64,
            quorum=60,
            servers=4,
            actors=1,
            games=10,
            length=5,
            batch=32,
            keep_every=1000,
        ),
        stop=StopRule(until_evaluated=300.0),
        tracker=TrackerSettings(keep_checkpoints=0),
        sidecars=Sidecars(evaluator=True, recorder=True),
    ),
}

FAMILIES: dict[str, Experiment] = {
    "dba3c": PRESETS["dba3c-breakout"],
    "a3c": replace(PRESETS["dba3c-breakout"], shape=PRESETS["a3c-pong"].shape),
    "gorila": PRESETS["gorila-breakout"],
    "dqn": for_any_game(DQN_PONG),
    "apex": for_any_game(APEX_PONG),
}
"""Any game with the settings of an algorithm, by the first word of names such as
``dqn-seaquest``."""

NOTES = {
    "gorila-paper": (
        "after Gorila (Nair et al. 2015); it needs the memory of 100 machines",
        "published: 100 workers, 31 servers, 1 M frames a store, targets every 60,000 updates, "
        "AdaGrad, epsilon 1 to 0.1, one setting for all games",
        "chosen, not published: batches of 32, one update for 4 steps played, learning rate 0.001, "
        "epsilon over 1 M steps, gradients at most 100 updates old, losses at most 3 deviations "
        "above the mean, 50,000 steps before learning",
        "differs: inputs are standardised pixel by pixel (there divided by 255)",
    ),
    "dba3c-breakout-paper": (
        "after the best command of Distributed-BA3C (2018); it needs 64 workers' worth of cores",
        "differs: a batch is cut from whole windows of 5 steps, so 30 datapoints instead of 32",
        "differs: 4 emulator frames a step, the last two combined (there 2 to 4 at random)",
        "differs: values are looked up again by the learner (there those of acting time)",
        "differs: inputs are standardised pixel by pixel (there divided by 255)",
        "differs: gradients are clipped to a global norm of 40 (there by tensor, never reached)",
        "differs: no idle chief, and the 1600 x 128 hidden layer needs no splitting by hand: "
        "all servers carry equal slices",
    ),
}
"""What `gelada show` says about a preset that stands for a published system."""
