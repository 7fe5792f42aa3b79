"""Which batches a learner uses in a round, and for how many epochs.

A use of a batch is one epoch over it. The uses are spread over several rounds, either evenly, as by
RLlib's minibatch buffer (``ring``), or at random, as by the circular buffer of IMPACT (Luo et al.
2020, section 3.2; ``random``). Each round has one fresh batch, and uses it last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch

from colobus.core.seeding import sequence
from colobus.core.types import Batch

Order = Literal["ring", "random"]


class Use(NamedTuple):
    """A batch, and the epochs over it in this round."""

    batch: Batch  # ``uses`` counts the epochs of earlier rounds
    epochs: int


class MinibatchBuffer:
    """Holds the batches that have uses left.

    With ``ring``, use ``j`` of a batch is ``floor(j * rounds / uses)`` rounds after its arrival.
    With ``random`` a round has as many uses as with the ring: one of the fresh batch, all that are
    left of a batch that leaves the buffer after this round, and the rest drawn without replacement
    from the uses that all held batches have left. So each batch has exactly its uses.

    Args:
        rounds: for which a batch is held at most, that of its arrival included.
        uses: epochs over each batch.
        ramp_up: batch ``i``, counted from 1, has only ``min(i, uses)``.
        order: ``ring`` or ``random``.
        seeds: seed of the run, and numbers that tell this object from others (``random``).
    """

    def __init__(
        self,
        rounds: int,
        uses: int,
        ramp_up: bool = False,
        order: Order = "ring",
        seeds: Sequence[int] = (0,),
    ) -> None:
        self._rounds, self._uses, self._ramp_up = rounds, uses, ramp_up
        self._order, self._seeds = order, seeds
        self._held: dict[int, Batch] = {}  # by number, the oldest first
        self._left: dict[int, int] = {}  # uses, likewise
        self._round = 0

    @property
    def held(self) -> int:
        """Batches that are held for later rounds."""
        return len(self._held)

    def take(self, fresh: Batch) -> list[Use]:
        """Begin a round with a fresh batch; return all uses of the round, the fresh batch last."""
        number = self._round
        self._held[number], self._left[number] = fresh, self._uses_of(number)
        due = self._even(number) if self._order == "ring" else self._drawn(number)
        uses = []
        for batch in sorted(due):
            uses.append(Use(self._hand_out(batch), due[batch]))
            self._left[batch] -= due[batch]
            if not self._left[batch]:
                del self._left[batch], self._held[batch]
        self._round += 1
        return uses

    def _hand_out(self, number: int) -> Batch:
        """Return a held batch with the epochs that were over it before; only once it is fresh."""
        batch, before = self._held[number], self._uses_of(number) - self._left[number]
        if not before:
            return batch
        return batch._replace(uses=torch.tensor(before), fresh=torch.tensor(0))

    def _uses_of(self, number: int) -> int:
        return min(number + 1, self._uses) if self._ramp_up else self._uses

    def _even(self, number: int) -> Counter[int]:
        """Return the uses of the ring in a round, by batch."""
        found: Counter[int] = Counter()
        for batch in range(max(number - self._rounds + 1, 0), number + 1):
            uses = self._uses_of(batch)
            offsets = [use * self._rounds // uses for use in range(uses)]
            if count := offsets.count(number - batch):
                found[batch] = count
        return found

    def _drawn(self, number: int) -> Counter[int]:
        """Return the uses of a round, by batch, most of them drawn at random."""
        found = Counter({number: 1})
        leaving = number - self._rounds + 1
        if leaving in self._left:
            found[leaving] = self._left[leaving]
        tickets = [batch for batch in self._left for _ in range(self._left[batch] - found[batch])]
        count = min(self._even(number).total() - found.total(), len(tickets))
        if count > 0:
            seed, *numbers = self._seeds
            random = np.random.default_rng(sequence(seed, "circular", *numbers, number))
            found.update(tickets[i] for i in random.choice(len(tickets), count, replace=False))
        return +found
