"""Every setting of an experiment as a flag, on top of the preset or run that the words name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import tyro

from colobus.algorithms.appo import APPO
from colobus.cli.flags import EVERYTHING, HELP, parse, quiet, value_of, values_of
from colobus.core.errors import ColobusError, program
from colobus.core.fields import Range, given
from colobus.core.fields import check as check_fields
from colobus.envs.api import GameSettings
from colobus.experiment.autoscale import cores_of, for_cores, with_cpus
from colobus.experiment.check import check, check_effect, check_resumed
from colobus.experiment.presets import (
    algorithms_with,
    in_environment,
    preset,
    with_algorithm,
    with_target,
)
from colobus.experiment.settings import (
    Experiment,
    ReplaySettings,
    ReuseSettings,
    Shape,
    Sidecars,
    find_algorithm,
    flag,
    groups_of,
    shared_names,
)
from colobus.nets.config import NetworkSettings
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule, TrackerSettings
from colobus.runs.config import read_config
from colobus.runs.folder import find_files
from colobus.runtime.devices import Devices, is_gpu
from colobus.runtime.groups import Cluster, Hosts
from colobus.runtime.system import usable_cores
from colobus.training.warm import check_from, with_network

SHORT = (
    *("name", "env", "seed", "seeds", "deterministic", "steps", "minutes", "until_score", "cores"),
    *("actors", "games", "lr", "device", "out", "resume", "resume_or_start", "from_"),
    *("checkpoint_seconds", "evaluator", "recorder", "track", "finish", "json"),
)
"""What ``--help`` tells of beside a command's own flags; ``--help-all`` has everything."""

STOP_FLAGS = "--steps, --minutes, --until-score or --until-evaluated"


@dataclass(frozen=True)
class ExperimentFlags:
    """The flags of an experiment, those that most people want first."""

    hides = frozenset[str]()  # fields that no help tells of
    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="GAME_OR_PRESET")]] = ""
    """Such as pong, breakout, ALE/Breakout-v5, dba3c-pong, catch or CartPole-v1. It comes first."""
    env: str = ""
    """Environment to learn with the settings of the preset that is named first: a game, one of
    Gymnasium (minigrid:MiniGrid-Empty-5x5-v0) or a function that makes one (module:function)
    (default: the preset's own)."""
    algorithm_class: Annotated[str, tyro.conf.arg(name="algorithm")] = ""
    """Algorithm of your own, as module:Class, in place of the preset's; its settings are flags too
    (default: the preset's)."""
    seed: Annotated[int, Range(0, 2**31 - 1)] = 1
    """Seed of all random numbers."""
    deterministic: bool = False
    """Give the same run for the same seed, bit for bit; a little slower."""
    cores: str = ""
    """Choose actors, games, emulator and torch threads and batch for so many cores of this machine,
    or with workers of each of them: a number, or all (default: as the preset says, which suits
    2)."""
    stop: StopRule = field(default_factory=StopRule)
    games: GameSettings = field(default_factory=GameSettings)
    shape: Shape = field(default_factory=Shape)
    replay: ReplaySettings = field(default_factory=ReplaySettings)
    reuse: ReuseSettings = field(default_factory=ReuseSettings)
    algorithm: APPO = field(default_factory=APPO)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    sidecars: Sidecars = field(default_factory=Sidecars)


F = TypeVar("F", bound=ExperimentFlags)


class Wanted(NamedTuple):
    """What the words of a command come to."""

    flags: Any  # the command's own dataclass, an ExperimentFlags
    experiment: Experiment
    base: Experiment  # of the preset or the run, without the flags
    note: str  # what the game's name implies, or ""
    name: str  # of the run: of the preset, the game, or both


def resolve(kind: type[F], command: str, args: Sequence[str], default_game: str = "") -> Wanted:
    """Return a command's flags on top of the preset that its first word names.

    Without a first word, ``--env`` names game and preset. If any stop rule is given, the preset's
    own is dropped and only what was given counts.

    Raises:
        ColobusError: for an unknown name, flag or value, or a flag that would have no effect.
        SystemExit: with code 0, when ``--help`` was printed.
    """
    asked = bool(HELP & set(args))
    first = args[0] if args and not args[0].startswith("-") else ""
    env = value_of("--env", args)
    source = value_of("--from", args)
    theirs = read_config(find_files(source)[0], given=("game",)) if source else None
    name = first or env or default_game or (theirs.name if theirs else "pong" if asked else "")
    if not name:
        raise ColobusError(
            f"colobus {command}: which game or preset? name it first, such as: "
            f"{program()} {command} pong"
        )
    seen = GameSettings(
        env_kwargs=values_of("--env-kwargs", args), observe=value_of("--observe", args)
    )
    base, note = (theirs.experiment, "") if theirs and not (first or env) else preset(name, seen)
    if first and env:
        base, note = in_environment(base, env, seen)
    if algorithm := value_of("--algorithm", args):
        base = with_algorithm(base, algorithm)
    base = with_network(base, theirs) if theirs else base
    stop = base.stop if asked else StopRule()
    other = "breakout" if name != "breakout" else "pong"
    about = (
        f"The defaults are those of {name}; with another game or preset there are others: "
        f"{program()} {command} {other} --help. All flags: {program()} {command} {name} "
        f"{EVERYTHING}"
    )
    flags = parse_onto(kind, command, args, base, stop, about)
    if flags.name != first:
        raise ColobusError(
            f"{flags.name!r}: name the game or preset first, such as: "
            f"{program()} {command} {flags.name}"
        )
    experiment = with_target(experiment_of(flags, base))
    if flags.cores:
        devices: Devices = getattr(flags, "devices", Devices())
        on, cluster = getattr(flags, "on", ""), getattr(flags, "cluster", Cluster())
        on_ray, workers = on == "ray", experiment.shape.workers
        here = on == "threads" or (on_ray and not cluster.joined and command != "slurm")
        here |= command == "show" and flags.cores == "all" and not cluster.joined
        nodes = command in ("slurm", "plan") and flags.cores != "all"  # nobody knows theirs here
        cores = cores_of(flags.cores, 10**6 if nodes else usable_cores(), workers, not here)
        gpu = is_gpu(devices.act_device or devices.device) and not on_ray  # there: on CPUs
        experiment = for_cores(experiment, base, cores, gpu)
        if workers and on in ("ray", "") and hasattr(flags, "cluster"):  # "": it is only shown
            flags = cast("Any", flags)
            flags = dataclasses.replace(flags, cluster=with_cpus(cluster, cores))
    if theirs:
        check_from(experiment, base)
    check_effect(experiment, base)
    check(experiment)
    return Wanted(flags, experiment, base, note, "-".join(filter(None, (first, env))) or name)


def resolve_again(
    kind: type[F], command: str, args: Sequence[str], base: Experiment, either: bool = False
) -> Wanted:
    """Return a command's flags on top of the settings of an earlier run.

    With ``either`` they are those of the command that began it: its name stands first, and --cores
    has chosen settings that hold on.

    Raises:
        ColobusError: if a setting differs from the run's that may not change any more.
    """
    about = f"The defaults are those of the run. {EVERYTHING} shows all flags."
    flags = parse_onto(kind, command, args, base, StopRule(), about)
    if (flags.name or flags.env) and not either:
        raise ColobusError(
            f"{flags.name or flags.env!r} with --resume: the run knows its game; leave the name out"
        )
    own = type(base.algorithm)
    for given_flag, value in (("--algorithm", flags.algorithm_class), ("--cores", flags.cores)):
        if value and not (either and (given_flag == "--cores" or find_algorithm(value) is own)):
            raise ColobusError(
                f"{given_flag} {value} with --resume: a run's settings are fixed by its config.json"
            )
    experiment = with_target(experiment_of(flags, base))
    check_resumed(experiment, base, "--resume", STOP_FLAGS, "--from")
    check_effect(experiment, base)
    check(experiment)
    return Wanted(flags, experiment, base, "", "")


def parse_onto(
    kind: type[F],
    command: str,
    args: Sequence[str],
    base: Experiment,
    stop: StopRule,
    about: str = "",
) -> F:
    """Return a command's flags, those that are not given as in ``base``.

    The stop rule starts from ``stop``: an empty one tells what is given from what is not.
    """
    asked = not HELP.isdisjoint(args)
    hides = kind.hides if asked else frozenset[str]()  # what is hidden cannot be given
    groups = groups_of(base)
    kinds = tuple((name, type(group)) for name, group in groups.items())
    made: type[F] = with_groups(cast("Any", kind), kinds, hides, asked and EVERYTHING not in args)
    start = made()
    values: dict[str, Any] = {"seed": base.seed, "deterministic": base.deterministic}
    for name, group in (groups | {"stop": stop}).items():
        values[name] = dataclasses.replace(getattr(start, name), **vars(group))
    default = dataclasses.replace(start, **values)
    who_has = partial(algorithms_with, experiment=base)
    return parse(made, command, args, default, flag_in_group, about, who_has)


@cache
def with_groups(kind: Any, groups: tuple[Any, ...], hides: frozenset[str], short: bool) -> Any:
    """Return a command's dataclass with these groups of settings, such as another algorithm's.

    It is made once, and so is what is known about it: how its values are checked, and its help.
    """
    shown = tuple((name, flag_group(name, group, short)) for name, group in groups)
    told = (*SHORT, *(name for name in inspect.get_annotations(kind) if hasattr(kind, name)))
    return quiet(kind, lambda name: name in hides or (short and name not in told), groups=shown)


def flag_group(group: str, kind: Any, short: bool) -> Any:
    """Return a group of settings for the parser: names that others have begin with the group's.

    The game is named by the command's first word and has no flag.
    """
    return quiet(
        kind,
        lambda name: (group, name) == ("games", "game") or (short and name not in SHORT),
        lambda name: flag(name, group).removeprefix("--") if name in shared_names() else "",
    )


def experiment_of(flags: ExperimentFlags, base: Experiment) -> Experiment:
    """Return the experiment that flags on top of ``base`` ask for."""
    values: dict[str, Any] = {"seed": flags.seed, "deterministic": flags.deterministic}
    for name, group in groups_of(base).items():
        values[name] = type(group)(**vars(getattr(flags, name)))
    if values["stop"] == StopRule():
        values["stop"] = base.stop
    return Experiment(**values)


def flag_in_group(name: str) -> str:
    """Return the flag of ``name`` or ``group.name``."""
    group, _, own = name.rpartition(".")
    return flag({"algorithm_class": "algorithm", "called": "name"}.get(own, own.rstrip("_")), group)


def cluster_of(flags: Any) -> Cluster | Hosts:
    """Return the cluster or the simulated hosts that a command's flags ask for.

    Raises:
        ColobusError: if a setting of it is out of range, or one is given of what is not asked for.
    """
    groups: dict[str, Cluster | Hosts] = {
        "ray": flags.cluster,
        "virtual": getattr(flags, "hosts", Hosts()),
    }
    for on, group in groups.items():
        if on == flags.on:
            check_fields(group, flag)
            continue
        for name, value in vars(group).items():
            if value != getattr(type(group)(), name):
                raise ColobusError(f"{given(flag(name), value)}: has an effect only with --on {on}")
    return groups.get(flags.on, Cluster())
