"""Which code a folder may name: that of an agent of somebody else is not run unasked.

``config.json`` names environments, networks and algorithms of the user as ``module:function``, and
who imports a module runs it. So the modules that a training of this user was given are remembered
by where they lie, in a file in the user's home. A folder may name those, and code that somebody
trusts in so many words (``--trust``).
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from colobus.core.functions import Untrusted, is_function, is_known

_TRUSTED: set[str] = set()  # places of modules, in this process
EVERYTHING: list[str] = []  # not empty: whatever a folder names; words that ask for it


def trust_everything() -> None:
    """Let folders name any code in this process, as ``--trust`` does."""
    EVERYTHING.append("--trust")


def remember_modules(names: Iterable[str]) -> None:
    """Trust the modules of these names, now and in later processes of this user.

    Args:
        names: such as ``module:function``, from a command or call of the user and from no file.
    """
    found = [place for name in names for place in _places(name)]
    new = [place for place in dict.fromkeys(found) if place not in _trusted()]
    _TRUSTED.update(found)
    with suppress(OSError, RuntimeError):  # no home, or a full disk: --trust does without
        if new:
            file = _file()
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8", errors="surrogateescape") as lines:
                lines.write("".join(f"{place}\n" for place in new))


def check_trusted(names: Iterable[str], trust: bool = False) -> None:
    """Refuse code of modules that no training of this user was given.

    Nothing is imported. What is installed may be imported for a name of Gymnasium, such as
    ``minigrid:MiniGrid-Empty-5x5-v0``, which calls nothing in it.

    Args:
        names: that a folder's ``config.json`` has, of functions and environments.
        trust: trust them from now on in this process.

    Raises:
        Untrusted: names the first such module, and what to do.
    """
    for name in names:
        places = _places(name)
        if trust:
            _TRUSTED.update(places)
        if EVERYTHING or is_known(name) or set(places) <= _trusted():
            continue
        if not is_function(name) and all(map(_is_installed, places)):
            continue
        raise Untrusted(
            f"names the code {name!r} of {places[0]}, which no training of yours was given; run it "
            "with --trust if you trust it (in Python: colobus.load(..., trust=True))"
        )


def _places(name: str) -> list[str]:
    """Return where the outermost package or module of a name lies; [] if there is none."""
    top = name.partition(":")[0].partition(".")[0]
    if not top or top == "__main__" or top in sys.stdlib_module_names:
        return []  # refused by whoever imports it
    spec = None
    with suppress(ImportError, ValueError):  # ValueError: of a module that was made by hand
        spec = find_spec(top) or PathFinder.find_spec(top, [os.getcwd()])
    if spec is None:
        return []
    found = [spec.origin] if spec.has_location else [*(spec.submodule_search_locations or [])]
    return [os.path.realpath(place) for place in found if place]


def _is_installed(place: str) -> bool:
    """Return whether a module lies where pip installs."""
    paths = sysconfig.get_paths()
    folders = {paths["purelib"], paths["platlib"], site.getusersitepackages()}
    return any(Path(place).is_relative_to(os.path.realpath(folder)) for folder in folders)


def _trusted() -> set[str]:
    """Return the places of the modules that are trusted."""
    lines: list[str] = []
    with suppress(OSError, RuntimeError):
        text = _file().read_text(encoding="utf-8", errors="surrogateescape")
        lines = text.splitlines()
    return _TRUSTED.union(lines)


def _file() -> Path:
    """Return the file with the places of modules, one in a line."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "colobus", "trusted")
