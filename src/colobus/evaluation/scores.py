"""Published scores of Atari games, and the human-normalised score.

``data/atari_scores.csv`` has a row for each of the 57 games that most papers use and a column for
each list of scores; a blank is a score that was not published. ``data/atari_columns.csv`` describes
the lists. docs/evaluation.md describes how the
columns were checked, and lists those whose mean or median differs from that of the paper.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from colobus.core.errors import printable

if TYPE_CHECKING:  # the live page reads scores without torch
    from colobus.envs.api import GameSettings

Kind = Literal["no-ops", "human starts", "training", "Gym -v0"]
"""Kind of the games: evaluation after up to 30 no-ops, evaluation from states of human games, games
during training, or games of Gym's ``-v0`` environments."""

LIMITS = (18_000, 108_000)
"""Frames after which published games were cut off: five minutes or half an hour."""


@dataclass(frozen=True)
class Column:
    """One list of published scores."""

    name: str  # in the file
    label: str
    kind: Kind
    limit: int | None  # frame limit of a game; None where games are never comparable
    frames: str  # of training for each game, or time of training if only that is known
    source: str

    @property
    def protocol(self) -> str:
        """How games were played, in words for a table."""
        return f"{self.kind}, {self.limit // 3600} min" if self.limit else self.kind


def rows_of(file: str) -> list[dict[str, Any]]:
    """Return the rows of a table of this package's data; all values are texts."""
    text = resources.files("colobus").joinpath("data", file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


COLUMNS = tuple(
    Column(**row | {"limit": int(row["limit"]) if row["limit"] else None})
    for row in rows_of("atari_columns.csv")  # each kind is one of `Kind`, as the tests check
)
"""The columns that `compare` shows, in this order; ``data/atari_columns.csv`` has them."""


class Published(NamedTuple):
    """A published score beside an evaluation."""

    label: str
    protocol: str
    frames: str  # of training
    score: float
    normalised: float | None  # human-normalised, per cent
    comparable: str  # "yes", or what differs
    source: str


def published(game: str, column: str) -> float | None:
    """Return a game's score in a column; None if there is none."""
    return scores().get(game, {}).get(column)


@cache
def scores() -> dict[str, dict[str, float]]:
    """Return all scores by game and column, without the blanks."""
    return {
        row["game"]: {k: float(cell) for k, cell in row.items() if cell and k != "game"}
        for row in rows_of("atari_scores.csv")
    }


def normalised(score: float, game: str, human_starts: bool = False) -> float | None:
    """Return 100 * (score - random) / (human - random), in per cent (Mnih et al. 2015).

    Args:
        score: raw return.
        game: ale-py's name.
        human_starts: whether games began at states of human games; the scores of random play and
            of a human are then those from such states.

    Returns:
        None if the game has no reference scores, or the human score is not above that of random
        play (Video Pinball from human starts).
    """
    pair = baselines(game, human_starts)
    if pair is None or pair[1] <= pair[0]:
        return None
    return 100 * (score - pair[0]) / (pair[1] - pair[0])


def baselines(game: str, human_starts: bool = False) -> tuple[float, float] | None:
    """Return the scores of random play and of a human; None if the game has none."""
    suffix = "_starts" if human_starts else ""
    random, human = published(game, f"random{suffix}"), published(game, f"human{suffix}")
    return None if random is None or human is None else (random, human)


def compare(settings: GameSettings, human_starts: bool = False) -> list[Published]:
    """Return the published scores of a game beside games played under ``settings``.

    With ``human_starts`` these games began at start states. Comparable scores come first. The list
    is empty for a game without published scores.
    """
    found = [
        Published(
            column.label,
            column.protocol,
            column.frames,
            score,
            normalised(score, settings.game, column.kind == "human starts"),
            comparable(column, settings, human_starts),
            column.source,
        )
        for column in COLUMNS
        if (score := published(settings.game, column.name)) is not None
    ]
    return sorted(found, key=lambda row: (row.comparable != "yes", row.comparable.startswith("no")))


HARDLY_ABOVE = "video_pinball"
"""A game in which a human's score is hardly above that of random play: an agent's human-normalised
score may be tens of thousands of per cent there."""

DECIDES = "a human is hardly above random play in it, so it decides the mean"
"""What is said where that game is one of many."""

NOOPS = 30
"""No-op frames of published games at most, or one more than that: papers differ."""


def comparable(column: Column, settings: GameSettings, human_starts: bool = False) -> str:
    """Return "yes" if a column's games were played like those under ``settings``, else why not.

    Only the emulator's settings matter. The number of games, the choice of actions and the
    training are not compared.
    """
    if column.kind == "human starts" and not human_starts:
        return "no: human starts"
    if column.kind == "no-ops" and human_starts:
        return "no: after no-ops"
    if column.kind == "training":
        return "no: while learning"
    if column.kind == "Gym -v0":
        return "no: Gym -v0"
    if settings.sticky > 0:
        return "no: not sticky"
    if settings.noop_max < NOOPS and not human_starts:
        return "no: after no-ops" if settings.noop_max <= 1 else "no: fewer no-ops"
    if settings.noop_max > NOOPS + 1 and not human_starts:
        return "no: more no-ops"
    if settings.frame_skip != 4:
        return "no: frame skip 4"
    if human_starts:
        return "except the starts"
    if settings.max_frames not in LIMITS:
        return "no: frame limit"
    return "yes" if settings.max_frames == column.limit else "except the limit"


def plain(text: str) -> str:
    """Return text in one line whose letters mean nothing to Markdown, HTML or a terminal."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", printable(" ".join(text.split())))
