"""Batches on their way to a learner: those of a round with their epochs, and those made ready.

A use of a batch is one epoch over it. The uses are spread over several rounds, either evenly, as by
RLlib's minibatch buffer (``ring``), or at random, as by the circular buffer of IMPACT (Luo et al.
2020, section 3.2; ``random``). Each round has one fresh batch, and uses it last.

With loaders a batch is joined, and copied to a GPU, while the learner learns from the one before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch

from colobus.core.seeding import sequence
from colobus.core.timing import Clock, Closable, Condition
from colobus.core.types import CPU, Batch
from colobus.roles.replay.api import ReplayReader

Order = Literal["ring", "random"]


class Use(NamedTuple):
    """A batch, and the epochs over it in this round."""

    batch: Batch
    epochs: int


@dataclass
class MinibatchBuffer:
    """Holds the batches that have uses left.

    With ``ring``, use ``j`` of a batch is ``floor(j * rounds / uses)`` rounds after its arrival.
    With ``random`` a round has as many uses as with the ring: one of the fresh batch, all that are
    left of a batch that leaves the buffer after this round, and the rest drawn without replacement
    from the uses that all held batches have left. So each batch has exactly its uses.
    """

    rounds: int  # for which a batch is held at most, that of its arrival included
    uses: int  # epochs over each batch
    ramp_up: bool = False  # batch ``i``, counted from 1, has only ``min(i, uses)``
    order: Order = "ring"
    seeds: Sequence[int] = (0,)  # of the run, and what tells this object from others (``random``)

    def __post_init__(self) -> None:
        self._held: dict[int, Batch] = {}  # by number, the oldest first
        self._left: dict[int, int] = {}  # uses, likewise
        self._round = 0

    def take(self, fresh: Batch) -> list[Use]:
        """Begin a round with a fresh batch; return all uses of the round, the fresh batch last."""
        number = self._round
        self._held[number], self._left[number] = fresh, self._uses_of(number)
        due = self._even(number) if self.order == "ring" else self._drawn(number)
        uses = []
        for held in sorted(due):
            uses.append(Use(self._held[held], due[held]))
            self._left[held] -= due[held]
            if not self._left[held]:
                del self._left[held], self._held[held]
        self._round += 1
        return uses

    def _uses_of(self, number: int) -> int:
        return min(number + 1, self.uses) if self.ramp_up else self.uses

    def _even(self, number: int) -> Counter[int]:
        """Return the uses of the ring in a round, by batch."""
        found: Counter[int] = Counter()
        for batch in range(max(number - self.rounds + 1, 0), number + 1):
            uses = self._uses_of(batch)
            offsets = [use * self.rounds // uses for use in range(uses)]
            if count := offsets.count(number - batch):
                found[batch] = count
        return found

    def _drawn(self, number: int) -> Counter[int]:
        """Return the uses of a round, by batch, most of them drawn at random."""
        found = Counter({number: 1})
        leaving = number - self.rounds + 1
        if leaving in self._left:
            found[leaving] = self._left[leaving]
        tickets = [batch for batch in self._left for _ in range(self._left[batch] - found[batch])]
        count = min(self._even(number).total() - found.total(), len(tickets))
        if count > 0:
            seed, *numbers = self.seeds
            random = np.random.default_rng(sequence(seed, "circular", *numbers, number))
            found.update(tickets[i] for i in random.choice(len(tickets), count, replace=False))
        return +found


@dataclass(eq=False)
class PrefetchQueue(Closable):
    """Hands out prepared batches (a `colobus.roles.replay.api.ReplayReader`); passive.

    A loader takes the next batch of the replay and gets a ticket for it, one loader at a time, so
    the tickets are in the order of the batches. It prepares the batch and puts it into the queue.
    The learner gets batches in the order of their tickets, however many loaders there are.
    """

    replay: ReplayReader  # where the batches come from
    slots: int  # batches that are prepared or in the queue, at most
    patience: float = 600.0  # seconds, for `take` too; see `colobus.roles.replay.api`

    def __post_init__(self) -> None:
        super().__init__(self.patience)
        self._taking = Condition()
        self._there: dict[int, Batch] = {}  # by ticket
        self._taken = self._handed_out = 0  # tickets

    @property
    def depth(self) -> int:
        """What the replay keeps now."""
        return self.replay.depth

    def take(self) -> tuple[int, Batch]:
        """Wait for a free slot and for the next batch; return it with its ticket.

        Raises:
            Deadline: if either did not come within the patience.
            Closed: if the run stops.
        """
        with self._taking:
            with self._changed:
                self.wait_until(lambda: self._taken - self._handed_out < self.slots, "free slot")
            batch = self.replay.sample()
            ticket, self._taken = self._taken, self._taken + 1
            return ticket, batch

    def put(self, ticket: int, batch: Batch) -> None:
        """Put a prepared batch into the queue."""
        with self._changed:
            self._there[ticket] = batch
            self._changed.notify_all()

    def sample(self) -> Batch:
        """Return the next batch; wait until it has been prepared."""
        patience = math.inf if self.patience else 0.0  # the loader knows whether the batch comes
        with self._changed:
            self.wait_until(
                lambda: self._handed_out in self._there, "loaded batch", patience=patience
            )
            batch = self._there.pop(self._handed_out)
            self._handed_out += 1
            self._changed.notify_all()
        for tensor in batch:
            if tensor.is_cuda:  # its memory is not to be used again before this stream is through
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return batch

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Pass the priorities on to the replay."""
        self.replay.update(keys, generations, priorities)


class Loader:
    """Takes batches from a replay and puts them into the learner's queue; active.

    Args:
        index: which loader this is.
        prefetched: gives batches out to be prepared, and takes them.
        device: of the learner.
    """

    def __init__(self, index: int, prefetched: PrefetchQueue, device: torch.device = CPU) -> None:
        self.name = f"loader-{index}"
        self.clock, self.finished, self.device = Clock(), False, device
        self._prefetched = prefetched

    def step(self) -> None:
        """Prepare one batch."""
        with self.clock("wait for experience"):
            ticket, batch = self._prefetched.take()
        with self.clock("load"):
            loaded = self._loaded(batch)
        self._prefetched.put(ticket, loaded)
        self.clock.steps += 1

    def _loaded(self, batch: Batch) -> Batch:
        """Return the batch on the device; when this returns the copy is complete."""
        if self.device.type != "cuda":
            return batch.to(self.device)
        pinned = Batch(*(tensor.pin_memory() for tensor in batch))
        loaded = pinned.to(self.device)
        torch.cuda.current_stream(self.device).synchronize()
        return loaded
