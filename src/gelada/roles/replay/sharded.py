"""ShardedReplay: several replay buffers that a learner reads from as if they were one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gelada.core.errors import Deadline
from gelada.core.seeding import sequence
from gelada.core.timing import Patience
from gelada.core.types import Batch
from gelada.roles.replay.buffer import ReplayBuffer

SHARD_BITS = 48
"""The bits of a key above this one hold the number of its buffer."""

LOOK_AGAIN = 1.0
"""Seconds to wait for one buffer before all are asked again. Another may be ready by then, and the
one that was waited for may have lost its actors."""


class ShardedReplay:
    """One learner's view of several replay buffers (a `gelada.roles.replay.api.ReplayReader`).

    A batch comes from one buffer. It is chosen among those that have a batch ready, in proportion
    to the sum of their priorities (without priorities: to their windows). So each window has the
    same probability as if all buffers were one. Importance weights are those of the buffer alone.

    Each learner has its own view, which is not shared between threads. It has no ``close``: the
    buffers are roles of their own, which other learners use too.

    Args:
        buffers: all of them, in the same order for all learners.
        seed: of the run.
        client: number of the learner.
        patience: seconds that `sample` waits before it raises `Deadline` (0: it never waits).
    """

    def __init__(
        self, buffers: Sequence[ReplayBuffer], seed: int, client: int, patience: float = 600.0
    ) -> None:
        self._buffers, self._patience = list(buffers), patience
        self._depth = 0
        self._random = np.random.default_rng(sequence(seed, "stores", client))

    @property
    def depth(self) -> int:
        """Steps that all buffers kept when a batch was last sampled."""
        return self._depth

    def sample(self) -> Batch:
        """Return a batch of one of the buffers; wait until one has a batch ready.

        Raises:
            Deadline: if no buffer had a batch within the patience.
            Closed: if the run stops.
        """
        patience = Patience(self._patience)
        while True:
            number = self._choose()
            left = patience.left()
            try:
                batch = self._buffers[number].sample(min(left, LOOK_AGAIN))
            except Deadline:
                if left <= LOOK_AGAIN:
                    raise Deadline(
                        f"no batch for {self._patience:g} s from any of {len(self._buffers)} "
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
            self._buffers[number].update(own, generations[of], priorities[of])

    def _choose(self) -> int:
        """Return the number of a buffer that has a batch ready, or of any if none has."""
        offers = [buffer.offer() for buffer in self._buffers]
        self._depth = sum(offer.depth for offer in offers)
        masses = np.array([offer.mass if offer.ready else 0.0 for offer in offers])
        if not masses.any():
            return int(self._random.integers(len(offers)))
        return int(self._random.choice(len(offers), p=masses / masses.sum()))
