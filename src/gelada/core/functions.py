"""Functions of the user by name, so that settings and ``config.json`` can name them.

``my_module:make`` is a function or class in a module. A function that no module has, such as a
lambda or one of the script that runs, is known to this process only.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from gelada.core.errors import GeladaError

Function = Callable[..., Any]

_KNOWN: dict[str, Function] = {}  # by name, those of this process

_NAME = re.compile(r"^[\w.]+:[A-Za-z_<][\w.<>]*$")


def name_of(function: Function) -> str:
    """Return the name of a function, and remember it in this process."""
    own = getattr(function, "__qualname__", type(function).__qualname__)
    name = f"{function.__module__}:{own}"
    _KNOWN[name] = function
    return name


def remember(name: str, function: Function) -> None:
    """Let a name mean this function in this process."""
    _KNOWN[name] = function


def is_function(name: str) -> bool:
    """Return whether a name is written as that of a function."""
    return name in _KNOWN or _NAME.match(name) is not None


def find_function(name: str) -> Function:
    """Return the function that a name means. Its module is imported.

    Raises:
        GeladaError: if it cannot be found, or is one of Python's own.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    module, _, own = name.partition(":")
    if module == "__main__" or "<" in own:
        raise GeladaError(
            f"{name!r} is a function of the script that trained, unknown here; give the function "
            "itself, or put it into a module and name it as module:function"
        )
    if not is_function(name):
        raise GeladaError(f"{name!r}: name a function as module:function")
    _refuse_own(module, name)
    found: Any = import_module(module, name)
    for part in own.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise GeladaError(f"{name!r}: module {module} has no function {own}")
    if isinstance(found, FunctionType | BuiltinFunctionType | type):
        _refuse_own(found.__module__ or "", name)
    function: Function = found
    return function


def _refuse_own(module: str, name: str) -> None:
    """Raise GeladaError for a module of Python's own, wherever it was imported."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise GeladaError(f"{name!r}: is a function of Python's own; name one of yours")


def import_module(module: str, name: str) -> Any:
    """Import a module for a name, from the working folder too.

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
            f"{name!r}: {str(error).lower()}; install the package that has it"
        ) from None
