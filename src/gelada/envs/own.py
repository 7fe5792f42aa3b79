"""Environments by name: those of Gymnasium's registry, and functions of the user.

A name such as ``CartPole-v1`` or ``minigrid:MiniGrid-Empty-5x5-v0`` is one of Gymnasium's; what
stands before the colon is imported first. ``my_module:make`` is a function in a module. A function
that no module has, such as a lambda or one of the script that runs, is known to this process only.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from gelada.core.errors import GeladaError

MakeEnv = Callable[..., Any]
"""Returns a `gymnasium.Env`. If it takes the argument ``num_envs``, it returns a
`gymnasium.vector.VectorEnv` of so many. If it takes ``render_mode``, films are possible."""


class NoPictures(GeladaError):
    """An environment cannot be shown in the way that was asked for."""


_OWN: dict[str, MakeEnv] = {}  # by name, those of this process

_FUNCTION = re.compile(r"^[\w.]+:[A-Za-z_][\w.]*$")


def is_gymnasium(name: str) -> bool:
    """Return whether a known environment is one of Gymnasium or a function of the user."""
    return bool(set(name) & set(":-/"))


def name_of(make_env: MakeEnv) -> str:
    """Return the name of a function that makes environments, and remember it in this process."""
    own = getattr(make_env, "__qualname__", type(make_env).__qualname__)
    name = f"{make_env.__module__}:{own}"
    _OWN[name] = make_env
    return name


def remember(name: str, make_env: MakeEnv) -> None:
    """Let a name mean this function in this process."""
    _OWN[name] = make_env


def find_function(name: str) -> MakeEnv | None:
    """Return the function that a name means; None if it is a name of Gymnasium.

    Raises:
        GeladaError: if the function cannot be found.
    """
    if name in _OWN:
        return _OWN[name]
    module, _, function = name.partition(":")
    if module == "__main__" or "<" in function:
        raise GeladaError(
            f"environment {name!r} is a function of the script that trained, unknown here; give it "
            "as make_env, or put it into a module and name it as module:function"
        )
    if not _FUNCTION.match(name):
        return None
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise GeladaError(f"environment {name!r}: a function of Python's own makes no environment")
    found: Any = import_module(module, name)
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise GeladaError(f"environment {name!r}: module {module} has no function {function}")
    make: MakeEnv = found
    return make


def import_module(module: str, name: str) -> Any:
    """Import a module, from the working folder too.

    Raises:
        GeladaError: if there is no such module.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        pass
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise GeladaError(
            f"environment {name!r}: {str(error).lower()}; install the package that has it"
        ) from None
