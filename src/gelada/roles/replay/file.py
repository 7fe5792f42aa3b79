"""A saved replay buffer: one safetensors file, written and read piece by piece.

A buffer may take most of the memory, so the file is not assembled in memory first, as the library's
own functions do. It is written under a temporary name, flushed to disk and renamed, so the earlier
save stays until the new one is complete. Its metadata holds the settings and a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gelada.core.errors import CannotWrite, GeladaError
from gelada.core.files import flush_to_disk, open_regular
from gelada.core.types import State
from gelada.roles.replay.ring import Stream

Contents = dict[str, NDArray[Any]]
"""Arrays by name, each contiguous."""

CHUNK = 2**22
"""Bytes read at once where they are only checked."""

LONGEST = 100_000_000
"""Bytes of a header at most, as in the library."""

NO_SUM = "0" * 64
"""Stands where the checksum goes, which is known only after the last array."""

DTYPES = {"b1": "BOOL", "u1": "U8", "i8": "I64", "f4": "F32", "f8": "F64"}
"""Names of types in the format."""


def write_arrays(path: Path, arrays: Contents, about: State) -> None:
    """Write arrays, and JSON values about them.

    Raises:
        CannotWrite: if the disk is full or the folder cannot be written; the older file stays.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            header = _header(arrays, about, NO_SUM)
            file.write(header)
            total = hashlib.sha256(header)
            for array in arrays.values():
                view = array.reshape(-1).view(np.uint8).data
                file.write(view)
                total.update(view)
            file.seek(0)
            file.write(_header(arrays, about, total.hexdigest()))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_to_disk(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        size = sum(array.nbytes for array in arrays.values())
        raise CannotWrite(
            f"the replay buffer cannot be saved to {path.parent}: {error.strerror or error}; it "
            f"takes {size / 2**30:,.1f} GiB; what was saved before is kept"
        ) from None


def read_about(path: Path) -> State:
    """Return the JSON values of a saved file, after comparing its checksum.

    Raises:
        GeladaError: if the file is missing or damaged.
    """
    try:
        with open_regular(path) as file:
            header = _read_header(file)
            metadata = header.pop("__metadata__")
            wanted, size = metadata["sha256"], file.tell()
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
            if os.fstat(file.fileno()).st_size != size + end:
                raise GeladaError(f"the saved replay buffer {path} is truncated or damaged")
            file.seek(0)
            total = hashlib.sha256(file.read(size).replace(wanted.encode(), NO_SUM.encode()))
            while chunk := file.read(CHUNK):
                total.update(chunk)
        about: State = json.loads(metadata["about"])
    except FileNotFoundError:
        raise GeladaError(f"no saved replay buffer in {path.parent}") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise GeladaError(f"the saved replay buffer {path} cannot be read: {error}") from None
    if total.hexdigest() != wanted:
        raise GeladaError(
            f"the saved replay buffer {path} is truncated or damaged (checksum differs)"
        )
    return about


def read_arrays(path: Path, into: Contents) -> None:
    """Fill arrays with those of the same names, in place.

    Raises:
        GeladaError: if one is missing or has another shape.
    """
    with open_regular(path) as file:
        header = _read_header(file)
        begin = file.tell()
        for name, array in into.items():
            older = name.replace("/mask", "/counted")  # its name in version 0.1
            entry = header.get(name) or header.get(older, {"shape": None})
            if entry["shape"] != list(array.shape):
                raise GeladaError(
                    f"the saved replay buffer {path} has {name} {entry['shape']}, "
                    f"want {list(array.shape)}"
                )
            file.seek(begin + entry["data_offsets"][0])
            file.readinto(array.reshape(-1).view(np.uint8).data)


def streams_to(streams: Mapping[tuple[int, int], Stream]) -> list[State]:
    """Return streams as JSON values."""
    return [
        {"actor": actor, "game": game, "index": s.index, "head": s.head, "round": s.round}
        | {"spans": list(s.spans)}
        for (actor, game), s in streams.items()
    ]


def streams_from(saved: list[State]) -> dict[tuple[int, int], Stream]:
    """Return what `streams_to` was given."""
    return {
        (s["actor"], s["game"]): Stream(s["index"], s["head"], s["round"], deque(s["spans"]))
        for s in saved
    }


def _header(arrays: Contents, about: State, checksum: str) -> bytes:
    """Return the file's beginning: eight bytes with its length, then JSON padded to eight."""
    entries: State = {"__metadata__": {"sha256": checksum, "about": json.dumps(about)}}
    offset = 0
    for name, array in arrays.items():
        entries[name] = {
            "dtype": DTYPES[array.dtype.str[1:]],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _read_header(file: BinaryIO) -> State:
    """Return the JSON at a file's beginning."""
    length = int.from_bytes(file.read(8), "little")
    if length > LONGEST:
        raise ValueError(f"a header of {length:,} bytes")
    header: State = json.loads(file.read(length))
    return header
