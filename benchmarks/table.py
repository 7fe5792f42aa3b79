"""Tables of Markdown, and how values stand in them."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import median_of


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def listed(values: Sequence[float | None], form: str) -> str:
    """Return the median, and the single values behind it if there are several."""
    if not values:
        return "not measured yet"
    words = ["never" if value is None else form.format(value) for value in values]
    if len(values) == 1:
        return words[0]
    middle = median_of(values)
    median = "never" if middle is None else form.format(middle)
    return f"**{median}** ({', '.join(words)})"


def judged(values: Sequence[bool]) -> str:
    """Return "equal" if all are."""
    if not values:
        return "not measured yet"
    return "equal" if all(values) else "not equal"
