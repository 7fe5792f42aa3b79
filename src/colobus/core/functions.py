"""Functions of the user by name, so that settings and ``config.json`` can name them.

``my_module:make`` is a function or class in a module. A function that no module has, such as a
lambda or one of the script that runs, is known to this process only. Of environments a name such as
``CartPole-v1`` or ``minigrid:MiniGrid-Empty-5x5-v0`` is one of Gymnasium's.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

from colobus.core.errors import ColobusError, place_of
from colobus.core.files import read_object

Function = Callable[..., Any]

_KNOWN: dict[str, Function] = {}  # by name, those of this process

_NAME = re.compile(r"^[\w.]+:[A-Za-z_<][\w.<>]*(#\d+)?$")


def name_of(function: Function) -> str:
    """Return the name of a function, and remember it in this process.

    Functions that were made by the same lines, such as closures, have the same name in Python. Here
    the second of them is called ``module:name#2``.
    """
    own = getattr(function, "__qualname__", type(function).__qualname__)
    name = first = f"{function.__module__}:{own}"
    number = 1
    while name in _KNOWN and _KNOWN[name] != function:
        number += 1
        name = f"{first}#{number}"
    _KNOWN[name] = function
    return name


def remember(name: str, function: Function) -> bool:
    """Let a name mean this function in this process; return whether it meant another one."""
    before = _KNOWN.get(name, function)
    _KNOWN[name] = function
    return before != function


def check_callable(**given: object) -> None:
    """Raise ColobusError if one of these arguments is neither a function nor None."""
    for name, value in given.items():
        if value is not None and not callable(value):
            raise ColobusError(
                f"{name}: is {type(value).__name__}, must be a function that makes one, such as "
                "lambda: ..."
            )


def is_function(name: str) -> bool:
    """Return whether a name is written as that of a function."""
    return name in _KNOWN or _NAME.match(name) is not None


def is_known(name: str) -> bool:
    """Return whether a name means a function that this process was given."""
    return name in _KNOWN


def find_function(name: str) -> Function:
    """Return the function that a name means. Its module is imported.

    Raises:
        ColobusError: if it cannot be found, or is one of Python's own.
    """
    if name in _KNOWN:
        return _KNOWN[name]
    module, _, own = name.partition(":")
    if module == "__main__" or "<" in own or "#" in own:
        raise ColobusError(
            f"{name!r} is a function of the script that trained, unknown here; give the function "
            "itself, or put it into a module and name it as module:function"
        )
    if not is_function(name):
        raise ColobusError(f"{name!r}: name a function as module:function")
    found: Function | None = import_module(module, name)
    for part in own.split("."):
        found = getattr(found, part, None)
    if found is None or not callable(found):
        raise ColobusError(f"{name!r}: module {module} has no function {own}")
    if isinstance(found, FunctionType | BuiltinFunctionType | type):
        _refuse_own(found.__module__ or "", name)
    return found


def _refuse_own(module: str, name: str) -> None:
    """Raise ColobusError for a module of Python's own, wherever it was imported."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ColobusError(f"{name!r}: is a function of Python's own; name one of yours")


def import_module(module: str, name: str) -> Any:
    """Import a module for a name, from the working folder too.

    Raises:
        ColobusError: if there is no such module, it is one of Python's own, or it lies in the
            folder of a run or agent: whoever made that folder would decide what runs here.
    """
    _refuse_own(module, name)
    missing: tuple[type[Exception], ...] = (ModuleNotFoundError,)
    if not all(module.split(".")):  # as in "..x:make"; else a ValueError is the module's own
        missing += (ValueError,)
    try:
        with suppress(*missing):
            return _import(module, name)
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return _import(module, name)
    except ColobusError:
        raise
    except missing as error:
        how = "install the package that has it"
        if "/" in module or module.endswith(".py"):
            plain = module.removesuffix(".py").strip("./").replace("/", ".")
            how = f"name a file without .py, with dots for folders: {plain}:{name.split(':')[-1]}"
            if module.startswith(("/", "../")):
                plain = plain.rpartition(".")[2]
                how = f"go to its folder and name it as {plain}:{name.split(':')[-1]}"
        said = str(error)
        raise ColobusError(f"{name!r}: {said[:1].lower()}{said[1:]}; {how}") from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__} {error} (at {place_of(error)})"
        raise ColobusError(f"{name!r}: cannot be imported: {what}") from error


def _import(module: str, name: str) -> Any:
    """Import a module and the packages around it, each after a look at where it lies."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        part = ".".join(parts[:count])
        if part in sys.modules:
            continue
        spec = importlib.util.find_spec(part)
        if spec is not None:
            for place in [spec.origin, *(spec.submodule_search_locations or [])]:
                if place and os.path.exists(place) and _is_in_agent(Path(place).absolute()):
                    raise ColobusError(
                        f"{name!r}: {place} lies in the folder of a run or agent, and code from "
                        "there is not run; if you trust it, move it elsewhere"
                    )
        importlib.import_module(part)
    return importlib.import_module(module)


def _is_in_agent(place: Path) -> bool:
    """Return whether a file or folder is in a folder with the ``config.json`` of a run or agent."""
    for folder in (place, *place.parents):
        with suppress(OSError, ColobusError):
            if "actions" in read_object(folder / "config.json"):
                return True
    return False


def arguments_of(words: Sequence[str]) -> dict[str, Any]:
    """Return arguments by name of words such as ``size=8``, ``continuous=false`` or ``name=text``.

    A value is one of JSON or Python, or else a text.

    Raises:
        ColobusError: if a word is no name=value.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ColobusError(f"--env-kwargs {word}: write name=value, such as size=8")
        found[name] = value
        for reads in (ast.literal_eval, json.loads):
            with suppress(ValueError, TypeError, SyntaxError, RecursionError):
                found[name] = reads(value)
    return found


def as_words(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return arguments by name as the words that `arguments_of` reads.

    Raises:
        ColobusError: if a value cannot be written as text.
    """
    words = tuple(f"{name}={value!r}" for name, value in arguments.items())
    if repr(arguments_of(words)) != repr(dict(arguments)):
        raise ColobusError(
            f"env_kwargs {' '.join(words)[:60]}: cannot be kept as text in config.json; give "
            "make_env=lambda: ..., a function that makes the environment with them"
        )
    return words


MakeEnv = Callable[..., Any]
"""Returns a `gymnasium.Env`. If it takes the argument ``num_envs``, it returns a
`gymnasium.vector.VectorEnv` of so many. If it takes ``render_mode``, films are possible."""


class NoPictures(ColobusError):
    """An environment cannot be shown in the way that was asked for."""


def is_gymnasium(name: str) -> bool:
    """Return whether a known environment is one of Gymnasium or a function of the user."""
    return bool(set(name) & set(":-/"))


def find_environment(name: str) -> MakeEnv | None:
    """Return the function that a name means; None if it is a name of Gymnasium.

    Raises:
        ColobusError: if the function cannot be found.
    """
    return find_function(name) if is_function(name) else None


class Untrusted(ColobusError):
    """A folder names code that this user has not trusted."""


def code_in(settings: Any, but: Collection[str] = ()) -> list[str]:
    """Return the names of functions, and of environments with their module, in nested settings.

    Args:
        settings: dictionaries, lists and values.
        but: names of settings that are left out.
    """
    if isinstance(settings, dict):
        settings = [value for key, value in settings.items() if key not in but]
    if isinstance(settings, list | tuple):
        return [name for value in settings for name in code_in(value, but)]
    named = isinstance(settings, str) and (is_function(settings) or is_gymnasium(settings))
    return [settings] if named and ":" in settings else []
