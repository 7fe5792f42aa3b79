"""What actors and learners know of a replay.

    Actor ── add ──> Replay ── sample ──> Learner

A `TrajectoryQueue` hands each trajectory out once, and may mix old ones in. A `ReplayBuffer` keeps
steps and hands out windows of them again and again; `BufferInRounds` is one in a deterministic run.
They may be called from several threads at once.

Readers stand in front of them. A `ShardedReplay` lets a learner read from several buffers as if
they were one, and `JoinedQueues` from several queues; both belong to one learner. A
`PrefetchQueue` has the next batch ready.

Only `ReplayWriter.wait_for_room` and `ReplayReader.sample` wait, at most for the
patience that the replay was made with, in seconds; with a patience of 0 they never wait. After
`Replay.close` they and ``add`` raise `colobus.core.errors.Closed`, also for callers that already
wait.

A call to a replay in another process may also raise `colobus.core.errors.Lost`.
"""

from __future__ import annotations

from typing import Protocol

import torch

from colobus.core.types import Batch, Trajectory


class ReplayWriter(Protocol):
    """The side of a replay that an actor uses: ``wait_for_room``, play, ``add``."""

    def wait_for_room(self, actor: int = 0) -> None:
        """Wait until the replay wants another trajectory, so that actors do not run ahead.

        It reserves nothing: several actors may pass at once and add one trajectory each.

        Args:
            actor: index of the actor that waits.

        Raises:
            Deadline: if there was no room within the patience.
            Closed: if the run stops.
        """

    def add(self, trajectory: Trajectory) -> None:
        """Keep a trajectory and wake whoever waits in ``sample``. Never waits for room.

        The replay may keep references to the arrays, so the caller must not change them later.
        A full replay drops its oldest experience.

        Raises:
            ColobusError: if the trajectory does not fit the settings of the replay.
            Closed: if the run stops.
        """


class ReplayReader(Protocol):
    """The side of a replay that a learner uses: ``sample``, learn, ``update``."""

    @property
    def depth(self) -> int:
        """How much is kept now: trajectories in a queue, steps in a buffer; 0 if it is not known.

        Never waits.
        """

    def sample(self) -> Batch:
        """Return the next batch of ``N`` windows with ``T`` steps each; wait until there is one.

        The batch belongs to the caller. Of the fields that a replay adds (`Batch`):

        * The sum of ``fresh`` over all batches of all learners is the number of steps played,
          whichever steps were sampled.
        * ``versions`` are of the first action of each window.
        * ``keys`` name each window for ``update``, and ``generations`` say how often the memory
          under a key was overwritten.
        * ``weights`` undo the bias of prioritized sampling. The largest of the windows that have a
          step to learn from is 1; without priorities all are 1.
        * ``fresh`` does not count what is ``replayed``, and statistics that steer training leave it
          out.

        Raises:
            Deadline: if there was no batch within the patience.
            Closed: if the run stops.
        """

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Set the priorities of windows of an earlier batch. Never waits.

        Windows that were overwritten since are left out. A replay that samples without priorities
        does nothing, as this does.

        Args:
            keys: int64[M], of the batch.
            generations: int64[M], of the batch.
            priorities: float32[M], absolute errors.

        Raises:
            ValueError: if a priority is negative or not finite.
        """
        return


class Replay(ReplayWriter, ReplayReader, Protocol):
    """A replay as the runtime knows it."""

    def close(self) -> None:
        """Stop: wake everybody who waits. From now on calls raise `Closed`."""
