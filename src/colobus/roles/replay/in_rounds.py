"""A replay buffer for deterministic runs: what is sampled does not depend on who is faster."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from colobus.core.errors import Closed
from colobus.core.timing import Closable
from colobus.core.types import Batch, Trajectory, Version
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.update_schedule import UpdateSchedule

KEPT = 2
"""Newest complete checkpoints whose saved buffers are kept."""


@dataclass(eq=False)
class BufferInRounds(Closable):
    """A replay buffer that takes trajectories in by rounds (a `colobus.roles.replay.api.Replay`).

    A round is one trajectory of every actor. It goes into the buffer in the order of the actors,
    when the learner asks for a batch that needs it. Actors do not wait for room here: they wait for
    the parameters that the batches before make.
    """

    buffer: ReplayBuffer  # what is sampled from. Its limiter must let the learner sample at once
    actors: Sequence[int]  # that add to it, by their indices
    update_schedule: UpdateSchedule  # how many batches are sampled of how many rounds
    patience: float = 600.0  # seconds; see `colobus.roles.replay.api`

    def __post_init__(self) -> None:
        super().__init__(self.patience)
        self._waiting: dict[tuple[int, int], Trajectory] = {}  # by round and actor
        self._rounds = self._batches = 0  # taken in, handed out

    @property
    def depth(self) -> int:
        """Steps in the buffer now."""
        return self.buffer.depth

    def wait_for_room(self, actor: int = 0) -> None:
        """Raise Closed if the run stops; never wait."""
        if self._closed:
            raise Closed

    def add(self, trajectory: Trajectory) -> None:
        """Keep a trajectory until its round is due."""
        with self._changed:
            if self._closed:
                raise Closed
            self._waiting[trajectory.round, trajectory.actor] = trajectory
            if not self._batches:  # nothing is saved before the first batch
                self._take_in(min(self._complete(), self.update_schedule.rounds(1)))
            self._changed.notify_all()

    def sample(self) -> Batch:
        """Return the next batch; wait until the rounds that it needs have arrived."""
        with self._changed:
            due = self.update_schedule.rounds(self._batches + 1)
            self.wait_until(
                lambda: self._complete() >= due,
                "batch",
                lambda: (
                    f": it needs {due:,} rounds of all actors, {self._complete():,} are complete"
                ),
                comes=self._complete,
            )
            self._take_in(due)
            batch = self.buffer.sample(0.0)
            self._batches += 1
            return batch

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Set the priorities of sampled windows; see `ReplayBuffer.update`."""
        self.buffer.update(keys, generations, priorities)

    def close(self) -> None:
        """Stop: wake everybody who waits."""
        super().close()
        self.buffer.close()

    def load(self, folder: Path) -> None:
        """Go on from a result of `ReplayBuffer.save`, as if the buffer had never been away.

        Raises:
            ColobusError: if it is missing, damaged or of other settings.
        """
        added, sampled = self.buffer.load(folder, exactly=True)
        self._rounds = added // self.update_schedule.steps
        self._batches = sampled // self.update_schedule.windows

    def _complete(self) -> int:
        """Return the rounds that have been taken in, or that all actors have sent."""
        rounds = self._rounds
        while all((rounds, actor) in self._waiting for actor in self.actors):
            rounds += 1
        return rounds

    def _take_in(self, rounds: int) -> None:
        """Add all rounds before this one to the buffer."""
        while self._rounds < rounds:
            for actor in self.actors:
                self.buffer.add(self._waiting.pop((self._rounds, actor)))
            self._rounds += 1


@dataclass(frozen=True)
class SaveWithCheckpoints:
    """Saves a buffer before each checkpoint of its learner, in a folder named by the version.

    Only the learner calls it, between two batches. It raises what `ReplayBuffer.save` does.
    """

    replay: BufferInRounds  # what is saved
    folder: Path  # of all saved buffers
    checkpoints: Path  # folder of the checkpoints, which another thread writes later

    def __call__(self, version: Version) -> None:
        """Save the buffer at a version; forget those before the newest `KEPT` checkpoints."""
        folder = folder_of(self.folder, version)
        self.replay.buffer.save(folder)
        written = sorted(path.stem for path in self.checkpoints.glob("[0-9]*.json"))
        needed = [stem for stem in written if stem < folder.name][-KEPT:]
        for path in self.folder.glob("[0-9]*"):
            if len(needed) == KEPT and path.name < needed[0]:
                shutil.rmtree(path, ignore_errors=True)


def folder_of(folder: Path, version: Version) -> Path:
    """Return the folder of the buffer that was saved at a version."""
    return folder / f"{version.number:08d}"
