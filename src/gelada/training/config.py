"""``config.json``: the resolved settings of a run, and what it ran on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

from gelada.core.errors import GeladaError, nearest
from gelada.core.files import write_whole
from gelada.core.settings import hints_of, read
from gelada.training.experiment import ALGORITHMS, Experiment

FORMAT = 2
"""Of what is written. Version 0.1 wrote none, which is format 1."""

GROUPS_OF_1 = {"memory": "replay", "beside": "sidecars"}
"""Names of groups in format 1, and those of today."""

NAMES_OF_1 = {
    "shape": {"bundles": "workers", "stores": "replays"},
    "algorithm": {"passes": "epochs"},
}
"""Names of settings in format 1 by today's group, and those of today."""


HELD_AFTER_IN_1 = 2_000
"""Steps without a reward after which every actor of version 0.1 held its random numbers."""


class Config(NamedTuple):
    """What a run's folder says about it."""

    name: str  # game or preset as given
    experiment: Experiment
    actions: int
    about: dict[str, Any]  # versions, commit, machine


def write_config(folder: Path, config: Config) -> None:
    """Write ``config.json`` into a run's folder."""
    settings = dataclasses.asdict(config.experiment)
    names = {kind: name for name, kind in ALGORITHMS.items()}
    kind = names[type(config.experiment.algorithm)]
    settings["algorithm"] = {"name": kind, **settings["algorithm"]}
    first = {"format": FORMAT, "name": config.name, "actions": config.actions}
    data = {**first, **settings, "about": config.about}
    write_whole(folder / "config.json", (json.dumps(data, indent=2) + "\n").encode())


def read_config(folder: Path) -> Config:
    """Read ``config.json`` of a run of this version or 0.1.

    Raises:
        GeladaError: if it is missing, is no JSON, is of a later version, or has a setting that is
            unknown or out of range.
    """
    path = folder / "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        number = data.get("format", 1)
        if number not in (1, FORMAT):
            version = data["about"].get("gelada-rl", "of a later version")
            raise GeladaError(f"it is of format {number}; read it with gelada-rl {version}")
        experiment = _experiment(data if number == FORMAT else of_format_1(data))
        return Config(data["name"], experiment, int(data["actions"]), data["about"])
    except FileNotFoundError:
        raise GeladaError(f"{str(folder)!r} is no run: it has no config.json") from None
    except KeyError as error:
        raise GeladaError(f"{path} cannot be read: {error} is missing") from None
    except (GeladaError, AttributeError, TypeError, ValueError) as error:
        raise GeladaError(f"{path} cannot be read: {error}") from None


def of_format_1(data: dict[str, Any]) -> dict[str, Any]:
    """Return what version 0.1 wrote with today's names."""
    found = {GROUPS_OF_1.get(name, name): value for name, value in data.items()}
    for group, names in NAMES_OF_1.items():
        if group in found:
            found[group] = {names.get(k, k): value for k, value in found[group].items()}
    algorithm = found.get("algorithm", {})
    if algorithm.get("name", "appo") in ("appo", "a3c"):
        found["algorithm"] = {**algorithm, "hold_after": HELD_AFTER_IN_1}
    replay = found.get("replay", {})
    if replay.get("prioritized"):  # with a constant exponent of the importance weights
        found["replay"] = {**replay, "beta_end": replay["beta"]}
    return found


def _experiment(data: dict[str, Any]) -> Experiment:
    """Return the settings; those that are missing have their defaults."""
    values: dict[str, Any] = {}
    for group, kind in hints_of(Experiment).items():
        if group not in data:
            continue
        value = data[group]
        if group == "algorithm":
            value = dict(value)
            algorithm = value.pop("name", "appo")
            if algorithm not in ALGORITHMS:
                known = nearest(str(algorithm), ALGORITHMS)
                raise GeladaError(f"algorithm {algorithm!r} is unknown; {known}")
            kind = ALGORITHMS[algorithm]
        values[group] = read(kind, value, lambda name, of=group: f"{of}.{name}")  # type: ignore[misc]
    return Experiment(**values)
