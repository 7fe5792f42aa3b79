"""Tables of the results' pages: rows, the lines that they are from, how they were measured."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.lib.ledger import Found, Line

WIDTH = 100
"""Of the lines of a page, but for tables."""

MISSING = "not measured yet"

SCALARS = {
    "share_of_limit": "share {:.2f}",
    "ratio": "a ratio of {:.2f}",
    "last_score": "a score of {:.2f} at the end",
    "peak_rss_mb": "{:.1f} MB",
}
"""How a result is told in a few words that has such a number, and nothing that says more."""


SEVERAL = (
    "Measured on machines of several kinds (below): seconds, and what was reached in so many, do "
    "not compare from one to another."
)


@dataclass(frozen=True)
class Row:
    """A row of a table, and the lines of the ledger that its figures are from."""

    cells: tuple[str, ...]
    found: tuple[Found, ...] = ()
    name: str = ""  # in remarks; the first cell if it is empty

    @property
    def label(self) -> str:
        """Return what the row is about."""
        return self.name or self.cells[0]


@dataclass(frozen=True)
class Table:
    """A table of figures, and below it how each row was measured."""

    head: tuple[str, ...]
    rows: Sequence[Row]
    after: str = ""
    measured: Sequence[str] = ()  # how, where the rows name no lines of the ledger
    old: Sequence[str] = ()  # earlier results, where the rows name no lines of the ledger

    def lines(self) -> list[str]:
        """Return the lines of Markdown."""
        measured = self.measured or how(one for row in self.rows for one in row.found)
        return [
            *markdown(self.head, [row.cells for row in self.rows]),
            *(["", *wrapped(after)] if (after := f"{self.after} {self.apart}".strip()) else []),
            *(["", "Measured with:", "", *items(measured)] if measured else []),
        ]

    @property
    def apart(self) -> str:
        """Return a remark if the rows are of machines of several kinds."""
        kinds = {machine(one.line) for row in self.rows for one in row.found}
        return SEVERAL if len(kinds) > 1 else ""

    def earlier(self) -> list[str]:
        """Return what was measured before, and what failed, a text for each.

        A text that is about several rows stands once, with the names of all of them.
        """
        labels: dict[str, list[str]] = {}
        for row in self.rows:
            for text in (text for one in row.found for text in earlier_of(one)):
                own = labels.setdefault(text, [])
                own += [row.label] if row.label not in own else []
        return [*self.old, *(f"{'; '.join(own)}: {text}" for text, own in labels.items())]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows]]


def listed(values: Sequence[float | None], form: str) -> str:
    """Return the median, and the single values behind it if there are several.

    None is a value that was never reached, and above every number.
    """
    words = ["never" if value is None else form.format(value) for value in values]
    if len(values) < 2:
        return words[0] if words else MISSING
    middle = median(math.inf if value is None else value for value in values)
    return f"**{'never' if math.isinf(middle) else form.format(middle)}** ({', '.join(words)})"


def values(found: Sequence[Found], name: str) -> list[Any]:
    """Return one entry of each result, in the order of the seeds."""
    return [one.line["result"][name] for one in found]


def figure(label: str, found: Sequence[Found], name: str, form: str) -> Row:
    """Return a row with the median over the seeds and the single values in brackets."""
    return Row((label, listed(values(found, name), form)), tuple(found))


def score_of(mean: float, standard_error: float) -> str:
    """Return a score with its standard error."""
    return f"**{mean:,.1f}** ± {standard_error:.1f}"


def anchor(title: str) -> str:
    """Return the name that a heading has in links."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return lines of at most `WIDTH` characters, where words allow it."""
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def items(texts: Iterable[str]) -> list[str]:
    """Return the lines of a list, without repetitions."""
    return [line for text in dict.fromkeys(texts) for line in wrapped(f"* {text}", "  ")]


def earlier_of(found: Found) -> list[str]:
    """Return the results before one, and the starts that failed."""
    told = [(old, f": {headline(old)}") for old in found.earlier]
    for failed in found.failed:
        error = failed["error"].splitlines()[0][:160]
        told.append((failed, f", a start that failed: {error}"))
    return [f"seed {found.line['seed']}{words} ({origin(line)})." for line, words in told]


def headline(line: Line) -> str:
    """Return the figure of a finished line in a few words."""
    result = line["result"]
    share = result.get("share_of_limit")
    if "seconds_to_solved" in result:
        seconds = result["seconds_to_solved"]
        return "the score was not reached" if seconds is None else f"{seconds:.0f} seconds"
    if isinstance(share, dict):
        return f"{share['ray']:.2f} on Ray, {share['threads']:.2f} on threads"
    if (back := result.get("seconds_to_be_back")) is not None:
        return f"back after {back:.1f} seconds"
    if "shares" in result:
        return "; ".join(f"{name} {median(own):.2f}" for name, own in result["shares"].items())
    if "standard_error" in result:
        return f"{result['score']:,.1f} ± {result['standard_error']:.1f}"
    if "minutes" in result:
        scores = result["minutes"].items()
        return "; ".join(f"{one['mean']:,.1f} after {minutes} minutes" for minutes, one in scores)
    for compared in ("runs", "servers", "workers"):
        if compared in result:
            told = result[compared].items()
            rates = (f"{name} {one['versions_per_s']:.1f}" for name, one in told)
            return f"versions/s {', '.join(rates)}"
    for name, form in SCALARS.items():
        if name in result:
            return form.format(result[name])
    raise ValueError(f"{line['what']}: no headline is known for {sorted(result)}")


def origin(line: Line) -> str:
    """Return the day and the commit of a line."""
    return f"{line['time'][:10]}, commit `{line['machine'].get('commit') or 'unknown'}`"


def machine(line: Line) -> str:
    """Return the machine of a line in words."""
    about = line["machine"]
    name = re.sub(r"\((R|TM)\)", "", about["processor"])
    return f"{name}, {about['cores']} cores, {about['memory_gib']:g} GiB"


def commands(line: Line) -> list[str]:
    """Return the commands of a line, without the seed and the folder of the run."""
    result = line.get("result", {})
    given = result.get("commands") or [result.get("command")]
    cleaned = (re.sub(r" --(seed|out) \S+( limit)?", "", text) for text in given if text)
    return list(dict.fromkeys(cleaned))


def how(found: Iterable[Found]) -> list[str]:
    """Return a text for each command: seeds, machine, days and commits.

    Commands that differ in the game alone stand once, with GAME in its place.
    """
    groups: dict[tuple[str, str], list[Line]] = {}
    for one in found:
        game = one.line["result"].get("game")
        again = f"python -m benchmarks.run --only {one.line['what']}"
        given = [text.replace(f" {game} ", " GAME ") for text in commands(one.trained or one.line)]
        for line in filter(None, (one.trained, one.line)):
            words = ", ".join(f"`{text}`" for text in given or [again])
            groups.setdefault((words, machine(line)), []).append(line)
    texts = []
    for (words, where), own in groups.items():
        games = dict.fromkeys(line["result"].get("game") for line in own)
        named = f" with {', '.join(filter(None, games))}" if any(games) else ""
        seeds = sorted({line["seed"] for line in own})
        word = "seed" if len(seeds) == 1 else "seeds"
        origins = "; ".join(dict.fromkeys(origin(line) for line in own))
        texts.append(f"{words}{named}; {word} {', '.join(map(str, seeds))}; {where}; {origins}")
    return texts
