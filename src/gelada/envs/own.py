"""Environments by name: those of Gymnasium's registry, and functions of the user.

A name such as ``CartPole-v1`` or ``minigrid:MiniGrid-Empty-5x5-v0`` is one of Gymnasium's; what
stands before the colon is imported first. ``my_module:make`` is a function (`core.functions`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gelada.core import functions
from gelada.core.errors import GeladaError

MakeEnv = Callable[..., Any]
"""Returns a `gymnasium.Env`. If it takes the argument ``num_envs``, it returns a
`gymnasium.vector.VectorEnv` of so many. If it takes ``render_mode``, films are possible."""


class NoPictures(GeladaError):
    """An environment cannot be shown in the way that was asked for."""


def is_gymnasium(name: str) -> bool:
    """Return whether a known environment is one of Gymnasium or a function of the user."""
    return bool(set(name) & set(":-/"))


def find_function(name: str) -> MakeEnv | None:
    """Return the function that a name means; None if it is a name of Gymnasium.

    Raises:
        GeladaError: if the function cannot be found.
    """
    return functions.find_function(name) if functions.is_function(name) else None
