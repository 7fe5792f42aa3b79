"""JoinedQueues: several trajectory queues that a learner reads from as if they were one.

ShardedReplay: several replay buffers that a learner reads from as if they were one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from colobus.core.errors import Deadline, Lost
from colobus.core.seeding import sequence
from colobus.core.timing import Patience, sleep
from colobus.core.types import Batch
from colobus.roles.replay.api import ReplayReader
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.queue import TrajectoryQueue

SHARD_BITS = 48
"""The bits of a key above this one hold the number of its buffer."""

LOOK_AGAIN = 1.0
"""Seconds to wait for one buffer before all are asked again. Another may be ready by then, and the
one that was waited for may have lost its actors."""


@dataclass(eq=False)
class ShardedReplay:
    """One learner's view of several replay buffers (a `colobus.roles.replay.api.ReplayReader`).

    A batch comes from one buffer. It is chosen among those that have a batch ready, in proportion
    to the sum of their priorities (without priorities: to their windows). So each window has the
    same probability as if all buffers were one. Importance weights are those of the buffer alone.

    Each learner has its own view, which is not shared between threads. It has no ``close``: the
    buffers are roles of their own, which other learners use too.
    """

    buffers: Sequence[ReplayBuffer]  # all of them, in the same order for all learners
    seed: int  # of the run
    client: int  # number of the learner
    patience: float = 600.0  # seconds; see `colobus.roles.replay.api`

    def __post_init__(self) -> None:
        self.depth = 0  # steps that all buffers kept when a batch was last sampled
        self._random = np.random.default_rng(sequence(self.seed, "stores", self.client))

    def sample(self) -> Batch:
        """Return a batch of one of the buffers; wait until one has a batch ready.

        Raises:
            Deadline: if no buffer had a batch within the patience.
            Closed: if the run stops.
        """
        patience = Patience(self.patience)
        while True:
            before, number = self.depth, self._choose()
            if self.depth > before:  # slowly, but steps come
                patience = Patience(self.patience)
            left = patience.left()
            try:
                batch = self.buffers[number].sample(min(left, LOOK_AGAIN))
            except Deadline:
                if left <= LOOK_AGAIN:
                    raise Deadline(
                        f"no batch for {self.patience:g} s from any of {len(self.buffers)} "
                        "replay buffers: the actors send too little"
                    ) from None
            else:
                return batch._replace(keys=batch.keys + (number << SHARD_BITS))

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Set the priorities [M] of sampled windows in the buffers that they came from."""
        numbers = keys >> SHARD_BITS
        for number in sorted(set(numbers.tolist())):
            of = numbers == number
            own = keys[of] - (number << SHARD_BITS)
            self.buffers[number].update(own, generations[of], priorities[of])

    def _choose(self) -> int:
        """Return the number of a buffer that has a batch ready, or of any if none has."""
        offers = [buffer.offer() for buffer in self.buffers]
        self.depth = sum(offer.depth for offer in offers)
        masses = np.array([offer.mass if offer.ready else 0.0 for offer in offers])
        if not masses.any():
            return int(self._random.integers(len(offers)))
        return int(self._random.choice(len(offers), p=masses / masses.sum()))


LOOK_AT_LOST = 0.2
"""Seconds between two looks at queues that are all lost."""


@dataclass(eq=False)
class JoinedQueues(ReplayReader):
    """A learner's view of several trajectory queues (a `colobus.roles.replay.api.ReplayReader`).

    Each queue is near its actors and has old windows of its own. A batch is the queues' batches,
    joined in the order of the queues. Without old windows it is, in a deterministic run, the batch
    of a single queue.

    While a queue is lost with its process, batches are those of the others. Afterwards it is not
    waited for before it has a batch again, since its actors begin anew.
    """

    queues: Sequence[TrajectoryQueue]  # in the order of their actors
    patience: float = 600.0  # seconds for each queue; see `colobus.roles.replay.api`

    depth = 0
    """Not known: asking would be a call to each queue."""

    def __post_init__(self) -> None:
        self._away: set[int] = set()  # numbers of queues that were lost and have no batch yet

    def sample(self) -> Batch:
        """Return the joined batch; wait until each queue has its part.

        Raises:
            Deadline: if a queue had no batch within the patience, or all of them are lost for
                longer.
            Closed: if the run stops.
        """
        patience = Patience(self.patience)
        while True:
            found = [self._part(number) for number in range(len(self.queues))]
            parts = [part for part in found if part is not None]
            if parts:
                return joined(parts)
            if not patience.left():
                raise Deadline(f"no batch for {self.patience:g} s: all queues are lost")
            sleep(LOOK_AT_LOST)

    def _part(self, number: int) -> Batch | None:
        """Return the batch of one queue; None if it is lost, or was and has no batch yet."""
        try:
            batch = self.queues[number].sample(0.0 if number in self._away else self.patience)
        except Lost:
            self._away.add(number)
            return None
        except Deadline:
            if number in self._away:
                return None
            raise
        self._away.discard(number)
        return batch


def joined(parts: Sequence[Batch]) -> Batch:
    """Return batches as one, window after window; their fresh steps are added up."""
    if len(parts) == 1:
        return parts[0]
    windows = {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in Batch._fields
        if name != "fresh"
    }
    return Batch(**windows, fresh=torch.stack([part.fresh for part in parts]).sum())
