"""Finds the results of the ledger for reports: by what was measured, variant and seed.

A cell of the ledger is found by the hash of its settings (`ledger.Cell`). Settings have been
renamed since the first measurements, which changes the hash, so a report does not look for the hash
of today. It takes the first finished line of the newest settings, and knows the older ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ledger import Line

MEAN_15 = "mean 15"
"""Variant of a ``-time`` cell that looked for a mean of 15 instead of 18."""

MEAN_300 = "mean 300"
"""Variant of ``breakout-time``."""

VARIANTS = {"b98cb039425b": MEAN_15}
"""Of settings whose lines do not tell it themselves."""


@dataclass(frozen=True)
class Found:
    """What the ledger has about one thing that was measured with one seed."""

    line: Line  # the first finished one of the newest settings
    earlier: tuple[Line, ...] = ()  # the first finished ones of older settings, oldest first
    failed: tuple[Line, ...] = ()  # of the newest settings
    trained: Line | None = None  # of a ``-time`` or ``-score`` cell: the run that it evaluated


def variant(line: Line) -> str:
    """Return which of several measurements of one name a finished line is about, or ""."""
    result, what = line["result"], line["what"]
    if line["settings"] in VARIANTS:
        return VARIANTS[line["settings"]]
    if what.endswith("-time"):
        mean = result.get("threshold", 18.0)
        return "" if mean == 18.0 else f"mean {mean:g}"
    if what == "ladder-tune":
        return f"{result['rung']} {result['number']}"
    if what.startswith("ladder-"):
        return str(result["rung"])
    if what.endswith("-games"):
        return str(result["game"])
    if what == "ray-limit":
        return str(result["preset"])
    if what == "ray-host":
        return str(result["hit"]["how"])
    if what in ("ray-failure", "ray-killed"):
        hit = re.search(r"(kill|stop)=(\w+):", result["command"])
        return f"{hit[2]} {hit[1]}" if hit else ""
    if what == "dba3c-delay":
        delay = re.search(r"delay=(\d+)", result["command"])
        return delay[1] if delay else "0"
    return ""


class Results:
    """The finished measurements of a ledger."""

    def __init__(self, lines: Iterable[Line]) -> None:
        """Sort the lines. Order in time is that of the field ``time``."""
        ordered = sorted(lines, key=lambda line: line["time"])
        variants = {
            (line["what"], line["settings"]): variant(line)
            for line in ordered
            if line["event"] == "finished"
        }
        self._found: dict[tuple[str, str, int], dict[str, list[Line]]] = {}
        for line in ordered:
            name = variants.get((line["what"], line["settings"]))
            if line["event"] in ("finished", "failed") and name is not None:
                key = (line["what"], name, line["seed"])
                by_settings = self._found.setdefault(key, {})
                by_settings.setdefault(line["settings"], []).append(line)

    def seeds(self, what: str, variant: str = "") -> list[Found]:
        """Return what was found with each seed, in the order of the seeds."""
        keys = sorted(key for key in self._found if key[:2] == (what, variant))
        found = [self._of(self._found[key]) for key in keys]
        return [one for one in found if one is not None]

    def one(self, what: str, variant: str = "") -> Found | None:
        """Return what was found with the first seed, or None."""
        return next(iter(self.seeds(what, variant)), None)

    def _of(self, by_settings: dict[str, list[Line]]) -> Found | None:
        """Return the newest settings' first finished line; "newest" is when that was measured."""
        first = {
            settings: next((line for line in lines if line["event"] == "finished"), None)
            for settings, lines in by_settings.items()
        }
        done = sorted((line for line in first.values() if line), key=lambda line: line["time"])
        if not done:
            return None
        newest = done[-1]
        lines = by_settings[newest["settings"]]
        failed = tuple(line for line in lines if line["event"] == "failed")
        return Found(newest, tuple(done[:-1]), failed, self._trained(newest))

    def _trained(self, line: Line) -> Line | None:
        """Return the run whose checkpoints a line without a command is about."""
        what, cut, kind = line["what"].rpartition("-")
        if kind not in ("time", "score") or "command" in line["result"]:
            return None
        runs = self._found.get((f"{what}{cut}train", "", line["seed"]), {})
        before = [
            run
            for lines in runs.values()
            for run in lines
            if run["event"] == "finished" and run["time"] <= line["time"]
        ]
        return max(before, key=lambda run: run["time"], default=None)
