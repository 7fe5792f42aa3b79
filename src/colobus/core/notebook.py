"""How results look in a notebook: tables and films in HTML, with all texts escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from pathlib import Path

from colobus.core.errors import printable

MOST_BYTES = 10_000_000
"""Of a film that is put into a notebook; of a larger one the path alone is told."""

KINDS = {".mp4": '<video controls loop src="{}"></video>', ".gif": '<img src="{}">'}


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Return names and values as a table; those that are None or "" are left out."""
    cells = "".join(
        f'<tr><th style="text-align: left">{_text(name)}</th>'
        f'<td style="text-align: left">{_text(value)}</td></tr>'
        for name, value in rows.items()
        if value not in (None, "")
    )
    return f"<table><caption>{_text(title)}</caption>{cells}</table>"


def html_film(path: Path) -> str:
    """Return a film as it is played in a notebook; "" if there is none, or it is too large."""
    suffix = path.suffix.lower()
    try:
        if suffix not in KINDS or path.stat().st_size > MOST_BYTES:
            return ""
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError:
        return ""
    kind = "video/mp4" if suffix == ".mp4" else "image/gif"
    return KINDS[suffix].format(f"data:{kind};base64,{data}")


def _text(value: object) -> str:
    return escape(printable(str(value)))
