"""An actor in miniature, windows with numbers, and a store's model: lists of what was added."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from colobus.core.types import Batch, Frames, Trajectory
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.frame_ring import BufferShape
from colobus.roles.replay.sampling import Prioritized, RateLimiter
from conftest import random_trajectory

STACK, SHAPE, LENGTH = 3, (2, 3), 4
STEP_FIELDS = ("actions", "rewards", "terminated", "truncated", "log_probs")


def make_store(
    capacity: int,
    windows: int = 8,
    length: int = LENGTH,
    streams: int = 1,
    sampling: Prioritized | None = None,
    limiter: RateLimiter | None = None,
    frame_type: str = "uint8",
    **others: Any,
) -> ReplayBuffer:
    """Return a store that never waits, for games with tiny frames."""
    return ReplayBuffer(
        BufferShape(capacity, streams, windows, length, STACK, SHAPE, frame_type),
        sampling,
        limiter or RateLimiter(1),
        **({"patience": 0.0} | others),
    )


PLAYED = ("frames", "ages", "actions", "rewards", "terminated", "truncated", "mask", "log_probs")


def windows(first: int, games: int = 1) -> Trajectory:
    """Return a trajectory of so many games, whose actions are the windows' numbers."""
    rng = np.random.default_rng(first)
    trajectory = random_trajectory(rng, games=games, length=2, stack=1, frame_shape=(1, 1))
    numbered = np.arange(first, first + games)
    for name in PLAYED:  # all fields but the empty state say their window
        field = getattr(trajectory, name)
        field[:] = numbered.reshape(-1, *[1] * (field.ndim - 1)) % (2 if field.dtype == bool else 9)
    return trajectory._replace(actions=np.repeat(numbered[:, None], 2, axis=1))


BY_ERROR = Prioritized(alpha=0.7, beta_end=0.5)


class Player:
    """Sends what an actor sends: the first K frames are the last K of the trajectory before."""

    def __init__(
        self,
        actor: int = 0,
        games: int = 1,
        ends: float = 0.25,
        frame_type: str = "uint8",
    ) -> None:
        self.actor, self.games, self.ends, self._type = actor, games, ends, frame_type
        self._random = np.random.default_rng((0, actor))
        self.round = 0
        self.restart()

    def restart(self) -> None:
        """Begin fresh games; like an actor, go on counting the rounds."""
        self._frames = np.zeros((self.games, STACK, *SHAPE), dtype=self._type)
        self._frames[:, -1] = self._numbers(1, (self.games, *SHAPE))
        self._ages = np.zeros(self.games, dtype=np.int64)

    def play(self, length: int) -> Trajectory:
        """Return the next trajectory. A life may be lost, and a game end for no reason given."""
        rng, shape = self._random, (self.games, length)
        frames = self._numbers(0, (self.games, length + STACK, *SHAPE))
        frames[:, :STACK] = self._frames
        end = self.ends / 4
        kind = rng.choice(5, size=shape, p=[1 - self.ends, end, end, end, end])
        terminated, truncated, over = kind % 2 == 1, kind == 2, (kind > 0) & (kind < 4)
        terminated &= kind != 0
        over |= kind == 4  # neither terminated nor truncated
        over &= kind != 3  # a lost life: terminated, and the game goes on
        ages = np.empty((self.games, length + 1), dtype=np.int64)
        ages[:, 0] = self._ages
        for t in range(length):
            ages[:, t + 1] = np.where(over[:, t], 0, ages[:, t] + 1)
        self._frames, self._ages = frames[:, -STACK:], ages[:, -1]
        sent = random_trajectory(
            rng, self.actor, self.round, self.games, length, STACK, SHAPE, 18, self.round
        )
        sent = sent._replace(frames=frames, ages=ages, terminated=terminated, truncated=truncated)
        sent = sent._replace(mask=~truncated & (rng.random(shape) < 0.9))
        self.round += 1
        return sent

    def _numbers(self, low: int, shape: tuple[int, ...]) -> Frames:
        """Return bytes, or thirds of numbers that no byte holds."""
        whole: Frames = self._random.integers(low, 256, shape, dtype=np.uint8)
        return whole if self._type == "uint8" else (whole.astype(np.float32) - 128) / 3


class Played(NamedTuple):
    """One step as it was sent, with the observations around it."""

    run: int  # told apart from other unbroken runs of the stream
    before: Any  # uint8[K, H, W]
    after: Any
    ages: tuple[int, int]
    mask: bool
    fields: dict[str, Any]
    version: int


@dataclass
class Tape:
    """Everything that one game ever sent; None where the store leaves out a position."""

    index: int
    steps: list[Played | None] = field(default_factory=list)
    runs: int = 0


class Model:
    """What a store should hold, worked out slowly from everything that was ever added."""

    def __init__(self, capacity: int, streams: int, length: int = LENGTH) -> None:
        self.kept, self.length = capacity // streams, length
        self.slots = self.kept + STACK
        self.tapes: dict[tuple[int, int], Tape] = {}

    def add(self, trajectory: Trajectory, broken: bool) -> set[tuple[int, int]]:
        """Note a trajectory; return (stream, position) of the windows that can begin now."""
        before = self.beginnings()
        for game in range(len(trajectory.actions)):
            key = trajectory.actor, game
            tape = self.tapes.setdefault(key, Tape(len(self.tapes)))
            if broken and tape.steps:
                tape.steps += [None] * STACK
                tape.runs += 1
            for t in range(trajectory.actions.shape[1]):
                frames, ages = trajectory.frames[game], trajectory.ages[game]
                tape.steps.append(
                    Played(
                        tape.runs,
                        frames[t : t + STACK],
                        frames[t + 1 : t + 1 + STACK],
                        (int(ages[t]), int(ages[t + 1])),
                        bool(trajectory.mask[game, t]),
                        {name: getattr(trajectory, name)[game, t] for name in STEP_FIELDS},
                        trajectory.version.number,
                    )
                )
        return self.beginnings() - before

    def oldest(self, tape: Tape) -> int:
        """Return the first position that is kept."""
        return max(len(tape.steps) - self.kept, 0)

    @property
    def size(self) -> int:
        """Steps that are kept."""
        tapes = self.tapes.values()
        return sum(step is not None for t in tapes for step in t.steps[self.oldest(t) :])

    def beginnings(self) -> set[tuple[int, int]]:
        """Return (stream, position) of all windows that can be cut."""
        return {
            (tape.index, p)
            for tape in self.tapes.values()
            for p in range(self.oldest(tape), len(tape.steps) - self.length + 1)
            if len({s.run if s else None for s in tape.steps[p : p + self.length]} | {None}) == 2
            and None not in tape.steps[p : p + self.length]
        }

    def where(self, key: int, generation: int) -> tuple[int, int]:
        """Return (stream, position) of a sampled window."""
        stream, place = divmod(key, self.slots)
        return stream, generation * self.slots + place

    def check(self, batch: Batch) -> list[tuple[int, int]]:
        """Assert that a batch's windows are what was sent; return where they begin."""
        begins = [
            self.where(k, g)
            for k, g in zip(batch.keys.tolist(), batch.generations.tolist(), strict=True)
        ]
        allowed, tapes = self.beginnings(), list(self.tapes.values())
        for n, (stream, position) in enumerate(begins):
            assert (stream, position) in allowed
            steps = tapes[stream].steps[position : position + self.length]
            over = False
            for t, step in enumerate(steps):
                assert step is not None
                now, following = batch.frames[n, t : t + STACK], batch.frames[n, t + 1 :]
                np.testing.assert_array_equal(now, step.before)
                np.testing.assert_array_equal(following[:STACK], step.after)
                assert batch.ages[n, t : t + 2].tolist() == list(step.ages)
                for name, want in step.fields.items():
                    found = getattr(batch, name)[n, t].numpy()
                    assert (found.dtype, found) == (want.dtype, want), name
                assert bool(batch.mask[n, t]) == (step.mask and not over)
                over |= bool(step.fields["terminated"] or step.fields["truncated"])
                over |= step.ages[1] == 0
            assert steps[0] is not None
            assert batch.versions[n] == steps[0].version
        return begins
