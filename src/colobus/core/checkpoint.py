"""Checkpoints: complete or absent on disk, and verified when they are read.

A checkpoint is two files, ``NNNNNNNN.safetensors`` (tensors by name in logical layout) and
``NNNNNNNN.json`` (counters, what run it is of, and checksums of both files). Both are written under
a temporary name, flushed to disk and renamed, the JSON last: a checkpoint is complete when its JSON
is there and the checksums hold. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from colobus.core.errors import ColobusError
from colobus.core.fields import Range, read
from colobus.core.files import LONGEST, CannotRead, open_regular, read_object, write_whole
from colobus.core.types import State, Version

FORMAT = 2
"""Of what is written. In format 1 the JSON has no checksum of its own and names no run."""

MOST = 2**53
"""Largest number of steps, versions and the like."""

COUNTERS: dict[str, Any] = {
    "games": Annotated[int, Range(0, MOST)],
    "seconds": Annotated[float, Range(0, MOST)],
    "score": float | None,
    "best": float | None,
    "best_game": float | None,
    "recent_scores": list[float],
    "peak": list[float] | None,
    "marks": list[tuple[int, int, int]],
    "evaluated": list[float] | None,
    "parameters": Annotated[int, Range(0, MOST)],
    "server_versions": list[Annotated[int, Range(0, MOST)]],
}
"""Types of the counters that are read again, by name."""


class OtherFormat(ColobusError):
    """A checkpoint of a later version of Colobus."""


class Checkpoint(NamedTuple):
    """Everything that a run needs to resume."""

    version: Version
    steps: int  # environment steps
    tensors: dict[str, torch.Tensor]  # "parameter/…", "optimizer/…/…", "aux/…", "input/…"
    counters: State  # JSON values: games played, best score, seconds, …
    run: State | None = None  # JSON values: which run wrote it; None in format 1

    def group(self, prefix: str) -> dict[str, torch.Tensor]:
        """Return the tensors whose name starts with ``prefix/``, without it."""
        start = prefix + "/"
        return {k[len(start) :]: v for k, v in self.tensors.items() if k.startswith(start)}

    def playing(self) -> dict[str, torch.Tensor]:
        """Return the parameters that agents play with: their mean if the run keeps one."""
        return self.group("optimizer/average") or self.group("parameter")


Check = Callable[[Checkpoint], None]
"""Raises ColobusError if a checkpoint is not one that is wanted; the message says why."""


@dataclass(frozen=True)
class About:
    """What the JSON of a checkpoint says."""

    format: Literal[1, 2]
    epoch: Annotated[int, Range(0, MOST)]
    version: Annotated[int, Range(0, MOST)]
    steps: Annotated[int, Range(0, MOST)]
    sha256: str
    counters: State
    run: State | None = None
    checksum: str = ""

    @property
    def order(self) -> Version:
        """What tells which of two checkpoints is newer."""
        return Version(self.epoch, self.version)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into ``folder``; return the path of its tensors.

    Raises:
        OSError: if the disk is full or the folder cannot be written, or the folder in which it is
            made is gone; nothing is left behind.
    """
    folder.mkdir(exist_ok=True)
    path = file_of(folder, checkpoint.version.number)
    write_pair(path, checkpoint)
    return path


def file_of(folder: Path, version: int) -> Path:
    """Return where a folder of checkpoints keeps the tensors of a version."""
    return folder / f"{version:08d}.safetensors"


def is_there(path: Path) -> bool:
    """Return whether both files of the checkpoint whose tensors are at ``path`` are there."""
    return path.exists() and path.with_suffix(".json").exists()


def write_pair(path: Path, checkpoint: Checkpoint) -> None:
    """Write the tensors of a checkpoint to ``path``, and the JSON beside them.

    Raises:
        OSError: as `write_checkpoint` does.
    """
    data = save(checkpoint.tensors)
    about = {
        "format": FORMAT,
        "epoch": checkpoint.version.incarnation,
        "version": checkpoint.version.number,
        "steps": checkpoint.steps,
        "sha256": hashlib.sha256(data).hexdigest(),
        "run": checkpoint.run,
        "counters": checkpoint.counters,
    }
    about["checksum"] = checksum_of(about)
    path.with_suffix(".json").unlink(missing_ok=True)
    write_whole(path, data)
    try:
        write_whole(path.with_suffix(".json"), json.dumps(about, indent=1).encode())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def checksum_of(about: State) -> str:
    """Return the sha256 of the values of a checkpoint's JSON, but for the checksum itself."""
    values = {name: value for name, value in about.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_checkpoint(path: Path, check: Check | None = None) -> Checkpoint:
    """Read the checkpoint whose tensors are at ``path``.

    Raises:
        CannotRead: if the disk does not give it, or it does not fit into the memory.
        ColobusError: if it is incomplete, damaged or of another format, or ``check`` refuses it;
            the message says which.
    """
    about = read_about(path)
    try:
        tensors = load(_read_tensors(path, about))
    except OSError as error:
        raise CannotRead(f"checkpoint {path.name} cannot be read: {error.strerror}") from None
    except MemoryError:
        raise CannotRead(f"checkpoint {path.name} does not fit into the memory") from None
    except (SafetensorError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ColobusError(f"checkpoint {path.name} cannot be read: {error}") from None
    checkpoint = Checkpoint(about.order, about.steps, tensors, about.counters, about.run)
    _check_tensors(path, checkpoint)
    try:
        if check:
            check(checkpoint)
    except ColobusError as error:
        raise ColobusError(f"checkpoint {path.name} {error}") from None
    return checkpoint


def read_about(path: Path) -> About:
    """Read and check the JSON of the checkpoint whose tensors are at ``path``.

    Raises:
        CannotRead: if the disk does not give it.
        ColobusError: if it is missing, damaged or of another format.
    """
    what = f"checkpoint {path.name}"
    try:
        data = read_object(path.with_suffix(".json"))
    except FileNotFoundError:
        raise ColobusError(f"{what} is incomplete: no {path.stem}.json") from None
    except ColobusError as error:  # also as `CannotRead`
        raise type(error)(f"{what}: {path.stem}.json: {error}") from None
    if data.get("format") not in (1, FORMAT):
        raise OtherFormat(f"{what}: format {str(data.get('format'))[:40]}, want 1 to {FORMAT}")
    try:
        if data["format"] != 1 and data.get("checksum") != checksum_of(data):
            raise ColobusError("is damaged (checksum differs)")
        about: About = read(About, data, str)
        for name in (name for name in COUNTERS if name in about.counters):
            read(COUNTERS[name], about.counters[name], str, f"counters.{name}")
    except (ColobusError, RecursionError) as error:
        raise ColobusError(f"{what}: {path.stem}.json: {error}") from None
    return about


def _read_tensors(path: Path, about: About) -> bytes:
    """Return the bytes of the tensors' file after comparing the checksum.

    Raises:
        ColobusError: if it is missing or the checksum differs.
        OSError: if the disk cannot be read.
    """
    try:
        with open_regular(path) as file:
            if not (
                _is_whole(file) and hashlib.file_digest(file, "sha256").hexdigest() == about.sha256
            ):
                raise ColobusError(
                    f"checkpoint {path.name} is truncated or damaged (checksum differs)"
                )
            file.seek(0)
            return file.read()
    except FileNotFoundError:
        raise ColobusError(f"checkpoint {path.name} is incomplete: no {path.name}") from None


def _is_whole(file: BufferedReader) -> bool:
    """Return whether a file of tensors is as long as its header says; go back to its beginning.

    A file of terabytes would else be read to its end before its checksum is found to differ.
    """
    length = int.from_bytes(file.read(8), "little")
    try:
        entries = json.loads(file.read(min(length, LONGEST)))
        entries.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return False
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return bool(size == 8 + length + end)


def _check_tensors(path: Path, checkpoint: Checkpoint) -> None:
    """Raise ColobusError if parameters are missing, or a number is not finite."""
    found = sum(tensor.numel() for tensor in checkpoint.group("parameter").values())
    wanted = checkpoint.counters.get("parameters", found)
    if found != wanted:
        raise ColobusError(
            f"checkpoint {path.name} is incomplete: {found:,} of {wanted:,} parameters"
        )
    for name, tensor in checkpoint.tensors.items():
        if name.partition("/")[0] not in ("parameter", "optimizer", "aux", "input"):
            continue
        if tensor.dtype not in (torch.float32, torch.float64, torch.int64):
            raise ColobusError(f"checkpoint {path.name}: {name} is of type {tensor.dtype}")
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ColobusError(f"checkpoint {path.name}: {name} has values that are not finite")


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the tensor files in ``folder`` in the order of their names, complete or not."""
    return sorted(folder.glob("[0-9]*.safetensors"))


def check_listed(folder: Path) -> None:
    """Raise CannotRead for a folder whose files are not told: a glob finds nothing in it."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(folder).close()
    except OSError as error:
        raise CannotRead(f"{folder} cannot be read: {error.strerror}") from None


def by_age(folder: Path) -> list[Path]:
    """Return the tensor files of the checkpoints in ``folder``, complete or not, newest first.

    The newest is that of the highest incarnation, and of its highest version. One whose JSON
    cannot be read counts as of the newest incarnation.
    """
    paths = {path.with_suffix(".safetensors") for path in folder.glob("[0-9]*.*")}
    orders: dict[Path, Version] = {}
    for path in paths:
        with suppress(ColobusError):
            orders[path] = read_about(path).order
    newest = max((order.incarnation for order in orders.values()), default=0)
    for path in paths - orders.keys():
        orders[path] = Version(newest, int(path.stem) if path.stem.isdecimal() else 0)
    return sorted(paths, key=lambda path: (orders[path], path.name), reverse=True)


def newest_checkpoint(
    folder: Path, check: Check | None = None
) -> tuple[Path, Checkpoint, list[str]]:
    """Return the newest complete checkpoint, and a line for each newer one that is incomplete.

    Args:
        folder: of the checkpoints.
        check: one that it refuses is passed over too.

    Raises:
        CannotRead, OtherFormat: if there is none, but one that the disk does not give now, or of
            a later version.
        ColobusError: if there is none.
    """
    check_listed(folder)
    passed_over: list[ColobusError] = []
    for path in by_age(folder):
        try:
            checkpoint = read_checkpoint(path, check)
        except ColobusError as error:
            passed_over.append(error)
        else:
            return path, checkpoint, [f"{error}; using the one before" for error in passed_over]
    why = "; ".join(map(str, passed_over)) or "there is none"
    kinds = (CannotRead, OtherFormat)
    kind = next((type(e) for e in passed_over if isinstance(e, kinds)), ColobusError)
    raise kind(f"no complete checkpoint in {folder}: {why}")


def forget_old(
    folder: Path,
    keep: int,
    just: Path,
    sound: set[str],
    run: State | None,
    also: Collection[int] = (),
) -> None:
    """Delete the complete checkpoints of a run that nobody needs (``keep`` 0: none of them).

    The newest ``keep`` stay, those that `spread` chooses, and those that are asked for. Incomplete
    and damaged ones are deleted too. The one that was ``just`` written always stays, and so does
    what is of another run or a later format, or cannot be read because of the disk.

    Args:
        folder: of the checkpoints.
        keep: how many of the newest stay.
        just: the one that was written last.
        sound: names of those that are complete for certain; the others are read, and those that are
            complete are added.
        run: what the run's checkpoints say about it (`Checkpoint.run`).
        also: versions that stay, such as that of the best one.
    """
    if not keep:
        return
    steps: dict[Path, int] = {}  # of those that are complete, newest first
    for path in by_age(folder):
        try:
            about = read_about(path)
            if run and about.run and about.run.get("id") != run.get("id"):
                continue
            if path.name not in sound:
                _read_tensors(path, about)
                sound.add(path.name)
            steps[path] = about.steps
        except (OSError, CannotRead, OtherFormat):
            continue
        except ColobusError:
            _delete(path, sound)
    newest = [path for path in steps if path != just][: keep - 1]
    asked = [file_of(folder, version) for version in also]
    for path in steps.keys() - {just, *newest, *spread(steps), *asked}:
        _delete(path, sound)


def _delete(path: Path, sound: set[str]) -> None:
    sound.discard(path.name)
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def spread(steps: Mapping[Path, int]) -> list[Path]:
    """Return the first checkpoint, and one near each quarter of the steps so far.

    The steps are cut into four to eight parts, whose length doubles as a run goes on; the first
    checkpoint of each part is returned. So one that is not kept now is never missed later.

    Args:
        steps: of each checkpoint, by its path.
    """
    part = 1 << (max(steps.values(), default=0) // 8).bit_length()
    first: dict[int, Path] = {}
    for path in sorted(steps, key=lambda path: steps[path]):
        first.setdefault(steps[path] // part, path)
    return list(first.values())
