"""ReplayBuffer: keeps the newest steps and hands out windows of them, again and again.

This is the replay memory of DQN and Gorila. What actors add goes into one stream for each game.
Learners sample windows that begin anywhere in the streams, uniformly or by priority.

A saved replay buffer: one safetensors file, written and read piece by piece.

A buffer may take most of the memory, so the file is not assembled in memory first, as the library's
own functions do. The earlier save stays until the new one is complete (`whole_file`). Its metadata
holds the settings and a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from colobus.core.errors import CannotWrite, Closed, ColobusError
from colobus.core.files import open_regular, whole_file
from colobus.core.seeding import sequence
from colobus.core.timing import Closable
from colobus.core.types import Batch, Bools, Doubles, Ints, State, Trajectory
from colobus.roles.replay.frame_ring import BufferShape, FrameRings, mask_after_end
from colobus.roles.replay.sampling import Priorities, Prioritized, RateLimiter, importance_weights

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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary, temporary.open("wb") as file:
            header = _header(arrays, about, NO_SUM)
            file.write(header)
            total = hashlib.sha256(header)
            for array in arrays.values():
                view = array.reshape(-1).view(np.uint8).data
                file.write(view)
                total.update(view)
            file.seek(0)
            file.write(_header(arrays, about, total.hexdigest()))
    except OSError as error:
        size = sum(array.nbytes for array in arrays.values())
        raise CannotWrite(
            f"the replay buffer cannot be saved to {path.parent}: {error.strerror or error}; it "
            f"takes {size / 2**30:,.1f} GiB; what was saved before is kept"
        ) from None


def read_about(path: Path) -> State:
    """Return the JSON values of a saved file, after comparing its checksum.

    Raises:
        ColobusError: if the file is missing or damaged.
    """
    try:
        with open_regular(path) as file:
            header = _read_header(file)
            metadata = header.pop("__metadata__")
            wanted, size = metadata["sha256"], file.tell()
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
            if os.fstat(file.fileno()).st_size != size + end:
                raise ColobusError(f"the saved replay buffer {path} is truncated or damaged")
            file.seek(0)
            total = hashlib.sha256(file.read(size).replace(wanted.encode(), NO_SUM.encode()))
            while chunk := file.read(CHUNK):
                total.update(chunk)
        about: State = json.loads(metadata["about"])
    except FileNotFoundError:
        raise ColobusError(f"no saved replay buffer in {path.parent}") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ColobusError(f"the saved replay buffer {path} cannot be read: {error}") from None
    if total.hexdigest() != wanted:
        raise ColobusError(
            f"the saved replay buffer {path} is truncated or damaged (checksum differs)"
        )
    return about


def read_arrays(path: Path, into: Contents) -> None:
    """Fill arrays with those of the same names, in place.

    Raises:
        ColobusError: if one is missing or has another shape.
    """
    with open_regular(path) as file:
        header = _read_header(file)
        begin = file.tell()
        for name, array in into.items():
            older = name.replace("/mask", "/counted")  # its name in version 0.1
            entry = header.get(name) or header.get(older, {"shape": None})
            if entry["shape"] != list(array.shape):
                raise ColobusError(
                    f"the saved replay buffer {path} has {name} {entry['shape']}, "
                    f"want {list(array.shape)}"
                )
            file.seek(begin + entry["data_offsets"][0])
            file.readinto(array.reshape(-1).view(np.uint8).data)


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


class Offer(NamedTuple):
    """What a buffer holds, for a learner that chooses between several."""

    depth: int  # steps that are kept
    mass: float  # sum of the priorities, or the number of windows without priorities
    ready: bool  # a batch could be sampled now


@dataclass(eq=False)
class ReplayBuffer(Closable):
    """The newest steps of every game (a `colobus.roles.replay.api.Replay`).

    A window never crosses a gap in the play of an actor. It may show the end of one episode and
    the start of the next: the steps after the first end (terminated, truncated or a game over)
    have ``mask`` False. When the buffer is full, a game's oldest steps are overwritten.

    Raises:
        ColobusError: if the capacity is too small for the games or a window.
    """

    shape: BufferShape  # what is kept, and what a batch holds
    sampling: Prioritized | None  # by priority; None: each window with the same probability
    limiter: RateLimiter  # when actors may add and learners may sample
    patience: float = 600.0  # seconds; see `colobus.roles.replay.api`
    seed: int = 1  # of the run
    index: int = 0  # number of this buffer among all of the run

    def __post_init__(self) -> None:
        super().__init__(self.patience)
        self._rings = FrameRings(self.shape)
        self._priorities: Priorities | None = None
        if self.sampling is not None:
            count = self.shape.windows
            self._priorities = Priorities(self._rings.places, count, self.sampling)
        self._random = np.random.default_rng(sequence(self.seed, "store", self.index))
        self._fresh = 0  # steps added since the sample before
        self._loaded = 0  # steps added before this run, and loaded
        self._missed = 0.0  # added to one that was lost, in whose place this one is

    @property
    def depth(self) -> int:
        """Steps kept now."""
        with self._changed:
            return self._rings.size

    def begin(self, missed: float) -> None:
        """Begin in the place of a buffer that was lost after so many steps had been added to it."""
        with self._changed:
            self._missed = missed

    def wait_for_room(self, actor: int = 0) -> None:
        """Wait until the limiter lets actors add; not while there is nothing to sample."""
        with self._changed:
            self.wait_until(
                lambda: self.limiter.may_add() or self._rings.windows == 0,
                "room",
                lambda: (
                    f": the learners take no batches ({self.limiter.added:,} steps added, "
                    f"{self.limiter.sampled:,} windows sampled)"
                ),
            )

    def add(self, trajectory: Trajectory) -> None:
        """Keep a copy of a trajectory's steps."""
        with self._changed:
            if self._closed:
                raise Closed
            appended = self._rings.append(trajectory)
            if self._priorities is not None:
                self._priorities.append(appended)
            self.limiter.added += trajectory.actions.size
            self._fresh += trajectory.actions.size
            self._changed.notify_all()

    def sample(self, patience: float | None = None) -> Batch:
        """Return a batch of windows; wait until the limiter allows it.

        A key tells where a window begins.

        Args:
            patience: seconds to wait at most, instead of the buffer's own.
        """
        with self._changed:
            self.wait_until(
                self._ready,
                "batch",
                lambda: (
                    f": the actors send too little ({self.limiter.added:,} steps added, "
                    f"{self.limiter.minimum:,} are the least, {self.limiter.sampled:,} windows "
                    "sampled)"
                ),
                patience,
                lambda: self.limiter.added if patience is None else 0,  # slowly, but it comes
            )
            keys, priorities = self._draw()
            fresh, self._fresh = self._fresh, 0
            batch = self._rings.gather(keys, fresh)
            added = self.limiter.added - self._loaded + self._missed
            self.limiter.sampled += len(keys)
            self._changed.notify_all()  # actors may add now
        mask_after_end(batch)
        if priorities is None:
            return batch
        return batch._replace(weights=self._weights(priorities, batch.mask.numpy(), added))

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Set the priorities [M] of sampled windows, except of those overwritten since."""
        if self._priorities is None:
            return
        places = keys.cpu().numpy()
        errors = priorities.detach().cpu().numpy().astype(np.float64)
        with self._changed:
            alive = self._rings.steps.generations[places] == generations.cpu().numpy()
            if not alive.all():
                places, errors = places[alive], errors[alive]
            self._priorities.update(places, errors)

    def offer(self) -> Offer:
        """Return what there is to sample now. Never waits."""
        with self._changed:
            windows = self._rings.windows
            mass = windows if self._priorities is None else self._priorities.tree.total
            return Offer(self.depth, float(mass), self._ready())

    def save(self, folder: Path) -> Path:
        """Write everything to ``store.safetensors`` in ``folder``; return the path.

        Actors and learners wait meanwhile. An earlier save stays until the new one is complete.

        Raises:
            CannotWrite: if the disk is full or the folder cannot be written.
        """
        path = folder / "store.safetensors"
        with self._changed:
            about = {
                "layout": self._layout(),
                "streams": self._rings.streams_saved(),
                "added": self.limiter.added,
                "sampled": self.limiter.sampled,
                "fresh": self._fresh,
                "largest": 1.0 if self._priorities is None else self._priorities.largest,
                "random": self._random.bit_generator.state,
            }
            write_arrays(path, self._contents(), about)
        return path

    def load(self, folder: Path, exactly: bool = False) -> tuple[int, int]:
        """Restore what `save` wrote, the state of the random numbers included.

        Args:
            folder: that `save` was given.
            exactly: the run goes on as if it had never stopped, so what was added before counts as
                added in this run.

        Returns:
            The steps that were added and the windows that were sampled until then.

        Raises:
            ColobusError: if the file is missing, damaged or of other settings; nothing changes.
        """
        path = folder / "store.safetensors"
        about = read_about(path)
        for name, mine in self._layout().items():
            saved = about["layout"].get(name, mine)  # older ones save no alpha, no type
            if saved != mine:
                raise ColobusError(
                    f"the replay buffer saved in {folder} has {name} {saved}, this run has {mine}; "
                    "resume with the settings of the run that saved it"
                )
        with self._changed:
            self._rings.restore(about["streams"])
            if self._priorities is not None:
                self._priorities.tree.weights[:] = 0.0
            read_arrays(path, self._contents())
            self.limiter.added, self.limiter.sampled = about["added"], about["sampled"]
            self._fresh, self._loaded = about["fresh"], 0 if exactly else about["added"]
            self._random.bit_generator.state = about["random"]
            if self._priorities is not None:
                self._priorities.largest = about["largest"]
                self._priorities.tree.sum_anew()
            self._changed.notify_all()
            return self.limiter.added, self.limiter.sampled

    def _ready(self) -> bool:
        """Say whether a batch can be sampled."""
        return self.limiter.may_sample() and self._rings.windows > 0

    def _draw(self) -> tuple[Ints, Doubles | None]:
        """Return keys int64[N], and float64[N] their priorities to the power of alpha, if any."""
        if self._priorities is not None:
            return self._priorities.draw(self._random)
        return self._rings.draw(self.shape.windows, self._random), None

    def _weights(self, priorities: Doubles, mask: Bools, added: float) -> torch.Tensor:
        """Return importance weights float32[N] of windows with a mask bool[N, T]."""
        assert self._priorities is not None
        used = mask[:, :1] if self.shape.first_only else mask
        counts = np.asarray(used.any(axis=1))
        exponent = self._priorities.sampling.exponent(added)
        return torch.from_numpy(importance_weights(priorities, counts, exponent))

    def _layout(self) -> State:
        """Return what a saved buffer must have in common with this one."""
        shape, priorities = self.shape, self._priorities
        return {
            "steps per game": self._rings.kept,
            "games": shape.streams,
            "window": shape.length,
            "stack": shape.stack,
            "frame": list(shape.frame_shape),
            "frame type": shape.frame_type,
            "alpha": None if priorities is None else priorities.sampling.alpha,
        }

    def _contents(self) -> Contents:
        """Return views by name of all places that were ever written."""
        rings = self._rings
        contents: Contents = {}
        for stream in rings.streams.values():
            used = rings.used(stream)
            if self._priorities is not None:
                contents[f"{stream.index}/weights"] = self._priorities.tree.weights[used]
            for name in rings.steps._fields:
                contents[f"{stream.index}/{name}"] = getattr(rings.steps, name)[used]
            contents[f"{stream.index}/frames"] = rings.frames[used]
        return contents
