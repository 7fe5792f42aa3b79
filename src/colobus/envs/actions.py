"""The actions of an environment of Gymnasium as numbers from 0, and which of them are allowed.

`MultiDiscrete` and `MultiBinary` actions are joined: each combination is one action. A `Box` is cut
into evenly spaced values of each of its numbers, from the lowest to the highest (Tang & Agrawal
2020, "Discretizing Continuous Action Space for On-Policy Optimization"), and joined as well. So
every algorithm learns them. Where there would be too many combinations, the environment is refused.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from colobus.core.arrays import Bools
from colobus.core.errors import ColobusError

MASK = "action_mask"
"""Key of what says which actions are allowed, in an observation or in an info."""

MOST = 256
"""Most combinations that are joined."""

MOST_SINGLE = 65_536
"""Most actions of a `Discrete`, as in `colobus.runs.config`."""

VALUES = 15
"""Most values of a number of a `Box`; odd, so that the middle is one."""


class Actions(NamedTuple):
    """What an agent can do in one environment."""

    environment: str  # its name, for messages
    table: NDArray[Any]  # [A, …]: what the environment takes for each action
    counts: tuple[int, ...]  # choices of each number of it; one for a `Discrete`
    note: str  # half a sentence to print, or ""

    @property
    def names(self) -> tuple[str, ...]:
        """What the environment takes, written."""
        return tuple(",".join(f"{n:g}" for n in np.ravel(each)) for each in self.table)

    def allowed(self, mask: Any) -> Bools:
        """Return bool[A], the actions that a mask of the environment allows.

        Where several numbers make an action, a mask is a tuple of masks of each or all of them one
        after the other (as in Stable-Baselines3's contributions), or one of the combinations. A
        mask that allows nothing, as some have at the end of a game, or None allows all.

        Raises:
            ColobusError: if it has another size, or something else than numbers.
        """
        if mask is None:
            return np.ones(len(self.table), dtype=np.bool_)
        parts = mask if isinstance(mask, tuple | list) else (mask,)
        try:
            given = np.concatenate([np.ravel(part) for part in parts]) > 0
        except (TypeError, ValueError):  # a text, a dictionary or a ragged list
            raise ColobusError(
                f"{self.environment}: its {MASK} is {str(mask)[:40]}, must be 1 where allowed"
            ) from None
        if len(self.counts) > 1 and len(given) == sum(self.counts):
            each = np.split(given, np.cumsum(self.counts)[:-1])
            given = np.array([all(chosen) for chosen in product(*each)])
        if len(given) != len(self.table):
            wanted = f"{len(self.table)}, one for each action"
            if len(self.counts) > 1:
                wanted = f"{sum(self.counts)}, one for each choice of each of its numbers"
            raise ColobusError(
                f"{self.environment}: its {MASK} has {len(given)} numbers, must have {wanted}"
            )
        return given if given.any() else np.ones_like(given)


def actions_of(name: str, space: spaces.Space[Any]) -> Actions:
    """Return the actions of an environment.

    Raises:
        ColobusError: if they are of another kind, too many or without limits.
    """
    most = VALUES
    match space:
        case spaces.Discrete(n=count, start=start) if count <= MOST_SINGLE:
            return Actions(name, start + np.arange(int(count)), (int(count),), "")
        case spaces.MultiDiscrete(nvec=nvec, start=starts):
            first, counts = np.ravel(starts), [int(count) for count in np.ravel(nvec)]
            choices = [f + np.arange(c) for f, c in zip(first, counts, strict=True)]
        case spaces.MultiBinary(shape=shape):
            choices = [np.arange(2)] * math.prod(shape)
        case spaces.Box(low=low, high=high) if low.size:
            if not (np.abs(np.array([low, high], np.float64)) < 1e9).all():  # such as 3e38
                raise ColobusError(
                    f"{name}: its actions {short(space)} have no limits; apply "
                    "gymnasium.wrappers.RescaleAction or ClipAction in a function of your own"
                )
            while most > 1 and most**low.size > MOST:
                most -= 2
            ends = zip(np.ravel(low), np.ravel(high), strict=True)
            choices = [np.unique(np.linspace(a, b, most, dtype=low.dtype)) for a, b in ends]
        case _:
            raise ColobusError(
                f"{name}: its actions are {short(space)}; Colobus learns Discrete (at most "
                f"{MOST_SINGLE:,}), MultiDiscrete, MultiBinary and small Box actions: make one of "
                "these of them in a function of your own (gymnasium.wrappers.TransformAction)"
            )
    counts = [len(each) for each in choices]
    total = math.prod(counts)
    continuous = isinstance(space, spaces.Box)
    if total > MOST or (continuous and most < 2):
        many = f"{total:,}" if total < 1e12 else f"2^{total.bit_length() - 1} or more"
        what = f"{len(counts)} continuous numbers" if continuous else f"{many} combinations"
        raise ColobusError(
            f"{name}: its actions {short(space)} have {what}, and at most "
            f"{'5 numbers' if continuous else f'{MOST} combinations'} are learned; choose some of "
            "them in a function of your own (gymnasium.wrappers.TransformAction)"
        )
    table = np.array(list(product(*choices)), space.dtype).reshape(total, *(space.shape or ()))
    note = f"each of its {total} combinations of actions is one action"
    if continuous:
        each = f"each of its {len(counts)} numbers" if len(counts) > 1 else "its action"
        note = f"{each} has {counts[0]} evenly spaced values instead of all"
    return Actions(name, table, tuple(counts), note)


def short(space: spaces.Space[Any]) -> str:
    """Return a space as it is written, shortened."""
    text = " ".join(str(space).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
