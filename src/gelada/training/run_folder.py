"""The folder of a run: config.json, metrics.jsonl, events.jsonl, tensorboard/, checkpoints/."""

from __future__ import annotations

import re
from pathlib import Path

from gelada.core.errors import CannotWrite, GeladaError


def make_folder(folder: Path) -> None:
    """Make the folder of a run.

    Raises:
        GeladaError: if it is a file or not empty, so that no earlier run is overwritten.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise GeladaError(
                f"--out {folder}: the folder is not empty; name a new one, or go on with "
                f"--resume {folder}"
            )
    except (NotADirectoryError, FileExistsError):
        raise GeladaError(f"--out {folder}: is a file; name a folder") from None
    except OSError as error:
        raise GeladaError(
            f"--out {folder}: cannot be made: {error.strerror}; name another folder"
        ) from None


def free_folder(name: str) -> Path:
    """Return runs/NAME-N with the first N that is not there."""
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.").lower()
    number = 1
    while (folder := Path("runs") / f"{slug}-{number}").exists():
        number += 1
    return folder


def cannot_write(folder: Path, error: OSError) -> CannotWrite:
    """Return what a run raises when its folder cannot be written any more."""
    return CannotWrite(
        f"cannot write to {folder}: {error.strerror}; the newest complete checkpoint is kept: make "
        f"room and go on with --resume {folder}"
    )
