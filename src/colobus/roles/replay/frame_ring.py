"""The memory of a replay buffer: a ring of steps for each game, each frame stored once.

A *stream* is what one game of one actor sends. Its steps are numbered from 0 by *position*, for
as long as the buffer lives. Observation ``p`` (before step ``p``) is the stack of the frames at
positions ``p`` to ``p + K - 1``. A stream keeps its newest steps in ``slots`` places; position
``p`` lies in place ``p % slots``, and ``p // slots`` says how often that place was overwritten.

Where a trajectory does not follow on the one before, K positions are left out. So the frames of
the last observation before this *seam* stay, and the step before it keeps what follows it. A
*span* is an unbroken run of positions; no window crosses the end of one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from colobus.core.errors import ColobusError
from colobus.core.types import Batch, Bools, Floats, Frames, Ints, State, Trajectory

PER_STEP = ("actions", "rewards", "log_probs", "terminated", "truncated", "mask")
"""The fields of a trajectory, and of a batch, with one value for each step."""


class Steps(NamedTuple):
    """Steps [M] of several streams, in the types of a `Trajectory`.

    One array for each field: a window's part of it is one call, and needs no conversion.
    """

    generations: Ints  # how often the step's place was overwritten, -1 where no step is kept
    versions: Ints  # number of the version of the parameters that chose the action
    ages: Ints  # of the observation before the step
    actions: Ints
    rewards: Floats
    log_probs: Floats
    terminated: Bools
    truncated: Bools
    mask: Bools

    def write(self, trajectory: Trajectory, places: Ints, generations: Ints) -> None:
        """Write a trajectory's steps at ``places`` int64[B, T + 1], the last age at the last."""
        self.ages[places] = trajectory.ages
        places = places[:, :-1]
        self.generations[places] = generations[:, :-1]
        self.versions[places] = trajectory.version.number
        for name in PER_STEP:
            getattr(self, name)[places] = getattr(trajectory, name)


def no_steps(count: int) -> Steps:
    """Return ``count`` places without steps."""
    return Steps(
        generations=np.full(count, -1),
        versions=np.zeros(count, dtype=np.int64),
        ages=np.zeros(count, dtype=np.int64),
        actions=np.zeros(count, dtype=np.int64),
        rewards=np.zeros(count, dtype=np.float32),
        log_probs=np.zeros(count, dtype=np.float32),
        terminated=np.zeros(count, dtype=np.bool_),
        truncated=np.zeros(count, dtype=np.bool_),
        mask=np.zeros(count, dtype=np.bool_),
    )


STEP_BYTES = sum(each.nbytes for each in no_steps(1))
"""Bytes of one step."""


def mask_after_end(batch: Batch) -> None:
    """Set the mask of all steps after the first end of an episode in each window to False."""
    mask = batch.mask.numpy()
    if mask.shape[1] > 1:
        began = batch.ages.numpy()[:, 1:] == 0
        over = batch.terminated.numpy() | batch.truncated.numpy() | began
        mask[:, 1:] &= ~np.logical_or.accumulate(over, axis=1)[:, :-1]


@dataclass(frozen=True)
class BufferShape:
    """The numbers that decide how much memory a replay buffer takes and what it hands out."""

    capacity: int
    """Steps kept of all games together. Each game keeps the same share, rounded down."""
    streams: int
    """Games of all actors that add to the buffer."""
    windows: int
    """Windows of a batch (N)."""
    length: int
    """Steps of a window (T)."""
    stack: int
    """Frames of an observation (K)."""
    frame_shape: tuple[int, int]
    """Height and width of a frame in pixels (H, W)."""
    frame_type: str = "uint8"
    """Type of a pixel, or of a number of a vector."""
    first_only: bool = False
    """The loss uses the first step of a window only, as with n-step returns."""

    def kept_steps(self) -> int:
        """Return the steps that each game keeps.

        Raises:
            ColobusError: if they are too few for a window, or for each frame to be stored once.
        """
        kept = self.capacity // self.streams
        least = max(self.length, -(-20 * self.stack // 3))  # at most 1.15 frames a step
        if kept < least:
            raise ColobusError(
                f"--capacity {self.capacity:,} leaves {kept:,} steps for each of "
                f"{self.streams:,} games, fewer than {least:,}; raise it to at least "
                f"{least * self.streams:,}"
            )
        return kept


@dataclass
class Stream:
    """What one game of one actor sends."""

    index: int
    head: int = 0  # position after the newest step
    round: int = -1  # of the newest trajectory
    spans: deque[list[int]] = field(default_factory=deque)  # [begin, end), oldest first


class Appended(NamedTuple):
    """Which windows a trajectory added and which it overwrote."""

    closed: Ints  # int64[M]: keys of steps that are gone
    opened: Ints  # int64[M]: keys at which a window can begin now


class Beginnings(NamedTuple):
    """Where windows can begin: one entry for each span that is long enough."""

    counts: Ints  # int64[M]: beginnings up to and with this span
    shifts: Ints  # int64[M]: position of a span's first beginning, less the beginnings before it
    bases: Ints  # int64[M]: key of the first place of its stream


class FrameRings:
    """Steps of ``streams`` games; all memory is taken once.

    A *key* is a stream's index times ``slots``, plus a place in its ring.

    Args:
        shape: steps, games and frames that are kept.

    Raises:
        ColobusError: if a stream's share is too small.
    """

    def __init__(self, shape: BufferShape) -> None:
        self.kept = shape.kept_steps()
        self.slots = self.kept + shape.stack
        self.places = shape.streams * self.slots
        self.length, self.stack, self.frame_shape = shape.length, shape.stack, shape.frame_shape
        height, width = shape.frame_shape
        self.frames: Frames = np.zeros((self.places, height * width), shape.frame_type)
        self.steps: Steps = no_steps(self.places)
        self.games = shape.streams
        self.streams: dict[tuple[int, int], Stream] = {}  # by actor and game
        self._beginnings: Beginnings | None = None
        self._offsets = np.arange(shape.length + shape.stack)

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
            ColobusError: if the trajectory does not fit this buffer.
        """
        self._check(trajectory)
        games, length = trajectory.actions.shape
        streams = [self._stream(trajectory.actor, game) for game in range(games)]
        flat = trajectory.frames.reshape(games, length + self.stack, -1)
        for stream, frames, ages in zip(streams, flat, trajectory.ages, strict=True):
            if not self._follows(stream, trajectory.round, frames[: self.stack], ages[0]):
                self._begin_span(stream, frames[: self.stack])
            self._put(stream, stream.head + self.stack, frames[self.stack :])
            stream.round = trajectory.round
        begins: Ints = np.array([stream.head for stream in streams])
        changes = [self._extend(stream, length) for stream in streams]
        appended = Appended(*(np.concatenate(keys) for keys in zip(*changes, strict=True)))
        self.steps.generations[appended.closed] = -1  # first: some of the places are used again
        generations, places = np.divmod(begins[:, None] + np.arange(length + 1), self.slots)
        places += np.array([[stream.index * self.slots] for stream in streams])
        self.steps.write(trajectory, places, generations)
        self._beginnings = None
        return appended

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

    def gather(self, keys: Ints, fresh: int) -> Batch:
        """Return copies of the windows that begin at ``keys`` int64[N], with weights of 1.

        Args:
            keys: of a draw; the batch takes the array over.
            fresh: environment steps added since the sample before.
        """
        places = keys[:, None] + self._offsets
        place = keys % self.slots
        if place.max() > self.slots - len(self._offsets):  # a few go around the end of a ring
            places -= self.slots * (place[:, None] + self._offsets >= self.slots)
        of, steps, count = places[:, : self.length], self.steps, len(keys)
        frames = self.frames.take(places, axis=0, mode="clip")  # "raise" is slower
        tensor = torch.from_numpy  # torch's own constructors take many times as long
        return Batch(
            frames=tensor(frames.reshape(*places.shape, *self.frame_shape)),
            ages=tensor(steps.ages.take(places[:, : self.length + 1])),
            **{name: tensor(getattr(steps, name).take(of)) for name in PER_STEP},
            independent=tensor(np.ones(count, dtype=np.bool_)),
            state=tensor(np.empty((count, 0), dtype=np.float32)),
            versions=tensor(steps.versions.take(keys)),
            keys=tensor(keys),
            generations=tensor(steps.generations.take(keys)),
            weights=tensor(np.ones(count, dtype=np.float32)),
            replayed=tensor(np.zeros(count, dtype=np.bool_)),
            fresh=tensor(np.array(fresh)),
        )

    def used(self, stream: Stream) -> slice:
        """Return the places of a stream that were ever written, as a slice of all places."""
        begin = stream.index * self.slots
        return slice(begin, begin + min(stream.head + self.stack, self.slots))

    def streams_saved(self) -> list[State]:
        """Return the streams as JSON values."""
        return [
            {"actor": actor, "game": game, **vars(stream), "spans": list(stream.spans)}
            for (actor, game), stream in self.streams.items()
        ]

    def restore(self, saved: list[State]) -> None:
        """Take over `streams_saved`; the caller writes their frames and steps afterwards."""
        self.streams = {
            (s["actor"], s["game"]): Stream(s["index"], s["head"], s["round"], deque(s["spans"]))
            for s in saved
        }
        self._beginnings = None

    def _check(self, trajectory: Trajectory) -> None:
        length = trajectory.actions.shape[1]
        if length > self.kept:
            raise ColobusError(
                f"a trajectory of {length:,} steps does not fit a replay buffer that keeps "
                f"{self.kept:,} steps of each game; raise --capacity or lower --length"
            )
        wanted = (length + self.stack, *self.frame_shape)
        given, kind = trajectory.frames, self.frames.dtype
        if given.shape[1:] != wanted or given.dtype != kind or trajectory.state.shape[1]:
            raise ValueError(
                f"frames {given.dtype}{given.shape}, state {trajectory.state.shape}: this replay "
                f"buffer takes frames {kind}[B, {', '.join(map(str, wanted))}] and no recurrent "
                "state"
            )

    def _stream(self, actor: int, game: int) -> Stream:
        """Return the stream of a game, a new one at its first trajectory."""
        stream = self.streams.get((actor, game))
        if stream is None:
            if len(self.streams) == self.games:
                raise ColobusError(
                    f"game {game} of actor {actor} is one more than the {self.games} games "
                    "that this replay buffer was made for"
                )
            stream = self.streams[actor, game] = Stream(len(self.streams))
        return stream

    def _follows(self, stream: Stream, round: int, frames: Frames, age: int) -> bool:
        """Say whether a trajectory goes on where the stream's newest one ended.

        A restarted actor goes on counting its rounds, so what it shows has to agree too.
        """
        if not stream.spans or round != stream.round + 1:
            return False
        places = self._keys(stream, stream.head, stream.head + self.stack)
        same_age = self.steps.ages[places[0]] == age
        return bool(same_age) and np.array_equal(self.frames[places], frames)

    def _begin_span(self, stream: Stream, frames: Frames) -> None:
        """Begin unbroken play with the frames [K, H W] of its first observation."""
        if stream.spans:
            stream.head += self.stack
        stream.spans.append([stream.head, stream.head])
        self._put(stream, stream.head, frames)

    def _extend(self, stream: Stream, length: int) -> tuple[Ints, Ints]:
        """Count ``length`` steps more; return the keys that are gone and those that open."""
        span, begin = stream.spans[-1], stream.head
        first = stream.spans[0][0]
        span[1] = stream.head = begin + length
        oldest = max(stream.head - self.kept, 0)
        while stream.spans[0][1] <= oldest:
            stream.spans.popleft()
        stream.spans[0][0] = max(stream.spans[0][0], oldest)
        since = max(span[0], begin - self.length + 1)
        return (
            self._keys(stream, first, max(oldest, first)),
            self._keys(stream, since, max(stream.head - self.length + 1, since)),
        )

    def _put(self, stream: Stream, position: int, frames: Frames) -> None:
        """Write frames [M, H W] from a position on, around the end of the ring if need be."""
        base, begin = stream.index * self.slots, position % self.slots
        fitting = min(len(frames), self.slots - begin)
        self.frames[base + begin : base + begin + fitting] = frames[:fitting]
        self.frames[base : base + len(frames) - fitting] = frames[fitting:]

    def _keys(self, stream: Stream, begin: int, end: int) -> Ints:
        """Return the keys of the positions from ``begin`` to ``end`` (without)."""
        keys: Ints = stream.index * self.slots + np.arange(begin, end, dtype=np.int64) % self.slots
        return keys
