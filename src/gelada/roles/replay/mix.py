"""Mix: old windows that a trajectory queue adds to each batch.

The replay of IMPALA (Espeholt et al. 2018, section 5.2.2) and of RLlib's aggregators: a batch is
some fresh trajectories and some that were handed out before. Importance ratios, as of V-trace,
allow for the older policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from gelada.core.seeding import sequence
from gelada.core.types import PER_GAME, Trajectory


class Mix:
    """Keeps the newest windows, and draws old ones for each batch.

    A window is one game of a trajectory. Each fresh window brings ``floor(proportion)`` old ones,
    and one more with the probability of the fraction that is left. They are drawn uniformly, with
    replacement, from the windows of earlier batches. None is drawn before more than a batch is
    kept. An old window is not kept a second time.

    Where the agents of a game have policies of their own, what they played side by side stays
    together, and counts as one window here.

    Args:
        kept: windows kept.
        proportion: old windows for each fresh one.
        batch: fresh windows of a batch.
        seeds: seed of the run, and numbers that tell this mix from others.
        agents: whose windows stay together, which are neighbours in a trajectory.

    Raises:
        ValueError: if no more than a batch is kept, so that nothing would ever be drawn.
    """

    def __init__(
        self, kept: int, proportion: float, batch: int, seeds: Sequence[int], agents: int = 1
    ) -> None:
        if kept <= batch:
            raise ValueError(f"{kept} windows kept: must be more than the {batch} of a batch")
        self._proportion, self._batch, self._agents = proportion, batch, agents
        self._seed, *self._numbers = seeds
        self._kept: deque[tuple[Trajectory, int]] = deque(maxlen=kept)  # with the first row
        self._batches = 0

    def take(self, fresh: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the old windows for a batch of fresh trajectories, and keep the fresh ones.

        Returns:
            Trajectories of one game each.
        """
        rows = [range(0, len(trajectory.actions), self._agents) for trajectory in fresh]
        old = self._draw(sum(map(len, rows))) if len(self._kept) > self._batch else []
        for trajectory, own in zip(map(with_own_memory, fresh), rows, strict=True):
            self._kept.extend((trajectory, row) for row in own)
        self._batches += 1
        return old

    def _draw(self, fresh: int) -> list[Trajectory]:
        """Return old windows for so many fresh ones; the seed and the batch's number decide."""
        random = np.random.default_rng(sequence(self._seed, "mix", *self._numbers, self._batches))
        whole = int(self._proportion)
        count = fresh * whole + int((random.random(fresh) < self._proportion - whole).sum())
        drawn = (self._kept[i] for i in random.integers(len(self._kept), size=count))
        return [games_of(trajectory, slice(row, row + self._agents)) for trajectory, row in drawn]


def games_of(trajectory: Trajectory, part: slice) -> Trajectory:
    """Return some games of a trajectory, as views."""
    return trajectory._replace(**{name: getattr(trajectory, name)[part] for name in PER_GAME})


def with_own_memory(trajectory: Trajectory) -> Trajectory:
    """Return a trajectory whose arrays are not views; what is not is not copied.

    An array that came from another process may lie in memory of all processes, which is small.
    """
    return trajectory._replace(
        **{name: np.require(getattr(trajectory, name), requirements="O") for name in PER_GAME}
    )
