"""Public learning curves: mean scores of other methods after so many frames of training.

``data/public_curves.csv`` has a row for each method and game, and a column for each number of
frames, from 1 M to 200 M; a blank means that the curve does not reach so far.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

SOURCES = {
    "Dopamine": "Castro et al. 2018, arXiv:1812.06110: the curves that Dopamine publishes",
    "DreamerV3": "Hafner et al. 2023, arXiv:2301.04104: the curves published with its code",
    "MR.Q": "Fujimoto et al. 2025, arXiv:2501.16142: the curves published with its code",
}
"""Where curves come from, by the first word of a method's name."""

REMARK = (
    "These curves are means over runs, of games with sticky actions 0.25 in most cases, which make "
    "games harder."
)


class PublicCurve(NamedTuple):
    """One method's curve of a game."""

    method: str  # source: name
    runs: int
    points: dict[int, float]  # mean score by frames


@cache
def _all_curves() -> dict[str, list[PublicCurve]]:
    file = resources.files("gelada").joinpath("data/public_curves.csv")
    curves: dict[str, list[PublicCurve]] = {}
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        method, game, runs = row.pop("method"), row.pop("game"), int(row.pop("runs"))
        points = {frames_of(column): float(cell) for column, cell in row.items() if cell}
        curves.setdefault(game, []).append(PublicCurve(method, runs, points))
    return curves


def public_curves(game: str) -> list[PublicCurve]:
    """Return the public curves of a game, by ale-py's name; [] if there are none."""
    return _all_curves().get(game, [])


def frames_of(column: str) -> int:
    """Return the frames that a column such as 10M stands for."""
    return int(column.removesuffix("M")) * 1_000_000


def source_of(method: str) -> str:
    """Return where a method's curves come from."""
    return SOURCES[method.partition(":")[0]]
