"""Every setting of an experiment as a flag, and which preset the flags start from."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

import tyro

from gelada.algorithms.a3c import A3C
from gelada.algorithms.appo import APPO
from gelada.algorithms.dqn import DQN
from gelada.cli.parsing import parse
from gelada.core.errors import GeladaError
from gelada.envs.api import GameSettings
from gelada.nets.network import NetworkSettings
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.tracker import StopRule, TrackerSettings
from gelada.training.experiment import Experiment, ReplaySettings, Shape, Sidecars
from gelada.training.presets import preset, with_target
from gelada.training.validate import check, flag

HELP = {"-h", "--help"}

STOP_FLAGS = "--steps, --minutes, --until-score or --until-evaluated"


@dataclass(frozen=True)
class Preprocessing(GameSettings):
    """How a game is played."""

    game: tyro.conf.Suppress[str] = "pong"  # named by the first word, not by a flag


@dataclass(frozen=True)
class Settings:
    """The flags of an experiment, those that most people want first."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="GAME_OR_PRESET")]] = ""
    """Such as pong, breakout, ALE/Breakout-v5 or catch."""
    seed: int = 1
    """Of everything random."""
    deterministic: bool = False
    """The same seed gives the same run, bit for bit; a little slower."""
    stop: StopRule = field(default_factory=StopRule)
    games: Preprocessing = field(default_factory=Preprocessing)
    shape: Shape = field(default_factory=Shape)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    algorithm: APPO = field(default_factory=APPO)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    sidecars: Sidecars = field(default_factory=Sidecars)

    def experiment(self) -> Experiment:
        """Return them as an experiment."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(Experiment)}
        return Experiment(**values | {"games": GameSettings(**vars(self.games))})


S = TypeVar("S", bound=Settings)


class Wanted(NamedTuple):
    """What the words of a command come to."""

    flags: Any  # the command's own dataclass, a Settings
    experiment: Experiment
    note: str  # what the game's name implies, or ""


def first_look(
    kind: type[S], command: str, args: Sequence[str], base: Experiment | None = None
) -> S:
    """Return the flags before it is known which values they start from.

    Args:
        kind: the command's dataclass.
        command: its name, for messages.
        args: the words.
        base: of a run that is resumed; else the preset is looked for among the words, because
            an algorithm has flags of its own.
    """
    algorithm = type((base or _named(args)).algorithm)
    return parse(with_flags_of(kind, algorithm), command, [w for w in args if w not in HELP])


def with_flags_of(kind: type[S], algorithm: type[APPO] | type[A3C] | type[DQN]) -> type[S]:
    """Return a command's dataclass with the flags of an algorithm."""
    if algorithm is APPO:
        return kind
    fields: list[Any] = [("algorithm", algorithm, field(default_factory=algorithm))]
    made = dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True)
    made.__doc__ = kind.__doc__
    return made


def _named(args: Sequence[str]) -> Experiment:
    """Return what the first word says that names a game or preset; no flag's value, if it can."""
    words = [(before, word) for before, word in zip(["", *args], args, strict=False)]
    for _, word in sorted(words, key=lambda pair: pair[0].startswith("--")):  # stable
        if not word.startswith("-"):
            with contextlib.suppress(GeladaError):
                return preset(word)[0]
    return Experiment()


def resolve(kind: type[S], command: str, args: Sequence[str], default_game: str = "") -> Wanted:
    """Return a command's flags on top of the preset that its first word names.

    If any stop rule is given, the preset's own is dropped and only what was given counts.

    Raises:
        GeladaError: for an unknown name, flag or value.
        SystemExit: with code 0, when ``--help`` was printed.
    """
    first = first_look(kind, command, args)
    name = first.name or default_game or ("pong" if HELP & set(args) else "")
    if not name:
        raise GeladaError(f"gelada {command}: which game or preset? such as: gelada {command} pong")
    base, note = preset(name)
    flags = parse(with_flags_of(kind, type(base.algorithm)), command, args, over(first, base))
    given = first.stop != StopRule()
    experiment = flags.experiment()
    if given:
        experiment = dataclasses.replace(experiment, stop=first.stop)
    experiment = with_target(experiment)
    check(experiment)
    return Wanted(flags, experiment, note)


def resolve_again(kind: type[S], command: str, args: Sequence[str], base: Experiment) -> Wanted:
    """Return a command's flags on top of the settings of an earlier run.

    Raises:
        GeladaError: if a setting differs from the run's that may not change any more.
    """
    first = first_look(kind, command, args, base)
    if first.name:
        raise GeladaError(
            f"{first.name!r} with --resume: the run knows its game; leave the name out"
        )
    flags = parse(with_flags_of(kind, type(base.algorithm)), command, args, over(first, base))
    experiment = flags.experiment()
    if first.stop != StopRule():
        experiment = dataclasses.replace(experiment, stop=first.stop)
    experiment = with_target(experiment)
    kept = dataclasses.replace(
        base, stop=experiment.stop, tracker=experiment.tracker, sidecars=experiment.sidecars
    )
    if experiment != kept:
        names = ", ".join(_differing(experiment, kept))
        raise GeladaError(
            f"{names} with --resume: a run's settings are fixed by its config.json; only "
            f"{STOP_FLAGS} and what is written may change"
        )
    check(experiment)
    return Wanted(flags, experiment, "")


def over(flags: S, base: Experiment) -> S:
    """Return ``flags`` with all settings of ``base``: the defaults of the second look."""
    values = {f.name: getattr(base, f.name) for f in dataclasses.fields(Experiment)}
    values["games"] = Preprocessing(**vars(base.games))
    return dataclasses.replace(flags, **values)


def _differing(one: Any, other: Any) -> list[str]:
    """Return the flags whose values differ, nested groups included."""
    names: list[str] = []
    for name, value in vars(one).items():
        before = getattr(other, name)
        if dataclasses.is_dataclass(value):
            names += _differing(value, before)
        elif value != before:
            names.append(flag(name))
    return names
