"""``config.json``: the resolved settings of a run, and what it ran on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from gelada.core.errors import GeladaError
from gelada.core.files import write_whole
from gelada.training.experiment import ALGORITHMS, Experiment


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
    data = {"name": config.name, "actions": config.actions, **settings, "about": config.about}
    write_whole(folder / "config.json", (json.dumps(data, indent=2) + "\n").encode())


def read_config(folder: Path) -> Config:
    """Read ``config.json`` of a run.

    Raises:
        GeladaError: if it is missing, is no JSON, or has settings this version does not know.
    """
    path = folder / "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        settings = {k: v for k, v in data.items() if k in _FIELDS}
        words = dict(settings.pop("algorithm", {}))
        algorithm = from_dict(ALGORITHMS[words.pop("name", "appo")], words)
        experiment = from_dict(Experiment, settings | {"algorithm": algorithm})
        return Config(data["name"], experiment, int(data["actions"]), data["about"])
    except FileNotFoundError:
        raise GeladaError(f"{str(folder)!r} is no run: it has no config.json") from None
    except (KeyError, TypeError, ValueError) as error:
        raise GeladaError(f"{path} cannot be read: {error}") from None


def from_dict(kind: type[Any], data: dict[str, Any]) -> Any:
    """Build a (nested) frozen dataclass from plain data; unknown names are a TypeError."""
    hints = get_type_hints(kind)
    values = {}
    for name, value in data.items():
        nested = hints.get(name)
        inner = isinstance(value, dict) and dataclasses.is_dataclass(nested)
        values[name] = from_dict(nested, value) if inner and isinstance(nested, type) else value
    return kind(**values)


_FIELDS = {field.name for field in dataclasses.fields(Experiment)}
