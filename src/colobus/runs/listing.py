"""The runs below some folders: which there are, their names, and what differs between them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colobus.core.errors import ColobusError, nearest
from colobus.runs.curves import KEPT
from colobus.runs.folder import is_run, slug
from colobus.runs.read import RunFolder

DEPTH = 3
"""Folders below the one that was named in which runs are looked for: a suite's are in runs/."""

ROWS, FEWEST = 12_000, 120
"""Rows that are kept of all runs together at least, and of each."""

SAME_AGENT = ("seed", "stop.", "tracker.", "sidecars.", "beside.")
"""Settings in which the seeds of one group may differ: they do not change what is learned.
Version 0.1 said "beside" for the sidecars."""

BUDGET = ("stop.steps", "stop.minutes")
"""With ``--anneal-share`` schedules end with these, so they change what is learned."""


class Runs:
    """The runs in and below some folders, in the order of the folders and of their names.

    Args:
        places: folders of runs, or folders that have runs below them.
        kept: rows of metrics of each run, see `colobus.runs.curves.KEPT`; by default fewer of each,
            the more runs there are.
    """

    def __init__(self, places: Sequence[Path], kept: int | None = None) -> None:
        self._places, self._kept = places, kept
        self._found: dict[Path, RunFolder] = {}

    @property
    def all(self) -> list[RunFolder]:
        """All runs that `look` has found."""
        return list(self._found.values())

    def look(self) -> bool:
        """Look for runs again; return whether there are others than before."""
        every = [path for place in self._places for path in find_runs(place)]
        first = {path.resolve(): path for path in reversed(every)}
        paths = list(dict.fromkeys(first[path.resolve()] for path in every))
        if paths == list(self._found):
            return False
        kept = self._kept or min(max(ROWS // max(len(paths), 1), FEWEST), KEPT)
        found: dict[Path, RunFolder] = {}
        for path, name in zip(paths, short_names(paths), strict=True):
            found[path] = self._found.get(path) or RunFolder(path, name, kept)
            found[path].name = name
        self._found = found
        return True


def about_run(run: RunFolder) -> dict[str, Any]:
    """Return what a list of runs says of one, as JSON values; what is not known is None.

    ``score`` is the mean of the last games of training, ``evaluated`` that of the newest
    evaluation.
    """
    newest, best = run.curve.newest, run.evaluations
    return {
        "run": run.name,
        "folder": str(run.path),
        "tags": run.tags,
        "game": title_of(run.game),
        "algorithm": run.algorithm,
        "seed": run.seed,
        "steps": int(newest.get("steps", 0)),
        "seconds": newest.get("seconds"),
        "score": newest.get("score"),
        "evaluated": best[-1].mean if best else None,
        "learning": run.learning,
        "age": None if run.age is None else round(run.age, 1),
    }


def find_runs(place: Path, depth: int = DEPTH) -> list[Path]:
    """Return the folders of runs at ``place`` or below it, by name.

    A run is a folder with ``config.json``; nothing is looked for inside of a run, nor behind links.
    """
    if is_run(place):
        return [place]
    if not depth:
        return []
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    inner = sorted((name for name in names if not name.startswith(".")), key=_in_order)
    return [path for name in inner for path in find_runs(place / name, depth - 1)]


def check_places(places: Sequence[Path]) -> None:
    """Raise ColobusError for a place that is no folder."""
    for place in places:
        if not place.is_dir():
            names = [path.name for path in place.parent.glob("*") if path.is_dir()]
            near = f"; {nearest(place.name, names)}" if names else ""
            if place == Path("runs"):
                near = "; no training has begun in this folder yet"
            raise ColobusError(f"{str(place)!r} is no folder: name a run or a folder of runs{near}")


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the ends of the paths, as long as they must be to differ."""
    parts = [path.resolve().parts for path in paths]
    most = max(map(len, parts), default=1)
    differ = (n for n in range(1, most) if len({part[-n:] for part in parts}) == len(parts))
    count = next(differ, most)
    return ["/".join(part[-count:]) for part in parts]


def grouped(
    runs: Sequence[RunFolder], ignored: tuple[str, ...] = SAME_AGENT
) -> list[list[RunFolder]]:
    """Return the runs by their settings: those of one group differ in what is ignored only.

    Runs whose settings cannot be read have groups of their own.
    """
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(group_key(run, ignored), []).append(run)
    return list(groups.values())


def group_key(run: RunFolder, ignored: tuple[str, ...] = SAME_AGENT) -> str:
    """Return what the runs of one group, and no others, have: it does not depend on others."""
    same = {k: v for k, v in run.settings.items() if not is_ignored(k, [run], ignored)}
    whole = (k for k, v in same.items() if isinstance(v, float) and v.is_integer())
    same |= {k: int(same[k]) for k in whole}  # 1.0 may be written as 1
    return json.dumps(same, sort_keys=True, default=str) if same else str(run.path)


def is_ignored(name: str, runs: Sequence[RunFolder], ignored: tuple[str, ...]) -> bool:
    """Return whether a setting may differ between runs of one group."""
    annealed = name in BUDGET and any(run.settings.get("algorithm.anneal_share") for run in runs)
    return name.startswith(ignored) and not annealed


def group_names(groups: Sequence[Sequence[RunFolder]]) -> list[str]:
    """Return a name for each group: game and algorithm, and where these are equal what differs.

    Where nothing differs but the lambda, it is the seed.
    """
    firsts = [runs[0] for runs in groups]
    names = [f"{title_of(run.game) or run.name} · {run.algorithm}".strip(" ·") for run in firsts]
    names = told_apart(names, firsts, SAME_AGENT, " · ")
    pairs = list(zip(names, firsts, strict=True))
    alike = {name: [run for other, run in pairs if other == name] for name in names}
    return [
        name if len(alike[name]) == 1 else f"{name} · {_seed(run, alike[name])}"
        for name, run in pairs
    ]


def run_names(runs: Sequence[RunFolder]) -> list[str]:
    """Return a name for each run: that of its folder, or if a lambda gave it that, what differs."""
    found = {run.path: run.name for run in runs}
    own = [run for run in runs if is_nameless(run.game) and slug(run.game) in run.path.name]
    for name, run in zip(group_names([[run] for run in own]), own, strict=True):
        alike = all(other.algorithm == run.algorithm for other in own)
        begin = f"{title_of(run.game)} · {run.algorithm}" if alike else title_of(run.game)
        found[run.path] = name.removeprefix(f"{begin} · ")
    return list(found.values())


def _seed(run: RunFolder, alike: Sequence[RunFolder]) -> str:
    """Return what tells a run from those that are named like it."""
    alone = [other.seed for other in alike].count(run.seed) == 1
    return f"seed {run.seed}" if alone and is_nameless(run.game) else run.name


def is_nameless(value: Any) -> bool:
    """Return whether a setting names a function that has no name of its own: a lambda."""
    return isinstance(value, str) and ("<lambda>" in value or "<locals>" in value)


def title_of(game: str) -> str:
    """Return what a game is called for people."""
    return "own environment" if is_nameless(game) else game


FEW = 3
"""Settings in a name, unless more of them tell it from others."""


def told_apart(
    names: Sequence[str], runs: Sequence[RunFolder], ignored: tuple[str, ...], between: str
) -> list[str]:
    """Return the names of runs; equal ones are followed by the settings that differ, if any do.

    Args:
        names: of the runs, in their order.
        runs: that are named.
        ignored: beginnings of the names of settings that are not shown.
        between: what separates a name from its settings.
    """
    found = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        places = [i for i, other in enumerate(names) if other == name]
        alike = [runs[i] for i in places]
        rows = {
            k: row
            for k, row in differences(alike).items()
            if not is_ignored(k, alike, ignored) and not all(map(is_nameless, row))
        }
        last = [key.rpartition(".")[2] for key in rows]
        said = [
            [f"{key} {in_words(value)}" for key, value in zip(last, values, strict=True)]
            for values in zip(*rows.values(), strict=True)
        ]
        tell = [len({*map(tuple, (words[:n] for words in said))}) for n in range(len(rows) + 1)]
        enough = max(tell.index(tell[-1]), FEW)
        for i, words in zip(places, said, strict=bool(rows)):
            found[i] = between.join([name, ", ".join(words[:enough])])
    return found


def differences(runs: Sequence[RunFolder]) -> dict[str, list[Any]]:
    """Return the settings that differ between runs, with the value of each run (None: it has none).

    Settings that all runs have come first: those that one lacks are often of another version.
    """
    every = [run.settings for run in runs]
    names = dict.fromkeys(name for settings in every for name in settings)
    rows = {name: [settings.get(name) for settings in every] for name in names}
    rows = {k: row for k, row in rows.items() if any(value != row[0] for value in row[1:])}
    return dict(sorted(rows.items(), key=lambda one: one[1].count(None)))


def in_words(value: Any) -> str:
    """Return a setting's value as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """Return what names are ordered by, numbers by their value: pong-2 before pong-10."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [int(part[:18]) if i % 2 else 0 for i, part in enumerate(parts)]
    return [(not i % 2, numbers[i], part) for i, part in enumerate(parts)]
