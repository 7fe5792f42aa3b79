"""Films of several games in one picture, each with a caption."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds, generator
from colobus.core.types import Bytes
from colobus.evaluation.agent import Agent, PolicyName
from colobus.evaluation.films.file import Film, Format, Progress, filming, format_of, rounded
from colobus.evaluation.films.player import Player, make_screen

LETTERS = 0.56
"""Size of the letters, as a share of the caption's height."""

DOTS = "..."
"""Ends a text that is cut off."""


@lru_cache(maxsize=64)
def caption(left: str, right: str, width: int, height: int) -> Bytes:
    """Return a picture uint8[height, width, 3] with white letters on black.

    It has six greys, so that it adds few colours to a GIF. The text at the left is cut off where
    it would touch the other one.
    """
    image = Image.new("L", (width, height), 0)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(round(LETTERS * height))
    margin = height // 4
    room = width - 3 * margin - draw.textlength(right, font)
    if draw.textlength(left, font) > room:
        while left and draw.textlength(left + DOTS, font) > room:
            left = left[:-1]
        left += DOTS
    draw.text((margin, height / 2), left, fill=255, font=font, anchor="lm")
    draw.text((width - margin, height / 2), right, fill=255, font=font, anchor="rm")
    return np.repeat(rounded(np.asarray(image))[:, :, None], 3, axis=2)


MOST = 36
"""Games in one picture."""

IN_A_ROW = 3
"""Up to so many games stand beside each other; more make a square."""

GAP = 6
"""Pixels between two games."""

CLOSE = 1e-6
"""Room for rounding when a moment is compared with the time of a picture, in pictures."""

HOLD = 1.0
"""Seconds for which a film shows the ends of its games."""

SCREEN_HEIGHT = 210
"""Rows of an Atari's screen: games with pictures of another size are enlarged to about as many."""

CAPTION, LEAST_CAPTION = 0.08, 24
"""Height of a caption: a share of that of an Atari's screen, but at least so many pixels."""


class Cell(NamedTuple):
    """One game of a grid."""

    agent: Agent
    title: str  # of its caption
    seed: int = 1  # of the game and the sampled actions


def record_grid(
    cells: Sequence[Cell],
    out: Path,
    seconds: float = 60.0,
    policy: PolicyName | None = None,
    progress: Progress | None = None,
) -> list[Film]:
    """Film a game of each cell, side by side, until all are over or ``seconds`` are filmed.

    A game that is over shows its end. The caption of a game has its score so far.

    Args:
        cells: the games, row by row; at most `MOST`.
        out: file to write, .mp4 or .gif. An older one is replaced.
        seconds: of film, at most.
        policy: each agent's own by default.
        progress: called with the seconds filmed and ``seconds``.

    Returns:
        What was filmed, for each cell.

    Raises:
        ColobusError: if there are no games or too many, the suffix is another, ``seconds`` is not
            positive, ``out`` cannot be written, or an environment has no pictures.
    """
    form = format_of(out, seconds)
    if not 1 <= len(cells) <= MOST:
        raise ColobusError(f"{len(cells)} games in one picture: must be 1 to {MOST}; take fewer")
    panels = [_Panel(cell, policy, form) for cell in cells]
    columns = len(panels) if len(panels) <= IN_A_ROW else math.ceil(math.sqrt(len(panels)))
    exact = all(panel.exact for panel in panels)
    with ExitStack() as opened, filming(out, form.rate) as film:
        for panel in panels:
            opened.callback(panel.screen.close)
        end = seconds * form.rate
        while film.seen < end:
            moment = film.seen / form.rate
            film.show(_together([panel.at(moment) for panel in panels], columns), exact=exact)
            if all(panel.over for panel in panels):
                end = min(end, film.seen + HOLD * form.rate)
            if progress:
                progress(min(film.seen / form.rate, seconds), seconds)
    filmed = film.seen / form.rate
    return [
        Film(out, p.player.score, p.player.steps, filmed, p.player.over, p.player.games)
        for p in panels
    ]


class _Panel:
    """One game of a grid: it plays as far as the film has come."""

    def __init__(self, cell: Cell, policy: PolicyName | None, form: Format) -> None:
        agent, self._title, seed = cell
        self.screen = make_screen(agent.games, int(game_seeds(seed, "film", 1)[0]))
        random = generator(seed, "film actions")
        self.player = Player(agent, self.screen, random, policy)
        self._coming: deque[tuple[Bytes, float]] = deque()  # pictures, and the score at each
        self.player.begin(self._take)
        self._picture, self._score = self._coming.popleft()
        self._passed = 1  # pictures that were taken from those that come
        self._small = form.small
        self.exact = self.screen.zoom is None  # see `FilmFile.show`

    @property
    def over(self) -> bool:
        """Whether the end of the game is seen."""
        return self.player.over and not self._coming

    def at(self, second: float) -> Bytes:
        """Return the picture of this second of the film with its caption, uint8[H, W, 3]."""
        while self._passed <= second * self.screen.rate + CLOSE and not self.over:
            if self._coming:
                self._picture, self._score = self._coming.popleft()
                self._passed += 1
            else:
                self.player.step(self._take)
        score = self.player.score if self.over else self._score
        high, wide = self.screen.zoom or self._small
        times = max(round(SCREEN_HEIGHT * self._small[0] / (len(self._picture) * high)), 1)
        large = self._picture.repeat(times * high, axis=0).repeat(times * wide, axis=1)
        height = max(round(CAPTION * SCREEN_HEIGHT * self._small[0]), LEAST_CAPTION)
        below = caption(self._title, f"score {score:.7g}", large.shape[1], height)
        return np.concatenate([large, below])

    def _take(self, picture: Bytes) -> None:
        """Keep a picture that comes, with the score before the step that shows it."""
        self._coming.append((picture.copy(), self.player.score))


def _together(pictures: Sequence[Bytes], columns: int) -> Bytes:
    """Return pictures of any sizes as one, row by row, each in the middle of its place."""
    height = max(len(picture) for picture in pictures)
    width = max(picture.shape[1] for picture in pictures)
    rows = -(-len(pictures) // columns)
    whole = (rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3)
    found: Bytes = np.zeros(whole, dtype=np.uint8)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        top = row * (height + GAP) + (height - len(picture)) // 2
        left = column * (width + GAP) + (width - picture.shape[1]) // 2
        found[top : top + len(picture), left : left + picture.shape[1]] = picture
    return found
