"""The memory of a store: one ring of steps and frames for each game, each frame stored once.

A *stream* is what one game of one actor sends. Its steps are numbered from 0 by *position*, for
as long as the store lives. Observation ``p`` (before step ``p``) is the stack of the frames at
positions ``p`` to ``p + K - 1``. A stream keeps its newest steps in ``slots`` places; position
``p`` lies in place ``p % slots``, and ``p // slots`` says how often that place was overwritten.

Where a trajectory does not follow on the one before, K positions are left out. So the frames of
the last observation before this *seam* stay, and the step before it keeps what follows it. A
*span* is an unbroken run of positions; no window crosses the end of one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gelada.errors import GeladaError
from gelada.roles.steps import STEP, Steps, as_steps
from gelada.types import Bytes, Ints, Trajectory


@dataclass
class Stream:
    """What one game of one actor sends."""

    index: int
    head: int = 0  # position after the newest step
    round: int = -1  # of the newest trajectory
    spans: deque[list[int]] = field(default_factory=deque)  # [begin, end), oldest first


class Appended(NamedTuple):
    """What a trajectory changed."""

    closed: Ints  # int64[M]: keys of steps that are gone
    opened: Ints  # int64[M]: keys at which a window can begin now


class Beginnings(NamedTuple):
    """Where windows can begin: one entry for each span that is long enough."""

    counts: Ints  # int64[M]: beginnings up to and with this span
    shifts: Ints  # int64[M]: position of a span's first beginning, less the beginnings before it
    bases: Ints  # int64[M]: key of the first place of its stream


class Rings:
    """Steps of ``streams`` games; all memory is taken once.

    A *key* is a stream's index times ``slots``, plus a place in its ring.

    Args:
        capacity: steps of all streams together; each keeps the same share, rounded down.
        streams: games of all actors.
        length: steps of a window (T).
        stack: frames of an observation (K).
        frame_shape: H, W.

    Raises:
        GeladaError: if a stream's share is too small.
    """

    def __init__(
        self, capacity: int, streams: int, length: int, stack: int, frame_shape: tuple[int, int]
    ) -> None:
        self.kept = kept_steps(capacity, streams, length, stack)
        self.slots = self.kept + stack
        self.places = streams * self.slots
        self.length, self.stack, self.frame_shape = length, stack, frame_shape
        height, width = frame_shape
        self.frames: Bytes = np.zeros((self.places, height * width), dtype=np.uint8)
        self.steps: Steps = np.zeros(self.places, dtype=STEP)
        self.heads: Ints = np.zeros(streams, dtype=np.int64)
        self.streams: dict[tuple[int, int], Stream] = {}  # by actor and game
        self._beginnings: Beginnings | None = None
        self._offsets = np.arange(length + stack)

    @property
    def nbytes(self) -> int:
        """Bytes of frames and steps."""
        return self.frames.nbytes + self.steps.nbytes

    @property
    def size(self) -> int:
        """Steps that are kept now."""
        return sum(end - begin for s in self.streams.values() for begin, end in s.spans)

    @property
    def windows(self) -> int:
        """Windows that can be cut now."""
        counts = self.beginnings().counts
        return int(counts[-1]) if len(counts) else 0

    def append(self, trajectory: Trajectory) -> Appended:
        """Keep a trajectory, its overlap with the one before once; the oldest steps go.

        Raises:
            GeladaError: if it does not fit this store.
        """
        self._check(trajectory)
        steps = as_steps(trajectory)
        closed: list[Ints] = []
        opened: list[Ints] = []
        for game, frames in enumerate(trajectory.frames):
            stream = self._stream(trajectory.actor, game)
            flat = frames.reshape(len(frames), -1)
            self._append(stream, trajectory.round, flat, steps[game], closed, opened)
        self._beginnings = None
        return Appended(np.concatenate(closed), np.concatenate(opened))

    def beginnings(self) -> Beginnings:
        """Return where windows can begin now."""
        if self._beginnings is None:
            found = [
                (end - begin - self.length + 1, begin, stream.index * self.slots)
                for stream in self.streams.values()
                for begin, end in stream.spans
                if end - begin >= self.length
            ]
            table: Ints = np.array(found, dtype=np.int64).reshape(-1, 3)
            counts = table[:, 0].cumsum()
            self._beginnings = Beginnings(counts, table[:, 1] - counts + table[:, 0], table[:, 2])
        return self._beginnings

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """Return keys int64[count], each of any window with the same probability."""
        counts, shifts, bases = self.beginnings()
        drawn = random.integers(counts[-1], size=count)
        span = counts.searchsorted(drawn, side="right")
        keys: Ints = bases[span] + (drawn + shifts[span]) % self.slots
        return keys

    def positions(self, keys: Ints) -> Ints:
        """Return the newest position int64[M] that was written to each place."""
        stream, place = np.divmod(keys, self.slots)
        newest = self.heads[stream] - 1
        positions: Ints = newest - (newest - place) % self.slots
        return positions

    def generations(self, keys: Ints) -> Ints:
        """Return how often each place was overwritten, -1 where no step is kept: int64[M]."""
        positions = self.positions(keys)
        first = np.maximum(self.heads[keys // self.slots] - self.kept, 0)
        return np.where(positions >= first, positions // self.slots, -1)

    def gather(self, keys: Ints) -> tuple[Bytes, Steps]:
        """Return copies of windows: frames uint8[N, T + K, H, W], steps STEP[N, T + 1].

        Of the last step only the age is the window's own.
        """
        place = keys % self.slots
        places = place[:, None] + self._offsets
        np.subtract(places, self.slots, out=places, where=places >= self.slots)
        places += (keys - place)[:, None]
        frames: Bytes = np.empty((*places.shape, self.frames.shape[1]), dtype=np.uint8)
        # with the mode "raise" numpy would copy once more
        np.take(self.frames, places, axis=0, out=frames, mode="clip")
        steps = self.steps.take(places[:, : self.length + 1])
        return frames.reshape(*places.shape, *self.frame_shape), steps

    def used(self, stream: Stream) -> slice:
        """Return the places of a stream that were ever written, as a slice of all places."""
        begin = stream.index * self.slots
        return slice(begin, begin + min(stream.head + self.stack, self.slots))

    def restore(self, streams: dict[tuple[int, int], Stream]) -> None:
        """Take over where streams are; their frames and steps were written beforehand."""
        self.streams = streams
        self.heads[:] = 0
        for stream in streams.values():
            self.heads[stream.index] = stream.head
        self._beginnings = None

    def _check(self, trajectory: Trajectory) -> None:
        length = trajectory.actions.shape[1]
        if length > self.kept:
            raise GeladaError(
                f"a trajectory of {length:,} steps does not fit a store that keeps {self.kept:,} "
                "steps of each game; raise --capacity or lower --length"
            )
        wanted = (length + self.stack, *self.frame_shape)
        if trajectory.frames.shape[1:] != wanted or trajectory.state.shape[1]:
            raise ValueError(
                f"frames {trajectory.frames.shape}, state {trajectory.state.shape}: a store takes "
                f"[B, {', '.join(map(str, wanted))}] and no recurrent state"
            )

    def _stream(self, actor: int, game: int) -> Stream:
        """Return the stream of a game, a new one at its first trajectory."""
        stream = self.streams.get((actor, game))
        if stream is None:
            if len(self.streams) == len(self.heads):
                raise GeladaError(
                    f"game {game} of actor {actor} is one more than the {len(self.heads)} games "
                    "that this store was made for"
                )
            stream = self.streams[actor, game] = Stream(len(self.streams))
        return stream

    def _append(
        self,
        stream: Stream,
        round: int,
        frames: Bytes,
        steps: Steps,
        closed: list[Ints],
        opened: list[Ints],
    ) -> None:
        """Keep frames [T' + K, H W] and steps [T' + 1] of one game."""
        first = max(stream.head - self.kept, 0)
        if not self._follows(stream, round, frames[: self.stack], steps[0]):
            if stream.spans:
                stream.head += self.stack
            stream.spans.append([stream.head, stream.head])
            self._put(self.frames, stream, stream.head, frames[: self.stack])
        span = stream.spans[-1]
        self._put(self.frames, stream, stream.head + self.stack, frames[self.stack :])
        self._put(self.steps, stream, stream.head, steps)
        before, span[1] = span[1], stream.head + len(steps) - 1
        stream.head, stream.round = span[1], round
        self.heads[stream.index] = stream.head
        oldest = max(stream.head - self.kept, 0)
        while stream.spans[0][1] <= oldest:
            stream.spans.popleft()
        stream.spans[0][0] = max(stream.spans[0][0], oldest)
        closed.append(self._keys(stream, first, oldest))
        begin = max(span[0], before - self.length + 1)
        opened.append(self._keys(stream, begin, max(span[1] - self.length + 1, begin)))

    def _follows(self, stream: Stream, round: int, frames: Bytes, step: Any) -> bool:
        """Say whether a trajectory goes on where the stream's newest one ended.

        A restarted actor goes on counting its rounds, so what it shows has to agree too.
        """
        if not stream.spans or round != stream.round + 1:
            return False
        base = stream.index * self.slots
        places = base + (stream.head + self._offsets[: self.stack]) % self.slots
        same_age = self.steps["age"][places[0]] == step["age"]
        return bool(same_age) and np.array_equal(self.frames[places], frames)

    def _put(self, ring: NDArray[Any], stream: Stream, position: int, values: NDArray[Any]) -> None:
        """Write ``values`` from a position on, around the end of the ring if need be."""
        base, begin = stream.index * self.slots, position % self.slots
        fitting = min(len(values), self.slots - begin)
        ring[base + begin : base + begin + fitting] = values[:fitting]
        ring[base : base + len(values) - fitting] = values[fitting:]

    def _keys(self, stream: Stream, begin: int, end: int) -> Ints:
        """Return the keys of the positions from ``begin`` to ``end`` (without)."""
        keys: Ints = stream.index * self.slots + np.arange(begin, end, dtype=np.int64) % self.slots
        return keys


def kept_steps(capacity: int, streams: int, length: int, stack: int) -> int:
    """Return the steps that each stream keeps.

    Raises:
        GeladaError: if they are too few for a window, or for frames to be stored once.
    """
    kept = capacity // streams
    least = max(length, -(-20 * stack // 3))  # at most 1.15 frames a step
    if kept < least:
        raise GeladaError(
            f"--capacity {capacity:,} leaves {kept:,} steps for each of {streams:,} games, fewer "
            f"than {least:,}; raise it to at least {least * streams:,}"
        )
    return kept


def ring_bytes(
    capacity: int, streams: int, length: int, stack: int, pixels: int
) -> tuple[int, int]:
    """Return the bytes of the rings of frames and steps, and their places. Nothing is taken.

    Raises:
        GeladaError: if the capacity is too small.
    """
    places = streams * (kept_steps(capacity, streams, length, stack) + stack)
    return places * (pixels + STEP.itemsize), places
