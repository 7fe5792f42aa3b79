"""Checkpoints: complete or absent on disk, and verified when they are read.

A checkpoint is two files, ``NNNNNNNN.safetensors`` (tensors by name in logical layout) and
``NNNNNNNN.json`` (counters and the first file's checksum). Both are written under a temporary
name, flushed to disk and renamed, the JSON last: a checkpoint is complete when its JSON is there
and the checksum holds. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from gelada.core.errors import GeladaError
from gelada.core.files import write_whole
from gelada.core.types import State, Version


class Checkpoint(NamedTuple):
    """Everything that a run needs to resume."""

    version: Version
    steps: int  # environment steps
    tensors: dict[str, torch.Tensor]  # "parameter/…", "optimizer/…/…", "aux/…", "input/…"
    counters: State  # JSON values: games played, best score, seconds, …

    def group(self, prefix: str) -> dict[str, torch.Tensor]:
        """Return the tensors whose name starts with ``prefix/``, without it."""
        start = prefix + "/"
        return {k[len(start) :]: v for k, v in self.tensors.items() if k.startswith(start)}


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into ``folder``; return the path of its tensors.

    Raises:
        OSError: if the disk is full or the folder cannot be written; nothing is left behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{checkpoint.version.number:08d}"
    data = save(checkpoint.tensors)
    about = {
        "format": 1,
        "epoch": checkpoint.version.epoch,
        "version": checkpoint.version.number,
        "steps": checkpoint.steps,
        "sha256": hashlib.sha256(data).hexdigest(),
        "counters": checkpoint.counters,
    }
    (folder / f"{stem}.json").unlink(missing_ok=True)
    write_whole(folder / f"{stem}.safetensors", data)
    write_whole(folder / f"{stem}.json", json.dumps(about, indent=1).encode())
    return folder / f"{stem}.safetensors"


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint whose tensors are at ``path``.

    Raises:
        GeladaError: if it is incomplete, damaged or of another format; the message says which.
    """
    try:
        about = json.loads(path.with_suffix(".json").read_bytes())
        data = path.read_bytes()
    except FileNotFoundError as missing:
        name = Path(str(missing.filename)).name
        raise GeladaError(f"checkpoint {path.name} is incomplete: no {name}") from None
    except ValueError:
        raise GeladaError(f"checkpoint {path.name}: its JSON cannot be read") from None
    if about.get("format") != 1:
        raise GeladaError(f"checkpoint {path.name}: format {about.get('format')}, want 1")
    if hashlib.sha256(data).hexdigest() != about.get("sha256"):
        raise GeladaError(f"checkpoint {path.name} is truncated or damaged (checksum differs)")
    try:
        tensors = load(data)
        version = Version(int(about["epoch"]), int(about["version"]))
        checkpoint = Checkpoint(version, int(about["steps"]), tensors, dict(about["counters"]))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise GeladaError(f"checkpoint {path.name} cannot be read: {error}") from None
    found = sum(tensor.numel() for tensor in checkpoint.group("parameter").values())
    wanted = checkpoint.counters.get("parameters", found)
    if found != wanted:
        raise GeladaError(
            f"checkpoint {path.name} is incomplete: {found:,} of {wanted:,} parameters"
        )
    return checkpoint


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the tensor files in ``folder``, oldest first, complete or not."""
    return sorted(folder.glob("[0-9]*.safetensors"))


def newest_checkpoint(folder: Path) -> tuple[Path, Checkpoint, list[str]]:
    """Return the newest complete checkpoint, and a line for each newer one that is incomplete.

    Raises:
        GeladaError: if there is none.
    """
    passed_over: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            return path, read_checkpoint(path), passed_over
        except GeladaError as error:
            passed_over.append(f"{error}; using the one before")
    why = "; ".join(passed_over) or "there is none"
    raise GeladaError(f"no complete checkpoint in {folder}: {why}")


def forget_old(folder: Path, keep: int) -> None:
    """Delete all but the newest ``keep`` checkpoints (0 keeps all)."""
    for path in list_checkpoints(folder)[:-keep] if keep else []:
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
