"""A group of learners that step alike: the sum of what each of them has.

Every learner of a group has the whole network, an optimizer and a replay of its own. Before each
step all of them sum their gradients, so all take the same step and their parameters stay equal,
bit for bit. `LearnerGroup` joins learners on threads and is passive; processes are joined by a
`gelada.roles.ring.Ring`. `Member` is a learner's side of either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import torch

from gelada.core.errors import Closed, Deadline, Diverged, Lost
from gelada.core.timing import Clock, wait_for
from gelada.ops.flat import in_host_memory

CLOSING_SECONDS = 30.0
"""Once a run stops, a learner waits at most so long for the others to end their round."""


NORM = "parameter_norm"
"""Value of a round that is the same for all, while their parameters are."""


class LearnerGroup:
    """Sums vectors of several learners in the order of their ranks; passive.

    Each learner adds up its own slice of all vectors, so the work is shared, and the order does not
    depend on who comes first.

    Args:
        size: learners in the group.
        patience: seconds after which `sum` raises `Deadline` (0: it does not wait).
    """

    def __init__(self, size: int, patience: float = 600.0) -> None:
        self._size, self._patience = size, patience
        self._changed = threading.Condition()
        self._vectors: dict[int, torch.Tensor] = {}  # of the sum under way, by rank
        self._total = torch.empty(0)
        self._begun = self._ended = 0  # sums for which all vectors are there; that are complete
        self._added = 0  # slices of the sum under way
        self._left: set[int] = set()
        self._closed = False

    def sum(self, rank: int, vector: torch.Tensor) -> torch.Tensor:
        """Wait for the vectors of all learners, and return their sum.

        Args:
            rank: of the learner, from 0.
            vector: [P], of the same length and dtype for all; nobody changes it until this returns.
                From a GPU it is copied to the memory of the host, where the sum is.

        Raises:
            Deadline: if some did not come within the patience; the message names them.
            Closed: if the run stops and one of the others has left.
        """
        vector = in_host_memory(vector)
        with self._changed:
            turn = self._begun + 1
            self._vectors[rank] = vector
            if len(self._vectors) == self._size:
                self._total = torch.empty_like(vector)
                self._begun, self._added = turn, 0
                self._changed.notify_all()
            self._wait(lambda: self._begun >= turn, self._missing)
            parts = [self._vectors[i] for i in range(self._size)]
            total = self._total
        _add(parts, total, rank)
        with self._changed:
            self._added += 1
            if self._added == self._size:
                self._vectors, self._ended = {}, turn
                self._changed.notify_all()
            self._wait(lambda: self._ended >= turn, lambda: set(range(self._size)) - {rank})
        return total

    def leave(self, rank: int) -> None:
        """Note that a learner has ended; nobody waits for it once the run stops."""
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop: whoever waits for a learner that has left gets `Closed`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _missing(self) -> set[int]:
        return set(range(self._size)) - self._vectors.keys()

    def _wait(self, holds: Callable[[], bool], awaited: Callable[[], set[int]]) -> None:
        """Wait until ``holds``; ``awaited`` returns the ranks for which this waits."""

        def over() -> bool:
            return holds() or self._closed

        there = wait_for(self._changed, over, self._patience)
        if there and not holds():  # the run stops; learners in the middle of a round may end it
            there = self._changed.wait_for(
                lambda: holds() or bool(self._left & awaited()), CLOSING_SECONDS
            )
            if not holds():
                raise Closed
        if not there:
            names = ", ".join(f"learner-{i}" for i in sorted(awaited()))
            raise Deadline(f"no sum for {self._patience:g} s: it waits for {names}")


def _add(parts: list[torch.Tensor], total: torch.Tensor, rank: int) -> None:
    """Write this rank's slice of the sum of all parts, added up in their order, to ``total``."""
    length = len(total)
    own = slice(length * rank // len(parts), length * (rank + 1) // len(parts))
    first, *rest = (part[own] for part in parts)
    total[own] = first
    for part in rest:
        total[own].add_(part)


class Sums(Protocol):
    """What joins the learners of a group: a `LearnerGroup`, or a `gelada.roles.ring.Ring`."""

    def sum(self, rank: int, vector: torch.Tensor) -> torch.Tensor:
        """Wait for the vectors of all learners, and return their sum, the same bits for all.

        It may be in the memory of the host, wherever the vectors are.
        """

    def leave(self, rank: int) -> None:
        """Note that a learner has ended."""


class Member:
    """A learner in a group.

    Args:
        group: joins the learners.
        rank: of the learner, from 0.
        size: learners in the group.
    """

    def __init__(self, group: Sums, rank: int, size: int) -> None:
        self.rank, self.size, self.clock = rank, size, Clock()
        self._group = group

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of the tensors of all members; each has the same bits."""
        with self.clock("wait for learners"):
            total = self._group.sum(self.rank, values.reshape(-1))
        return total.to(values.device).view(values.shape)

    def average(self, gradients: torch.Tensor, weight: torch.Tensor) -> None:
        """Replace gradients float32[P] by the mean of all members', weighted by ``weight``."""
        total = self.sum(torch.cat([gradients * weight, weight.reshape(1)]))
        torch.div(total[:-1], total[-1].clamp(min=1e-8), out=gradients)

    def moments(self, sums: torch.Tensor) -> torch.Tensor:
        """Return mean and deviation of the samples of all members, float32[K, 2].

        Args:
            sums: float64[K, 3], of K minibatches: the weights of the own samples, the weighted
                samples, and their weighted squares.
        """
        weights, first, second = self.sum(sums).unbind(dim=1)
        mean = first / weights.clamp(min=1e-8)
        square = second / weights.clamp(min=1e-8) - mean.square()
        return torch.stack([mean, square.clamp(min=0.0).sqrt()], dim=1).float()

    def share(self, values: dict[str, float], steps: int) -> tuple[dict[str, float], int]:
        """Return the values of a round of all members, and the environment steps of all.

        Values are means (of ``…_max`` the largest), so that what follows them is the same for all.

        Raises:
            Diverged: if the parameters of the members are not the same any more.
        """
        names = list(values)
        table = torch.zeros(self.size, len(names) + 1, dtype=torch.float64)
        table[self.rank] = torch.tensor([*values.values(), steps], dtype=torch.float64)
        table = self.sum(table)
        norms = table[:, names.index(NORM)].tolist() if NORM in names else []
        if len(set(norms)) > 1:
            raise Diverged(f"replicas differ: the norms of the learners' parameters are {norms}")
        means, most = table.mean(dim=0).tolist(), table.amax(dim=0).tolist()
        shared = {
            name: largest if name.endswith("_max") else mean
            for name, mean, largest in zip(names, means, most, strict=False)
        }
        return shared, round(table[:, -1].sum().item())

    def any(self, own: bool) -> bool:
        """Return whether it is true for a member."""
        return bool(self.sum(torch.tensor([float(own)])) > 0)

    def leave(self) -> None:
        """Tell the others that this learner has ended, if they are still there."""
        with suppress(Closed, Lost):
            self._group.leave(self.rank)
