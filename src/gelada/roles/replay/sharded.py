"""Several stores as one, for one learner or one actor."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from gelada.core.errors import Deadline
from gelada.core.seeding import sequence
from gelada.core.types import Batch, Trajectory
from gelada.roles.replay.buffer import ReplayBuffer

STORE_BITS = 48
"""A key has the number of its store above so many bits."""

LOOK_AGAIN = 1.0
"""Seconds to wait for one store before all are looked at again: another may be ready by then, and
the one that was waited for may have lost its actors."""


class ShardedReplay:
    """A learner's or an actor's view of several stores; not shared between threads.

    It has nothing to close: the stores are roles of their own, and others use them too.

    A batch comes from one store. Of the stores that have a batch ready it is drawn with the
    store's share of the priorities' sum (of the windows, where there are no priorities). So a
    window is drawn as if all were in one store.

    Args:
        stores: all of them.
        seed: of the run.
        client: told apart from all other clients by this number.
        own: number of the store that `room` and `add` are for.
        patience: seconds that `sample` waits before it gives up (0: never wait).
    """

    def __init__(
        self,
        stores: Sequence[ReplayBuffer],
        seed: int,
        client: int,
        own: int = 0,
        patience: float = 600.0,
    ) -> None:
        self._stores, self._own, self._patience = list(stores), stores[own], patience
        self._depth = 0
        self._random = np.random.default_rng(sequence(seed, "stores", client))

    @property
    def depth(self) -> int:
        """Steps that all stores kept when a batch was last drawn."""
        return self._depth

    def wait_for_room(self) -> None:
        """Wait until the own store wants another trajectory (see `ReplayBuffer.room`)."""
        self._own.wait_for_room()

    def add(self, trajectory: Trajectory) -> None:
        """Give the own store a trajectory (see `ReplayBuffer.add`)."""
        self._own.add(trajectory)

    def sample(self) -> Batch:
        """Return a batch of one of the stores, waiting for it if need be.

        Raises:
            Deadline: if none had a batch within the patience.
            Closed: if the run stops.
        """
        end = time.monotonic() + self._patience
        while True:
            number = self._choose()
            left = max(end - time.monotonic(), 0.0)
            try:
                batch = self._stores[number].sample(min(left, LOOK_AGAIN))
            except Deadline:
                if left <= LOOK_AGAIN:
                    raise Deadline(
                        f"no batch for {self._patience:g} s from any of {len(self._stores)} "
                        "stores: the actors send too little"
                    ) from None
            else:
                return batch._replace(keys=batch.keys + (number << STORE_BITS))

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Set priorities [M] where the windows came from (see `ReplayBuffer.update`)."""
        numbers = keys >> STORE_BITS
        for number in sorted(set(numbers.tolist())):
            of = numbers == number
            own = keys[of] - (number << STORE_BITS)
            self._stores[number].update(own, generations[of], priorities[of])

    def _choose(self) -> int:
        """Return the number of a store that is ready, or of any if none is."""
        offers = [store.offer() for store in self._stores]
        self._depth = sum(offer.depth for offer in offers)
        masses = np.array([offer.mass if offer.ready else 0.0 for offer in offers])
        if not masses.any():
            return int(self._random.integers(len(offers)))
        return int(self._random.choice(len(offers), p=masses / masses.sum()))
