"""Text of others in Markdown."""

from __future__ import annotations

import re

from gelada.core.errors import printable


def plain(text: str) -> str:
    """Return text in one line whose letters mean nothing to Markdown, HTML or a terminal."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", printable(" ".join(text.split())))
