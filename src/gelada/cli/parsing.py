"""From command-line words to a frozen dataclass, with every mistake told in one line.

Imports no torch, so that help and wrong words are answered at once.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from gelada.core.errors import GeladaError, nearest

T = TypeVar("T")

CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
"""Flags are ``--lr``, not ``--algorithm.lr``; an absent value is said by leaving the flag out."""


def parse(kind: type[T], command: str, args: Sequence[str], default: T | None = None) -> T:
    """Return ``args`` as a ``kind``, starting from ``default``.

    Raises:
        GeladaError: on an unknown flag or a value that cannot be read.
        SystemExit: with code 0, when ``--help`` was printed.
    """
    said = io.StringIO()
    extra: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(said):
            flags: T = tyro.cli(
                kind, prog=f"gelada {command}", args=list(args), config=CONFIG, **extra
            )
            return flags
    except SystemExit as end:
        if not end.code:
            raise
        raise GeladaError(f"{_one_line(said.getvalue())}; see gelada {command} --help") from None


def check_run(run: Path) -> None:
    """Raise GeladaError if ``run`` is no run's folder; the message has the nearest known runs."""
    if (run / "config.json").is_file():
        return
    runs = [str(path.parent) for path in run.parent.glob("*/config.json")]
    runs += [str(path.parent) for path in Path("runs").glob("*/config.json")]
    near = f"; {nearest(str(run), runs)}" if runs else ""
    raise GeladaError(
        f"{str(run)!r} is no run: it has no config.json; name a folder that gelada train made{near}"
    )


def at_least(flag: str, value: float, low: float) -> None:
    """Raise GeladaError if ``value`` is below ``low`` (or no number)."""
    if not value >= low:
        raise GeladaError(f"{flag} {value:g}: must be at least {low:g}")


def print_json(data: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def _one_line(box: str) -> str:
    """Return the sense of tyro's error box in one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [re.sub(r"^[│|] ?|\s*[│|]$", "", row).rstrip() for row in plain.splitlines()]
    body = rows[1:]
    if body and _is_rule(body[0]):  # where the terminal has no box characters
        body = body[1:]
    rule = next((i for i, row in enumerate(body) if _is_rule(row)), len(body))
    text = " ".join(" ".join(body[:rule]).split())
    for pattern, rewrite in _REWRITES:
        if match := re.search(pattern, text):
            return rewrite.format(*match.groups())
    if match := re.search(r"Unrecognized (?:options|arguments): (.*)", text):
        words = match[1].split(", ")
        word = next((w for w in words if w.startswith("-")), words[0])
        near = re.findall(r"^\s+(--[a-z][\w-]*)", "\n".join(body[rule:]), re.MULTILINE)
        kind = "flag" if word.startswith("-") else "argument"
        return f"unknown {kind} {word!r}" + (
            f": nearest known: {', '.join(near[:3])}" if near else ""
        )
    return text or "the command line cannot be read"


def _is_rule(row: str) -> bool:
    return not row.strip(" ─╰╯-")


WHOLE = "{0} {1}: not a whole number; write it in digits, such as 20000"

_REWRITES = (
    (r"Error parsing (\S+): no type matching INT .*?\['(.*?)'\]", WHOLE),
    (r"Error parsing (\S+): no type matching FLOAT .*?\['(.*?)'\]", "{0} {1}: not a number"),
    (r"Error parsing (\S+): could not convert string to float: '(.*?)'", "{0} {1}: not a number"),
    (r"Error parsing (\S+): invalid literal for int\(\) with base 10: '(.*?)'", WHOLE),
    (
        r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?),?\)",
        "{1} {0}: must be one of {2}",
    ),
    (r"Missing value for argument '(.*?)'", "{0}: a value is missing"),
    (r"Missing from .*?: (\S+)", "{0} is missing: name it first"),
)
