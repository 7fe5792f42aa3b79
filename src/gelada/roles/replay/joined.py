"""JoinedQueues: several trajectory queues that a learner reads from as if they were one."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from gelada.core.errors import Deadline, Lost
from gelada.core.timing import Patience
from gelada.core.types import Batch
from gelada.roles.replay.queue import TrajectoryQueue
from gelada.roles.replay.sharded import SHARD_BITS

LOOK_AGAIN = 0.2
"""Seconds between two looks at queues that are all lost."""


class JoinedQueues:
    """A learner's view of several trajectory queues (a `gelada.roles.replay.api.ReplayReader`).

    Each queue is near its actors and has old windows of its own. A batch is the queues' batches,
    joined in the order of the queues. Without old windows it is, in a deterministic run, the batch
    of a single queue.

    While a queue is lost with its process, batches are those of the others. Afterwards it is not
    waited for before it has a batch again, since its actors begin anew.

    Args:
        queues: in the order of their actors.
        patience: seconds that `sample` waits for each queue before it raises `Deadline` (0: it
            never waits).
    """

    depth = 0
    """Not known: asking would be a call to each queue."""

    def __init__(self, queues: Sequence[TrajectoryQueue], patience: float = 600.0) -> None:
        self._queues, self._patience = list(queues), patience
        self._away: set[int] = set()  # numbers of queues that were lost and have no batch yet

    def sample(self) -> Batch:
        """Return the joined batch; wait until each queue has its part.

        Raises:
            Deadline: if a queue had no batch within the patience, or all of them are lost for
                longer.
            Closed: if the run stops.
        """
        patience = Patience(self._patience)
        while True:
            found = [self._part(number) for number in range(len(self._queues))]
            parts = [part for part in found if part is not None]
            if parts:
                return joined(parts)
            if not patience.left():
                raise Deadline(f"no batch for {self._patience:g} s: all queues are lost")
            time.sleep(LOOK_AGAIN)

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Do nothing: queues have no priorities."""

    def _part(self, number: int) -> Batch | None:
        """Return the batch of one queue; None if it is lost, or was and has no batch yet."""
        try:
            batch = self._queues[number].sample(0.0 if number in self._away else self._patience)
        except Lost:
            self._away.add(number)
            return None
        except Deadline:
            if number in self._away:
                return None
            raise
        self._away.discard(number)
        return batch._replace(keys=batch.keys + (number << SHARD_BITS))


def joined(parts: Sequence[Batch]) -> Batch:
    """Return batches as one, window after window; their fresh steps are added up."""
    if len(parts) == 1:
        return parts[0]
    windows = {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in Batch._fields
        if name not in ("fresh", "uses")
    }
    fresh = torch.stack([part.fresh for part in parts]).sum()
    return Batch(**windows, fresh=fresh, uses=parts[0].uses)
