"""``config.json``: the resolved settings of a run, and what it ran on."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from gelada.checkpoint import write_whole
from gelada.errors import GeladaError
from gelada.presets import ALGORITHMS, Experiment


class Config(NamedTuple):
    """What a run's folder says about it."""

    name: str  # game or preset as given
    experiment: Experiment
    actions: int
    about: dict[str, Any]  # versions, commit, machine


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, memory, versions and commit."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ("gelada-rl", "torch", "ale-py", "numpy")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "commit": _commit(),
    }


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


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    """Return the commit of the source tree, with + if it has changes, or ''."""
    here = Path(__file__).resolve().parent
    git = ["git", "-C", str(here)]
    try:
        commit, changed = (
            subprocess.run([*git, *args], capture_output=True, text=True, timeout=5, check=False)
            for args in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", "."])
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if commit.returncode != 0:
        return ""
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")
