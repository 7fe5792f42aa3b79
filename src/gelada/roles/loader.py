"""Loader: prepares batches while the learner learns.

loader = Loader(...)
while True:
    loader.step()    # take the next batch, copy it to the learner's device, put it on the shelf
"""

from __future__ import annotations

import torch

from gelada.core.timing import Clock
from gelada.core.types import CPU, Batch
from gelada.roles.replay.shelf import Shelf


class Loader:
    """Takes batches from a replay and puts them on the learner's shelf; active.

    Args:
        index: which loader this is.
        shelf: gives batches out to be prepared, and takes them.
        device: of the learner.
    """

    def __init__(self, index: int, shelf: Shelf, device: torch.device = CPU) -> None:
        self.name = f"loader-{index}"
        self.clock, self.finished, self.device = Clock(), False, device
        self._shelf = shelf

    def step(self) -> None:
        """Prepare one batch."""
        with self.clock("wait for experience"):
            ticket, batch = self._shelf.take()
        with self.clock("load"):
            loaded = self._loaded(batch)
        self._shelf.put(ticket, loaded)
        self.clock.steps += 1

    def _loaded(self, batch: Batch) -> Batch:
        """Return the batch on the device; when this returns the copy is complete."""
        if self.device.type != "cuda":
            return batch.to(self.device)
        pinned = Batch(*(tensor.pin_memory() for tensor in batch))
        loaded = pinned.to(self.device)
        torch.cuda.current_stream(self.device).synchronize()
        return loaded
