"""Errors a user can act on: each is one line that names the value, the rule and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GeladaError(Exception):
    """A mistake in what was asked. The command line prints it in one line and exits with 2."""

    exit_code = 2
    details = ""  # the traceback of a role that raised, or ""


class Diverged(GeladaError):
    """A loss term or a gradient is no longer a finite number (exit code 4)."""

    exit_code = 4


class Stalled(GeladaError):
    """A role stopped making progress; the message names it and what it was doing (exit code 3)."""

    exit_code = 3


class RoleFailed(GeladaError):
    """A role raised and could not be restarted (exit code 1)."""

    exit_code = 1


class CannotWrite(GeladaError):
    """A run's folder cannot be written any more, such as on a full disk (exit code 5)."""

    exit_code = 5


class Closed(Exception):
    """What a waiting call gets when the run stops. Not an error: the role simply ends."""


class Lost(Exception):
    """What a call gets whose role lives in a process that is gone, or gives no answer.

    The role that called ends; whoever watches over the run sees to the rest.
    """


class Deadline(Exception):
    """A wait for another role outlasted its deadline."""


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return a phrase with the known names most like ``name``, or all of them if few."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=count, cutoff=0.5)
    if near:
        return f"nearest known: {', '.join(near)}"
    return f"known: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}"
