"""Errors that a user can act on. Each is one line that names the value, the rule and the fix."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

NAME = "colobus"


class ColobusError(Exception):
    """A request that cannot be fulfilled. The command line prints one line and exits with 2."""

    exit_code = 2
    details = ""  # the traceback of a role that raised, or ""


class Diverged(ColobusError):
    """A loss term or a gradient is no longer a finite number (exit code 4)."""

    exit_code = 4


class Stalled(ColobusError):
    """A role stopped making progress; the message names it and what it was doing (exit code 3)."""

    exit_code = 3


class RoleFailed(ColobusError):
    """A role raised and could not be restarted (exit code 1)."""

    exit_code = 1


class GameFailed(ColobusError):
    """An environment raised an error, its cause; it may go well in new games (exit code 1)."""

    exit_code = 1


class ClusterLost(RoleFailed):
    """The cluster itself is lost or silent: nothing in it can be asked or saved (exit code 1)."""


class CannotWrite(ColobusError):
    """A run's folder cannot be written to, for example because the disk is full (exit code 5)."""

    exit_code = 5


class Closed(Exception):
    """Raised in a waiting call when the run stops. It is not an error: the role ends."""


class Lost(Exception):
    """Raised in a call to a role whose process has ended or does not answer.

    The calling role ends; the runtime decides how the run goes on.
    """


class Deadline(Exception):
    """A call waited for another role for longer than its deadline."""


def not_installed(what: str, error: ImportError, extra: str) -> ColobusError:
    """Return the error of something whose libraries are those of an extra of this package."""
    return ColobusError(f"{what}: {error}; install it with: pip install 'colobus[{extra}]'")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a phrase with the known names closest to ``name``, or else the first eight."""
    import difflib  # most runs never need it

    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, cutoff=0.5)
    if near:
        return f"nearest known: {', '.join(near)}"
    return f"known: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}"


def place_of(error: BaseException) -> str:
    """Return file and line where an error was raised."""
    (last,) = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"


def printable(text: str) -> str:
    """Return a text in which nothing can steer a terminal: such characters become question marks.

    Names and messages may come from files that somebody else has made.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def quoted(*words: str) -> str:
    """Return words as a shell takes them; octal is what cannot be printed: ``$'caf\\351'``."""

    def octal(word: str) -> str:
        return re.sub(rb"[^ -&(-\[\]-~]", lambda c: b"\\%03o" % c[0][0], os.fsencode(word)).decode()

    return " ".join(shlex.quote(w) if w.isprintable() else f"$'{octal(w)}'" for w in words)


def program() -> str:
    """Return how a command begins that the reader of a message can copy.

    It is ``colobus`` if a shell finds this program by that name. Else it is the path by which the
    program was started, or that of the program beside this Python, such as ``.venv/bin/colobus``.
    After ``python -m colobus`` it begins like that.
    """
    started = Path(sys.argv[0] if sys.argv else "")
    if started.parts[-2:] == (NAME, "__main__.py"):
        return f"{Path(sys.executable).name} -m {NAME}"
    own = started if started.name == NAME else Path(sys.executable).parent / NAME
    if not own.is_file():  # the package is used without being installed
        return NAME
    found = shutil.which(NAME)
    if found and Path(found).samefile(own):
        return NAME
    path = own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own
    return quoted(str(path) if path.parent.name else os.path.join(".", path))
