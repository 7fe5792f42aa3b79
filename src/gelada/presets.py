"""Named experiments, in Python. One recipe for all games; a preset says where it differs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gelada.algorithms.appo import APPO
from gelada.envs.games import GameSettings
from gelada.envs.names import known_games, parse_game
from gelada.errors import GeladaError, nearest
from gelada.nets.network import NetworkSettings
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.tracker import StopRule, TrackerSettings


@dataclass(frozen=True)
class Shape:
    """How many roles, and how experience is cut."""

    actors: int = 2
    """Actor threads, each with one emulator thread of its own."""
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


@dataclass(frozen=True)
class Experiment:
    """All settings of a run: what ``config.json`` holds."""

    games: GameSettings = field(default_factory=GameSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    algorithm: APPO = field(default_factory=APPO)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    shape: Shape = field(default_factory=Shape)
    stop: StopRule = field(default_factory=StopRule)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    seed: int = 1
    """Of everything random."""
    deterministic: bool = False
    """The same seed gives the same run, bit for bit: actors play with parameters exactly one
    round old, and nothing timed touches training."""


DEFAULT_STOP = {"pong": StopRule(steps=1_000_000, until_score=18.0)}
"""When a game's run ends if nobody says: here, or after ten million frames."""


def preset(name: str) -> tuple[Experiment, str]:
    """Return the experiment of a preset or game, and a sentence about its name ("" if none).

    Raises:
        GeladaError: if there is none; the message has the nearest known names.
    """
    if name in PRESETS:
        return PRESETS[name], ""
    try:
        game, sticky, note = parse_game(name)
    except GeladaError:
        known = [*PRESETS, *known_games()]
        raise GeladaError(
            f"unknown game or preset {name!r}: {nearest(name.lower(), known)}"
        ) from None
    if game in PRESETS:
        base = PRESETS[game]
    else:
        base = Experiment(
            games=GameSettings(game=game),
            algorithm=APPO(anneal_steps=1_500_000),
            stop=StopRule(steps=2_500_000),
        )
    if sticky is not None:
        base = replace(base, games=replace(base.games, sticky=sticky))
    return base, note


PRESETS: dict[str, Experiment] = {
    "pong": Experiment(stop=DEFAULT_STOP["pong"]),
    "catch": Experiment(
        games=GameSettings(game="catch", size=10),
        network=NetworkSettings(torso="tiny", width=64, stack=1, precision="float32"),
        algorithm=APPO(anneal_steps=50_000),
        shape=Shape(actors=2, games=8, length=32, random_steps=512),
        stop=StopRule(steps=150_000, until_score=0.95),
    ),
}
