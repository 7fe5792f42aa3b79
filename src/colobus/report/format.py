"""A document as blocks, written as HTML in one file or as Markdown; and rows as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any

from colobus.evaluation.scores import plain

DASH = "\N{EN DASH}"
"""What stands for a number that there is not."""


@dataclass(frozen=True)
class Heading:
    """A heading of level 2 or 3."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table; columns whose name ends in > are aligned to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""  # on a terminal
    caption: str = ""  # likewise

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]]) -> Table:
        """Return a table of rows that have its columns as names; there is at least one."""
        return cls(tuple(rows[0]), tuple(tuple(row.values()) for row in rows))

    @property
    def heads(self) -> list[tuple[str, bool]]:
        """Name of each column, and whether it is aligned to the right."""
        return [(name.removesuffix(">"), name.endswith(">")) for name in self.columns]


@dataclass(frozen=True)
class Figure:
    """A picture as SVG text, which was drawn here, with its caption."""

    svg: str
    caption: str


Block = Heading | Text | Table | Figure


def as_html(title: str, blocks: Sequence[Block]) -> str:
    """Return one HTML file without scripts and without anything that is loaded from elsewhere.

    All text is escaped; only the pictures, which this program drew, are put in as they are.
    """
    import jinja2

    source = resources.files("colobus.report").joinpath("report.html.jinja").read_text("utf-8")
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    named = [(type(block).__name__.lower(), block) for block in blocks]
    return template.from_string(source).render(title=title, blocks=named)


def as_markdown(title: str, blocks: Sequence[Block]) -> str:
    """Return the same without the pictures, and without headings of nothing else."""
    parts = [f"# {plain(title)}"]
    shown = [block for block in blocks if not isinstance(block, Figure)]
    for block, after in pairwise([*shown, Heading("")]):
        match block:
            case Heading(_, level) if isinstance(after, Heading) and after.level <= level:
                pass
            case Heading(text, level):
                parts.append(f"{'#' * level} {plain(text)}")
            case Text(text):
                parts.append(plain(text))
            case Table():
                parts.append(_table(block))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    heads = [name for name, _ in table.heads]
    first, *rows = [[plain(cell) for cell in row] for row in (heads, *table.rows)]
    rule = ["---:" if right else "---" for _, right in table.heads]
    return "\n".join(f"| {' | '.join(row)} |" for row in (first, rule, *rows))


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows by column as CSV, in which no text is a formula of a spreadsheet."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _no_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _no_formula(value: Any) -> Any:
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
    return f"'{value}" if formula else value
