"""``config.json``: the resolved settings of a run, and what it ran on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from colobus.core.checkpoint import Check, Checkpoint
from colobus.core.errors import ColobusError
from colobus.core.fields import Range, hints_of, read
from colobus.core.files import CannotRead, read_object, write_whole
from colobus.core.functions import Untrusted, code_in
from colobus.core.types import State
from colobus.experiment.aliases import GROUPS_OF_1, SETTINGS_OF_1
from colobus.experiment.settings import Experiment, algorithm_name, find_algorithm
from colobus.runs.folder import CONFIG, with_todays_name
from colobus.runtime.system import version_of

FORMAT = 2
"""Of what is written. Version 0.1 wrote none, which is format 1."""

HELD_AFTER_IN_1 = 2_000
"""Steps without a reward after which every actor of version 0.1 held its random numbers."""

BEGUN = "beginning with the weights of "
"""What ``about.from`` of a run that began with other weights begins with; `Weights.in_words`."""


class Config(NamedTuple):
    """What a run's folder says about it."""

    name: str  # game or preset as given
    experiment: Experiment
    actions: int
    about: dict[str, Any]  # number of the run, versions, commit, machine

    @property
    def source(self) -> str:
        """Which weights the run began with, as the user named them; "" for new ones."""
        return str(self.about.get("from", "")).removeprefix(BEGUN).rpartition(" after ")[0]

    def check_begun(self, folder: Path, source: str) -> None:
        """Raise ColobusError if the run did not begin with the weights of ``source``."""
        if (began := self.source) != source:
            raise ColobusError(
                f"{folder}: began with {f'the weights of {began}' if began else 'new weights'}, "
                f"not with {f'those of {source}' if source else 'new ones'}; name another folder"
            )


@dataclass(frozen=True)
class Rest:
    """What stands in ``config.json`` beside the settings."""

    name: str
    actions: Annotated[int, Range(1, 65_536)]
    about: State
    format: int = 1


@dataclass(frozen=True)
class AboutRun:
    """Those values under ``about`` that are read again."""

    run: str = ""
    precision: Literal["float32", "bfloat16"] = "float32"


def identity(config: Config) -> State:
    """Return what the checkpoints of a run say about it."""
    experiment = config.experiment
    parts: list[Any] = [changed(experiment.games), changed(experiment.network), config.actions]
    parts.append(type(experiment.algorithm).__name__)
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    versions = {name: config.about.get(name) for name in ("colobus", "torch", "ale-py")}
    return {
        "id": config.about.get("run", ""),
        "game": experiment.games.game,
        "settings": digest[:16],
        "versions": versions,
    }


def check_of(config: Config) -> Check:
    """Return what refuses checkpoints of other runs. Those of version 0.1 name none."""
    own = identity(config)
    whats = {"id": "run", "game": "game"}
    if own["versions"]["colobus"] == version_of("colobus"):
        # the digest is of what differs from the defaults, which may change from version to version
        whats["settings"] = "settings of game and network"

    def check(checkpoint: Checkpoint) -> None:
        for name, what in whats.items():
            theirs = (checkpoint.run or own).get(name)
            if theirs != own[name]:
                raise ColobusError(
                    f"is of another run: its {what} is {str(theirs)[:40]}, that of config.json is "
                    f"{str(own[name])[:40]}"
                )

    return check


def changed(settings: Any) -> dict[str, Any]:
    """Return the settings that differ from the defaults, so that new ones change nothing.

    Whole numbers are floats: 1 for a float is read as 1.0 the next time.
    """
    default = type(settings)()
    values = dataclasses.asdict(settings)
    changed = {name: value for name, value in values.items() if value != getattr(default, name)}
    return {name: float(v) if type(v) is int else v for name, v in changed.items()}


def write_config(folder: Path, config: Config) -> None:
    """Write ``config.json`` into a run's folder."""
    settings = dataclasses.asdict(config.experiment)
    settings["algorithm"] = {"name": algorithm_name(config.experiment), **settings["algorithm"]}
    first = {"format": FORMAT, "name": config.name, "actions": config.actions}
    data = {**first, **settings, "about": config.about}
    write_whole(folder / CONFIG, (json.dumps(data, indent=2) + "\n").encode())


def read_config(folder: Path, trust: bool = False, given: Collection[str] = ()) -> Config:
    """Read ``config.json`` of a run of this version or 0.1.

    Args:
        folder: of the run.
        trust: run code that it names, whoever trained (`colobus.core.trust`).
        given: settings such as ``own_torso`` whose functions the caller has.

    Raises:
        ColobusError: if it is missing, is no JSON, is of a later version, or has a value of another
            type, an unknown setting or one that is out of range; names file and setting.
        Untrusted: if it names code that this user has not trusted.
    """
    path = folder / CONFIG
    try:
        data = read_object(path)
        if isinstance(about := data.get("about"), dict):
            data["about"] = about = with_todays_name(about)
        number = read(int, data.get("format", 1), str, "format")
        if number not in (1, FORMAT):
            version = about.get("colobus") if isinstance(about, dict) else None
            wanted = str(version or "of a later version")[:40]
            raise ColobusError(f"it is of format {number}; read it with colobus {wanted}")
        data = data if number == FORMAT else of_format_1(data)
        groups = hints_of(Experiment)
        if names := code_in({name: data.get(name) for name in groups}, {*given, "tags"}):
            from colobus.core.trust import check_trusted

            check_trusted(names, trust)
        rest: Rest = read(Rest, {k: v for k, v in data.items() if k not in groups}, str)
        known = {name: rest.about[name] for name in hints_of(AboutRun) if name in rest.about}
        read(AboutRun, known, lambda name: f"about.{name}")
        return Config(rest.name, _experiment(data), rest.actions, rest.about)
    except FileNotFoundError:
        raise ColobusError(f"{str(folder)!r} is no run: it has no config.json") from None
    except Untrusted as error:
        raise Untrusted(f"{path} {error}") from None
    except ColobusError as error:
        kind = CannotRead if isinstance(error, CannotRead) else ColobusError
        raise kind(f"{path} cannot be read: {error}") from None


def of_format_1(data: dict[str, Any]) -> dict[str, Any]:
    """Return what version 0.1 wrote with today's names."""
    found = {GROUPS_OF_1.get(name, name): value for name, value in data.items()}
    for group, names in SETTINGS_OF_1.items():
        if group in found:
            found[group] = {names.get(k, k): value for k, value in group_of(found, group).items()}
    algorithm = group_of(found, "algorithm")
    if algorithm.get("name", "appo") in ("appo", "a3c"):
        found["algorithm"] = {**algorithm, "hold_after": HELD_AFTER_IN_1}
    replay = group_of(found, "replay")
    if replay.get("prioritized") and "beta" in replay:
        # with a constant exponent of the importance weights
        found["replay"] = {**replay, "beta_end": replay["beta"]}
    return found


def group_of(data: State, name: str) -> State:
    """Return a group of settings; {} if there is none.

    Raises:
        ColobusError: if it is something else.
    """
    group: State = read(State, data.get(name, {}), str, name)
    return group


def _experiment(data: dict[str, Any]) -> Experiment:
    """Return the settings; those that are missing have their defaults."""
    values: dict[str, Any] = {}
    for group, kind in hints_of(Experiment).items():
        if group not in data:
            continue
        value = data[group]
        if group == "algorithm":
            value = dict(group_of(data, group))
            kind = find_algorithm(read(str, value.pop("name", "appo"), str, "algorithm.name"))
        values[group] = read(kind, value, partial(_path, group), group)
    return Experiment(**values)


def _path(group: str, name: str) -> str:
    """Return how messages name a setting; the name of a single one is that of its group."""
    return group if name in ("", group) else f"{group}.{name}"
