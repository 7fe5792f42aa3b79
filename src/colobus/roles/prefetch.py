"""Batches that are prepared while the learner learns: loaders, and the queue behind them."""

from __future__ import annotations

import threading

import torch

from colobus.core.timing import Clock, Closable
from colobus.core.types import CPU, Batch
from colobus.roles.replay.api import ReplayReader


class PrefetchQueue(Closable):
    """Hands out prepared batches (a `colobus.roles.replay.api.ReplayReader`); passive.

    A loader takes the next batch of the replay and gets a ticket for it, one loader at a time, so
    the tickets are in the order of the batches. It prepares the batch and puts it into the queue.
    The learner gets batches in the order of their tickets, however many loaders there are.

    Args:
        replay: where the batches come from.
        slots: batches that are prepared or in the queue, at most.
        patience: seconds that `take` waits for a free slot, and `sample` for a batch, before they
            raise `Deadline` (0: they never wait).
    """

    def __init__(self, replay: ReplayReader, slots: int, patience: float = 600.0) -> None:
        super().__init__(patience)
        self._replay, self._slots = replay, slots
        self._taking = threading.Lock()
        self._there: dict[int, Batch] = {}  # by ticket
        self._taken = self._handed_out = 0  # tickets

    @property
    def depth(self) -> int:
        """What the replay keeps now."""
        return self._replay.depth

    def take(self) -> tuple[int, Batch]:
        """Wait for a free slot and for the next batch; return it with its ticket.

        Raises:
            Deadline: if either did not come within the patience.
            Closed: if the run stops.
        """
        with self._taking:
            with self._changed:
                self.wait_until(lambda: self._taken - self._handed_out < self._slots, "free slot")
            batch = self._replay.sample()
            ticket, self._taken = self._taken, self._taken + 1
            return ticket, batch

    def put(self, ticket: int, batch: Batch) -> None:
        """Put a prepared batch into the queue."""
        with self._changed:
            self._there[ticket] = batch
            self._changed.notify_all()

    def sample(self) -> Batch:
        """Return the next batch; wait until it has been prepared.

        Raises:
            Deadline: if there was none within the patience.
            Closed: if the run stops.
        """
        with self._changed:
            self.wait_until(lambda: self._handed_out in self._there, "loaded batch")
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
        self._replay.update(keys, generations, priorities)


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
