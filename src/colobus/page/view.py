"""What the page shows, as JSON values: summaries of all runs, and the curves of those wanted."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colobus.evaluation.scores import baselines
from colobus.runs.curves import SPEED, Value
from colobus.runs.listing import (
    Runs,
    group_key,
    group_names,
    grouped,
    in_words,
    run_names,
    title_of,
)
from colobus.runs.read import RunFilm, RunFolder, milestones

POINTS = 24_000
"""Points of a column in one answer, of all runs together."""

MOST_POINTS, FEWEST_POINTS = 600, 120
"""Points of a column of one run."""

QUICK, REST = 0.02, 20
"""Looking through folders for runs is repeated each time if it takes fewer seconds than the first
number, else after so many times as long as it took."""

MOST_EVENTS = 200
"""Newest events of a run that are shown."""

ALWAYS = ("steps", "seconds", "score", SPEED)
"""Columns of every answer."""


class PageView:
    """Looks at the runs when it is asked, and tells what has changed since it was asked before."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._now = 0  # rises with each look that finds a change
        self._changed: dict[str, int] = {}  # by run: when it changed last
        self._learning: dict[str, bool] = {}
        self._look_again = 0.0  # when folders are looked through for runs again
        self._lock = threading.Lock()  # requests are answered on several threads

    def look(self, after: int, columns: Sequence[str]) -> dict[str, Any]:
        """Return the runs that have changed after the moment ``after`` (0: all).

        Args:
            after: ``now`` of the answer before.
            columns: values of ``metrics.jsonl`` that are wanted beside those of every answer.
        """
        with self._lock:
            self._refresh()
            runs = self._runs.all
            most = max(min(POINTS // max(len(runs), 1), MOST_POINTS), FEWEST_POINTS)
            groups = grouped(runs)
            return {
                "now": self._now,
                "ids": [run_id(run) for run in runs],
                "names": run_names(runs),
                "groups": [
                    [group_id(group[0]), name]
                    for group, name in zip(groups, group_names(groups), strict=True)
                ],
                "runs": [
                    summary(run) | {"curve": curve(run, columns, most)}
                    for run in runs
                    if self._changed[run_id(run)] > after
                ],
            }

    def film(self, run: str, name: str) -> Path | None:
        """Return the path of a run's film; None if it has no such film."""
        with self._lock:
            found = (one for one in self._runs.all if run_id(one) == run)
            films = [film for one in found for film in (*one.films, one.together) if film]
        return next((film.path for film in films if film_name(film) == name), None)

    def _refresh(self) -> None:
        """Read what is new in all runs."""
        began = time.monotonic()
        if began >= self._look_again:
            if self._runs.look():
                self._now += 1
            took = time.monotonic() - began
            self._look_again = began + (REST * took if took > QUICK else 0.0)
        changed = set()
        for run in self._runs.all:
            key = run_id(run)
            if run.refresh() or key not in self._changed or self._learning[key] != run.learning:
                changed.add(key)
            self._learning[key] = run.learning
        if changed:
            self._now += 1
            self._changed |= dict.fromkeys(changed, self._now)


def run_id(run: RunFolder) -> str:
    """Return what names a run in addresses: it says nothing about the folder."""
    return hashlib.sha256(os.fsencode(run.path.absolute())).hexdigest()[:16]


def group_id(run: RunFolder) -> str:
    """Return what names a run's group, whichever other groups there are."""
    return "g" + hashlib.sha256(group_key(run).encode(errors="surrogateescape")).hexdigest()[:16]


def film_name(film: RunFilm) -> str:
    """Return what names a film in addresses; a film that was made again has another."""
    return f"{film.path.stem}-{film.seen}{film.path.suffix}"


def summary(run: RunFolder) -> dict[str, Any]:
    """Return everything of a run but its curve, and its name, which depends on other runs."""
    pair = baselines(run.game)
    return {
        "id": run_id(run),
        "folder": run.name,
        "group": group_id(run),
        "game": title_of(run.game),
        "algorithm": run.algorithm,
        "seed": run.seed,
        "learning": run.learning,
        "age": run.age,
        "newest": run.curve.newest,
        "bound": run.bound(),
        "stages": run.stages(),
        "columns": [name for name in run.curve.names() if name not in ("steps", "seconds")],
        "evaluations": [
            {k: v for k, v in one._asdict().items() if k not in ("about", "saved")}
            for one in run.evaluations
        ],
        "events": run.events[-MOST_EVENTS:],
        "films": [{"steps": film.steps, "name": film_name(film)} for film in milestones(run.films)],
        "together": run.together and film_name(run.together),
        "settings": {name: in_words(value) for name, value in run.settings.items()},
        "machine": {name: in_words(value) for name, value in run.about.items()},
        "human": None if pair is None else {"random": pair[0], "human": pair[1]},
    }


def curve(run: RunFolder, columns: Sequence[str], most: int) -> dict[str, list[Value]]:
    """Return the wanted columns, numbers shortened to what a screen can show."""
    found = run.curve.columns(list(dict.fromkeys([*ALWAYS, *columns])), most)
    return {
        name: [float(f"{value:.5g}") if isinstance(value, float) else value for value in values]
        for name, values in found.items()
    }
