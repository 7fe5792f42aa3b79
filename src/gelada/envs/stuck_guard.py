"""The stuck guard: presses FIRE for an agent that repeats itself.

A greedy agent can wait for ever for a ball that only FIRE serves. DBA3C had a guard in evaluation,
never in training (`PreventStuckPlayer` of tensorpack; docs/dba3c.md says where ours differs).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gelada.core.types import Bools, Ints


class StuckGuard:
    """Watches the actions of ``count`` games played side by side.

    After ``limit`` equal actions in a row the next one, if it is the same again, is replaced once
    by FIRE, and the count begins anew. A game without FIRE gets its action 1.

    Args:
        limit: equal actions in a row that are let through.
        action_names: of the game's actions, in their order.
        count: games side by side.
    """

    def __init__(self, limit: int, action_names: Sequence[str], count: int) -> None:
        self.pressed: Ints = np.zeros(count, dtype=np.int64)  # in each present game
        self._limit = limit
        self._action = action_names.index("FIRE") if "FIRE" in action_names else 1
        self._last: Ints = np.zeros(count, dtype=np.int64)
        self._run: Ints = np.zeros(count, dtype=np.int64)

    def let_through(self, actions: Ints) -> Ints:
        """Return what is to be played, int64[B], where ``actions`` int64[B] were chosen."""
        self._run = np.where(actions == self._last, self._run + 1, 1)
        self._last = actions
        stuck = self._run > self._limit
        self._run[stuck] = 0
        self.pressed += stuck
        return np.where(stuck, self._action, actions)

    def begin(self, over: Bools) -> None:
        """Forget what was played in the games that are ``over`` bool[B]: new ones begin."""
        self._run[over] = 0
        self.pressed[over] = 0
