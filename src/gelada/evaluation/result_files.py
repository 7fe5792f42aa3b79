"""The files of evaluations in a run's folder: their names, and that none is overwritten."""

from __future__ import annotations

import re
from pathlib import Path

from gelada.core.files import write_whole


def evaluation_file(
    folder: Path, steps: int, protocol: str, episodes: int, policy: str, seed: int
) -> Path:
    """Return where a run's folder keeps an evaluation after ``steps`` steps."""
    return folder / "eval" / f"{steps}-{protocol}-{episodes}-{policy}-seed{seed}.json"


def write_new(path: Path, data: bytes) -> Path:
    """Write a file without overwriting another one; return its path.

    A file at ``path`` with the same content stays as it is. Beside one with another content the
    name of the new one ends in ``-2``, or the next free number.

    Raises:
        OSError: if it cannot be written.
    """
    path.parent.mkdir(exist_ok=True)
    free, number = path, 1
    while free.exists():
        if free.read_bytes() == data:
            return free
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    write_whole(free, data)
    return free


def has_evaluation(folder: Path, steps: int, protocol: str, episodes: int, seed: int) -> bool:
    """Return whether there is a complete evaluation of at least so many games after these steps.

    In version 0.1 the names had steps and protocol only.
    """
    if (folder / "eval" / f"{steps}-{protocol}.json").exists():
        return True
    form = re.compile(rf"{steps}-{re.escape(protocol)}-(\d+)-[a-z]+-seed{seed}(-\d+)?\.json")
    found = [form.fullmatch(path.name) for path in (folder / "eval").glob(f"{steps}-*.json")]
    return any(int(match[1]) >= episodes for match in found if match)
