"""The form of docs/results.md: sections with a table, and below it how each row was measured."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ledger import Line
from lookup import Found
from remarks import remark
from table import markdown

WIDTH = 100
"""Of the lines of the page, but for tables."""


SHORT = {
    "equal": "equal: {}",
    "megabytes": "{:.1f} MB",
    "peak_rss_mb": "{:.1f} MB",
    "median": "median {:.1f} seconds",
    "lost": "{} called lost",
    "score_with_kills": "{:.1f} with kills",
}
"""Figures of lines about stops and losses, in a few words."""


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
class Section:
    """A table with a heading and a few sentences about how it is measured."""

    title: str
    about: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    after: str = ""
    remarks: tuple[str, ...] = ()  # besides those of the rows
    measured: Sequence[str] = ()  # how, where the rows name no lines of the ledger

    def lines(self) -> list[str]:
        """Return the lines of Markdown."""
        measured = self.measured or how(one for row in self.rows for one in row.found)
        told = [*self.remarks, *notes(self.rows)]
        return [
            f"## {self.title}",
            "",
            *wrapped(self.about),
            "",
            *markdown(self.head, [row.cells for row in self.rows]),
            "",
            *(["Remarks:", "", *items(told), ""] if told else []),
            *(["Measured with:", "", *items(measured), ""] if measured else []),
            *([*wrapped(self.after), ""] if self.after else []),
        ]


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return paragraphs as lines of at most `WIDTH` characters, where words allow it."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += [""] if lines else []
        lines += textwrap.wrap(
            paragraph,
            WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def items(texts: Iterable[str]) -> list[str]:
    """Return the lines of a list, without repetitions."""
    return [line for text in dict.fromkeys(texts) for line in wrapped(f"* {text}", "  ")]


def notes(rows: Sequence[Row]) -> list[str]:
    """Return what stands beside the figures of a table: remarks, earlier results and failures.

    A text that is about several rows stands once, with the names of all of them.
    """
    labels: dict[str, list[str]] = {}
    for row in rows:
        for one in row.found:
            for text in notes_of(one):
                own = labels.setdefault(text, [])
                own += [row.label] if row.label not in own else []
    return [f"{'; '.join(own)}: {text}" for text, own in labels.items()]


def notes_of(found: Found) -> list[str]:
    """Return what stands beside one figure."""
    text = remark(found.line)
    seed = f"seed {found.line['seed']}"
    return [
        *([text] if text else []),
        *(
            f"{seed} was measured before with other settings or code: {headline(old)} "
            f"({origin(old)})."
            for old in found.earlier
        ),
        *(
            f"{seed}, a start that failed: {failed['error'].splitlines()[0][:160]} "
            f"({origin(failed)})."
            for failed in found.failed
        ),
    ]


def headline(line: Line) -> str:
    """Return the figure of a finished line in a few words."""
    result = line["result"]
    if "seconds_to_solved" in result:
        seconds = result["seconds_to_solved"]
        return "the score was not reached" if seconds is None else f"{seconds:.0f} seconds"
    share = result.get("share_of_limit")
    if isinstance(share, dict):
        return f"{share['ray']:.2f} on Ray, {share['threads']:.2f} on threads"
    if "shares" in result:
        named = (f"{name} {median(own):.2f}" for name, own in result["shares"].items())
        return "; ".join(named)
    if "standard_error" in result:
        return f"{result['score']:,.1f} ± {result['standard_error']:.1f}"
    if "achieved_steps_per_s" in result:
        return f"share {share:.2f} of {result['limit_steps_per_s']:,.0f} steps/s"
    if share is not None:
        return f"share {share:.2f}, {result['run_steps']:,} steps"
    if "seconds" in result:
        return f"{result['seconds']:.0f} seconds"
    if "minutes" in result:
        scores = result["minutes"].items()
        return "; ".join(f"{one['mean']:,.1f} after {minutes} minutes" for minutes, one in scores)
    if "ratio" in result:
        return f"a ratio of {result['ratio']:.2f}"
    if "time" in result:
        return "; ".join(f"{name} {time:.2f}" for name, time in result["time"].items())
    for name, form in SHORT.items():
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
    """Return a text for each command: seeds, machine, days and commits."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for one in found:
        given = commands(one.trained or one.line)
        again = f"python benchmarks/run.py --only {one.line['what']}"
        for line in filter(None, (one.trained, one.line)):
            words = ", ".join(f"`{text}`" for text in given or [again])
            groups.setdefault((words, machine(line)), []).append(line)
    texts = []
    for (words, where), own in groups.items():
        seeds = sorted({line["seed"] for line in own})
        word = "seed" if len(seeds) == 1 else "seeds"
        origins = "; ".join(dict.fromkeys(origin(line) for line in own))
        texts.append(f"{words}; {word} {', '.join(map(str, seeds))}; {where}; {origins}")
    return texts
